//! What a request asks for, read from the request alone: the demands that the policy
//! decides, and whether it is about its own pod. Pure.
//!
//! A field whose meaning for the node is not known here may have no value: who makes
//! use of it adds it here too.

use cri::v1;
use cri::v1::security_profile::ProfileType;
use node_policy::{Demand, SeLinuxOption};
use pod::PodIdentity;
use pod::capability::ALL;
use pod::metadata::{CONTAINER_NAME_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL, POD_UID_LABEL};

use crate::denial::Denial;
use crate::held::{HeldVolume, HeldVolumes};
use crate::places::{OwnMount, Places, stays_below};
use crate::user_ids::{self, UserIds};

/// Of `/proc` and `/sys`, what a container must not see unless it may have all of it.
pub const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// What it must not change.
pub const READ_ONLY: [&str; 6] = [
    "/proc/asound",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The lowest score by which the kernel picks whom it kills for memory: what a kubelet
/// gives to pods that the node needs. Below are the node's own processes.
const LOWEST_OOM_SCORE: i64 = -998;

/// How many signals the interface has for the stop of a container.
const MOST_SIGNALS: i32 = 65;

/// One thing that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The field that asks for it.
    pub(crate) field: String,
    pub(crate) demand: Demand,
}

impl Asked {
    pub(crate) fn new(field: impl Into<String>, demand: Demand) -> Asked {
        Asked {
            field: field.into(),
            demand,
        }
    }
}

/// Whom a container runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunsAs {
    Uid(i64),
    /// What it stands for only the image knows.
    Name(String),
}

/// The UID of the pod that a sandbox is of.
pub(crate) fn pod_uid(config: &v1::PodSandboxConfig) -> Result<&str, Denial> {
    let metadata = config.metadata.as_ref();
    let uid = metadata.map_or("", |metadata| metadata.uid.as_str());
    match uid {
        "" => Err(Denial::Missing {
            field: "metadata.uid",
        }),
        uid => Ok(uid),
    }
}

/// Whom a root user is outside of its pod: with users of its own the pod's root is nobody
/// there, and every other user too.
pub(crate) fn user(field: &str, uid: i64, own: Option<UserIds>) -> Option<Asked> {
    let is_own_root = uid == 0 && own.is_some();
    (!is_own_root).then(|| Asked::new(field, Demand::User(uid)))
}

/// What a sandbox asks for, and the ids of its own users, if it is to have any.
pub(crate) fn sandbox(
    pod: &PodIdentity,
    config: &v1::PodSandboxConfig,
    places: &Places,
) -> Result<(Vec<Asked>, Option<UserIds>), Denial> {
    is_of_pod(pod, config, places)?;
    let linux = config.linux.clone().unwrap_or_default();
    if !places.is_own_cgroup(pod.uid(), &linux.cgroup_parent) {
        return Err(Denial::not_the_pods(
            "linux.cgroup_parent",
            linux.cgroup_parent,
        ));
    }
    for (field, amounts) in [
        ("linux.overhead", &linux.overhead),
        ("linux.resources", &linux.resources),
    ] {
        amounts
            .as_ref()
            .map_or(Ok(()), |amounts| resources(field, amounts))?;
    }
    let security = linux.security_context.unwrap_or_default();
    let options = namespace_options(config);
    let own_users = user_ids::asked(&options)?;
    let has_nodes_network = options.network() == v1::NamespaceMode::Node;
    let mut asked = namespaces(&options)?;
    let mut ask = |field: &str, demand| asked.push(Asked::new(field, demand));
    for mapping in &config.port_mappings {
        // A pod in the node's network has all ports.
        if mapping.host_port != 0 && !has_nodes_network {
            let port = u16::try_from(mapping.host_port)
                .map_err(|_| Denial::not_judged("host_port", mapping.host_port.to_string()))?;
            ask("port_mappings", Demand::HostPort(port));
        }
    }
    for name in linux.sysctls.keys() {
        ask("linux.sysctls", Demand::sysctl(name));
    }
    if security.privileged {
        ask("linux.security_context.privileged", Demand::Privileged);
    }
    for group in groups(
        security.run_as_group.as_ref(),
        &security.supplemental_groups,
    ) {
        ask("groups", Demand::Group(group));
    }
    let uid = security.run_as_user.map(|user| user.value);
    asked.extend(uid.and_then(|uid| user("run_as_user", uid, own_users)));
    asked.extend(selinux(security.selinux_options.as_ref()));
    asked.extend(seccomp(
        security.seccomp.as_ref(),
        &security.seccomp_profile_path,
        places,
    )?);
    asked.extend(apparmor(security.apparmor.as_ref(), ""));
    Ok((asked, own_users))
}

/// What a container asks for, but for its user, and whom the request has it run as: if
/// it does not say, the image does. `own_users` are those of its sandbox.
pub(crate) fn container(
    pod: &PodIdentity,
    config: &v1::ContainerConfig,
    (volumes, own_users): (&HeldVolumes, Option<UserIds>),
    places: &Places,
) -> Result<(Vec<Asked>, Option<RunsAs>), Denial> {
    labels_are_of_pod(pod, &config.labels)?;
    let name = config.metadata.as_ref().map_or("", |it| it.name.as_str());
    same("labels", &config.labels, CONTAINER_NAME_LABEL, name)?;
    if !stays_below(&config.log_path) {
        return Err(Denial::not_the_pods("log_path", config.log_path.clone()));
    }
    // Any of the interface's signals does: it goes to the container's own process.
    if !(0..=MOST_SIGNALS).contains(&config.stop_signal) {
        let signal = config.stop_signal.to_string();
        return Err(Denial::not_judged("stop_signal", signal));
    }
    let mut asked = Vec::new();
    for mount in &config.mounts {
        asked.extend(mounted(pod, mount, volumes, places)?);
        user_ids::of_mount(mount, own_users)?;
        if mount.propagation() == v1::MountPropagation::PropagationBidirectional {
            // What it mounts there, the node has too.
            asked.push(Asked::new("mounts.propagation", Demand::Privileged));
        }
    }
    for device in &config.devices {
        // The request does not say of which kind it is: the one that needs more.
        let demand = Demand::Device {
            path: device.host_path.clone(),
            block: true,
        };
        asked.push(Asked::new("devices", demand));
    }
    let linux = config.linux.clone().unwrap_or_default();
    if let Some(amounts) = &linux.resources {
        resources("linux.resources", amounts)?;
    }
    let security = linux.security_context.unwrap_or_default();
    let runs_as = match (&security.run_as_user, security.run_as_username.as_str()) {
        (Some(user), _) => Some(RunsAs::Uid(user.value)),
        (None, "") => None,
        (None, name) => Some(RunsAs::Name(name.to_owned())),
    };
    asked.extend(container_security(&security, own_users, places)?);
    Ok((asked, runs_as))
}

/// The container whose processes a container is to see. Whether it is of the same pod is
/// for the caller to ask.
pub(crate) fn process_namespace_of(config: &v1::ContainerConfig) -> Option<&str> {
    let security = config.linux.as_ref()?.security_context.as_ref()?;
    let options = security.namespace_options.as_ref()?;
    is_of_target(options).then_some(options.target_id.as_str())
}

fn is_of_target(options: &v1::NamespaceOption) -> bool {
    options.pid() == v1::NamespaceMode::Target && !options.target_id.is_empty()
}

fn container_security(
    security: &v1::LinuxContainerSecurityContext,
    own_users: Option<UserIds>,
    places: &Places,
) -> Result<Vec<Asked>, Denial> {
    let mut options = security.namespace_options.clone().unwrap_or_default();
    if is_of_target(&options) {
        options.set_pid(v1::NamespaceMode::Container);
        options.target_id.clear();
    }
    if user_ids::asked(&options)? != own_users {
        let found = format!("{:?}", options.userns_options);
        return Err(Denial::not_the_pods(
            "namespace_options.userns_options",
            found,
        ));
    }
    let mut asked = namespaces(&options)?;
    let mut ask = |field: &str, demand| asked.push(Asked::new(field, demand));
    if security.privileged {
        ask("privileged", Demand::Privileged);
    }
    let capabilities = security.capabilities.clone().unwrap_or_default();
    let added = capabilities.add_capabilities.iter();
    for capability in added.chain(&capabilities.add_ambient_capabilities) {
        ask("capabilities", Demand::capability(capability));
    }
    // Not in all spellings of a spec: with a prefix it would drop nothing.
    let is_all = |name: &String| name.eq_ignore_ascii_case(ALL);
    if !capabilities.drop_capabilities.iter().any(is_all) {
        ask("capabilities", Demand::DefaultCapabilities);
    }
    if !security.no_new_privs {
        ask("no_new_privs", Demand::PrivilegeEscalation);
    }
    for group in groups(
        security.run_as_group.as_ref(),
        &security.supplemental_groups,
    ) {
        ask("groups", Demand::Group(group));
    }
    let lacks = |all: &[&str], stated: &[String]| {
        let is_stated = |path: &&str| stated.iter().any(|stated| stated == path);
        !all.iter().all(is_stated)
    };
    let is_unmasked =
        lacks(&MASKED, &security.masked_paths) || lacks(&READ_ONLY, &security.readonly_paths);
    match (is_unmasked, own_users) {
        (true, None) => ask("masked_paths", Demand::UnmaskedProc),
        (true, Some(_)) => ask("masked_paths", Demand::UnmaskedProcOfOwnUsers),
        (false, _) => {}
    }
    asked.extend(selinux(security.selinux_options.as_ref()));
    asked.extend(seccomp(
        security.seccomp.as_ref(),
        &security.seccomp_profile_path,
        places,
    )?);
    asked.extend(apparmor(
        security.apparmor.as_ref(),
        &security.apparmor_profile,
    ));
    Ok(asked)
}

/// Limits touch nobody else, whatever they are; but files of the cgroup are named by
/// their names alone, and the node's own processes come last when memory is short.
pub(crate) fn resources(field: &str, amounts: &v1::LinuxContainerResources) -> Result<(), Denial> {
    let strange = |name: &&String| name.contains('/') || name.starts_with('.');
    if let Some(name) = amounts.unified.keys().find(strange) {
        return Err(Denial::not_judged(format!("{field}.unified"), name));
    }
    if amounts.oom_score_adj < LOWEST_OOM_SCORE {
        let score = amounts.oom_score_adj.to_string();
        return Err(Denial::not_judged(format!("{field}.oom_score_adj"), score));
    }
    Ok(())
}

fn is_of_pod(
    pod: &PodIdentity,
    config: &v1::PodSandboxConfig,
    places: &Places,
) -> Result<(), Denial> {
    let metadata = config.metadata.clone().unwrap_or_default();
    for (field, found, own) in [
        ("metadata.uid", metadata.uid, pod.uid()),
        ("metadata.name", metadata.name, pod.name()),
        ("metadata.namespace", metadata.namespace, pod.namespace()),
    ] {
        if found != own {
            return Err(Denial::not_the_pods(field, found));
        }
    }
    labels_are_of_pod(pod, &config.labels)?;
    if Some(config.log_directory.as_str()) != places.log_directory(pod).to_str() {
        let found = config.log_directory.clone();
        return Err(Denial::not_the_pods("log_directory", found));
    }
    Ok(())
}

type Labels = std::collections::BTreeMap<String, String>;

/// The labels by which sandboxes and containers are found again, and by which the gate
/// itself tells whose they are.
fn labels_are_of_pod(pod: &PodIdentity, labels: &Labels) -> Result<(), Denial> {
    for (key, own) in [
        (POD_UID_LABEL, pod.uid()),
        (POD_NAME_LABEL, pod.name()),
        (POD_NAMESPACE_LABEL, pod.namespace()),
    ] {
        same("labels", labels, key, own)?;
    }
    Ok(())
}

fn same(field: &str, labels: &Labels, key: &str, own: &str) -> Result<(), Denial> {
    let found = labels.get(key).map_or("", String::as_str);
    if found == own {
        return Ok(());
    }
    Err(Denial::not_the_pods(format!("{field}.{key}"), found))
}

fn unused(field: &str, value: &str) -> Result<(), Denial> {
    match value {
        "" => Ok(()),
        value => Err(Denial::not_judged(field, value)),
    }
}

/// Which namespaces a sandbox is to have.
pub(crate) fn namespace_options(config: &v1::PodSandboxConfig) -> v1::NamespaceOption {
    let linux = config.linux.as_ref();
    let security = linux.and_then(|linux| linux.security_context.as_ref());
    let options = security.and_then(|security| security.namespace_options.clone());
    options.unwrap_or_default()
}

/// The namespaces of the node that a sandbox or container has, or is to have.
pub(crate) fn namespaces(options: &v1::NamespaceOption) -> Result<Vec<Asked>, Denial> {
    unused("namespace_options.target_id", &options.target_id)?;
    let all = [
        ("network", options.network, Demand::HostNetwork),
        ("pid", options.pid, Demand::HostPid),
        ("ipc", options.ipc, Demand::HostIpc),
    ];
    let mut asked = Vec::new();
    for (name, mode, demand) in all {
        let field = format!("namespace_options.{name}");
        match v1::NamespaceMode::try_from(mode) {
            Ok(v1::NamespaceMode::Node) => asked.push(Asked::new(field, demand)),
            Ok(v1::NamespaceMode::Pod | v1::NamespaceMode::Container) => {}
            // Another container's, or a number of a newer version.
            Ok(v1::NamespaceMode::Target) | Err(_) => {
                return Err(Denial::not_judged(field, mode.to_string()));
            }
        }
    }
    Ok(asked)
}

/// A mount: one of the pod's own directory, and of the node only what is bound there as
/// a hostPath volume of the pod. Whether the pod may have that is asked once more, by
/// the path that the pod names for it: what was opened by that path was judged then.
fn mounted(
    pod: &PodIdentity,
    mount: &v1::Mount,
    volumes: &HeldVolumes,
    places: &Places,
) -> Result<Option<Asked>, Denial> {
    const FIELD: &str = "mounts.host_path";
    if let Some(image) = &mount.image {
        return of_image(mount, image).map(|()| None);
    }
    unused("mounts.image_sub_path", &mount.image_sub_path)?;
    let not_the_pods = || Denial::not_the_pods(FIELD, &mount.host_path);
    let place = places.own_mount(pod.uid(), &mount.host_path);
    let known = |volume: &str| {
        let known = volumes.get(volume);
        known.ok_or_else(|| Denial::UnknownVolume {
            field: FIELD,
            volume: volume.to_owned(),
        })
    };
    let path = match place.ok_or_else(not_the_pods)? {
        OwnMount::PodsAlone => return Ok(None),
        OwnMount::HostPath(volume) => match known(volume)? {
            HeldVolume::HostPath(path) => path,
            // What is bound there is of the node all the same.
            HeldVolume::PodsAlone => return Err(not_the_pods()),
        },
        OwnMount::SubPath(volume) => match known(volume)? {
            HeldVolume::HostPath(path) => path,
            HeldVolume::PodsAlone => return Ok(None),
        },
    };
    if mount.selinux_relabel {
        // It would change files of the node.
        let found = &mount.host_path;
        return Err(Denial::not_judged("mounts.selinux_relabel", found));
    }
    let demand = Demand::HostPath {
        path: path.clone(),
        read_only: mount.readonly,
    };
    Ok(Some(Asked::new(FIELD, demand)))
}

/// A mount of an image: nothing of the node, and nothing that anybody could change. Which
/// image it is matters as little as for a container.
fn of_image(mount: &v1::Mount, image: &v1::ImageSpec) -> Result<(), Denial> {
    unused("mounts.host_path", &mount.host_path)?;
    let path = &mount.image_sub_path;
    if !path.is_empty() && !stays_below(path) {
        return Err(Denial::not_judged("mounts.image_sub_path", path));
    }
    for (field, is_so) in [
        ("mounts.image.image", image.image.is_empty()),
        ("mounts.readonly", !mount.readonly),
        ("mounts.selinux_relabel", mount.selinux_relabel),
        (
            "mounts.propagation",
            mount.propagation() != v1::MountPropagation::PropagationPrivate,
        ),
    ] {
        if is_so {
            return Err(Denial::not_judged(field, &image.image));
        }
    }
    Ok(())
}

fn groups(own: Option<&v1::Int64Value>, others: &[i64]) -> impl Iterator<Item = i64> {
    own.map(|own| own.value).into_iter().chain(others.to_vec())
}

fn selinux(options: Option<&v1::SeLinuxOption>) -> Vec<Asked> {
    let options = options.cloned().unwrap_or_default();
    [
        (SeLinuxOption::Type, options.r#type),
        (SeLinuxOption::User, options.user),
        (SeLinuxOption::Role, options.role),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(option, value)| Asked::new("selinux_options", Demand::SeLinux(option, value)))
    .collect()
}

/// Of the two fields for the profile old runtimes read one and new ones the other, so
/// both are judged. Where the pod has chosen none, the field says `Unconfined` and the
/// text says nothing.
fn seccomp(
    profile: Option<&v1::SecurityProfile>,
    text: &str,
    places: &Places,
) -> Result<Option<Asked>, Denial> {
    const FIELD: &str = "seccomp";
    let local = |path: &str| match places.is_seccomp_profile(path) {
        true => Ok(()),
        false => Err(Denial::not_judged(FIELD, path)),
    };
    match text {
        "" | "runtime/default" => {}
        "unconfined" => return Ok(Some(Asked::new(FIELD, Demand::SeccompUnconfined))),
        text => local(text.strip_prefix("localhost/").unwrap_or(text))?,
    }
    match profile.map(|profile| (profile.profile_type(), &profile.localhost_ref)) {
        Some((ProfileType::RuntimeDefault, _)) => Ok(None),
        Some((ProfileType::Localhost, path)) => local(path).map(|()| None),
        Some((ProfileType::Unconfined, _)) | None => {
            Ok(Some(Asked::new(FIELD, Demand::SeccompUnset)))
        }
    }
}

fn apparmor(profile: Option<&v1::SecurityProfile>, text: &str) -> Option<Asked> {
    let is_unconfined = text == "unconfined"
        || profile.is_some_and(|profile| profile.profile_type() == ProfileType::Unconfined);
    is_unconfined.then(|| Asked::new("apparmor", Demand::AppArmorUnconfined))
}

#[cfg(test)]
mod tests;
