//! Security contexts of sandboxes and containers: the pod's, overridden by the
//! container's, with the kubelet's defaults for what neither states.

use std::path::{Component, Path};

use cri::v1::security_profile::ProfileType;
use cri::v1::{
    Capability, Int64Value, LinuxContainerSecurityContext, LinuxSandboxSecurityContext,
    NamespaceMode, NamespaceOption, SeLinuxOption, SecurityProfile, SupplementalGroupsPolicy,
};
use node_layout::IdRange;
use pod::core::{
    AppArmorProfile, Container, PodSecurityContext, SELinuxOptions, SeccompProfile, SecurityContext,
};
use pod::{Pod, PodExt, capability, ephemeral};

use crate::error::BuildError;
use crate::node_facts::NodeFacts;
use crate::user_namespace::user_namespace;

/// Where Localhost seccomp profiles are, below the root directory.
const SECCOMP_PROFILES: &str = "seccomp";

/// The annotation that named a container's AppArmor profile before there was a field.
const APPARMOR_ANNOTATION_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

/// What a container does not see of `/proc` and `/sys` unless it asks for it: what
/// tells about the machine or its other processes. It replaces the runtime's own list, so
/// it has what was added there since: the use of power tells what others compute, and so do
/// interrupts.
pub const MASKED_PATHS: [&str; 12] = [
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

/// What it sees but cannot change.
pub const READONLY_PATHS: [&str; 6] = [
    "/proc/asound",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Whom an image wants to run as, when the pod does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageUser {
    /// A number; root when the image says nothing.
    Uid(i64),
    /// A name in the image's own user file.
    Name(String),
}

impl ImageUser {
    /// The user of an image as the runtime reports it.
    pub fn of(image: &cri::v1::Image) -> ImageUser {
        match &image.uid {
            Some(uid) => ImageUser::Uid(uid.value),
            None if !image.username.is_empty() => ImageUser::Name(image.username.clone()),
            None => ImageUser::Uid(0),
        }
    }
}

/// What a sandbox gets.
pub(super) fn sandbox_security(
    pod: &Pod,
    ids: Option<IdRange>,
) -> Result<LinuxSandboxSecurityContext, BuildError> {
    let own = pod.spec_or_default().security_context.as_ref();
    let privileged = pod
        .all_containers()
        .any(|(_, container)| is_privileged(container))
        || ephemeral::containers(pod).any(|container| is_privileged(&container));
    Ok(LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod, ids)?),
        selinux_options: own
            .and_then(|own| own.se_linux_options.as_ref())
            .map(selinux),
        run_as_user: own.and_then(|own| own.run_as_user).map(int64),
        run_as_group: own.and_then(|own| own.run_as_group).map(int64),
        supplemental_groups: supplemental_groups(own),
        supplemental_groups_policy: groups_policy(own)?.into(),
        privileged,
        seccomp: Some(SecurityProfile {
            profile_type: ProfileType::RuntimeDefault.into(),
            localhost_ref: String::new(),
        }),
        seccomp_profile_path: "runtime/default".to_owned(),
        ..LinuxSandboxSecurityContext::default()
    })
}

/// What a container gets. Fails when it must not run as root and would.
pub(super) fn container_security(
    pod: &Pod,
    container: &Container,
    image_user: &ImageUser,
    (node, ids): (&NodeFacts, Option<IdRange>),
) -> Result<LinuxContainerSecurityContext, BuildError> {
    check_non_root(pod, container, image_user)?;
    let of_pod = pod.spec_or_default().security_context.as_ref();
    let own = container.security_context.as_ref();
    let run_as_user = run_as_user(of_pod, own);
    let (run_as_user, run_as_username) = match (run_as_user, image_user) {
        (Some(uid), _) | (None, &ImageUser::Uid(uid)) => (Some(int64(uid)), String::new()),
        (None, ImageUser::Name(name)) => (None, name.clone()),
    };
    let unmasked = own
        .and_then(|own| own.proc_mount.as_deref())
        .is_some_and(|mount| mount == "Unmasked");
    let paths = |paths: &[&str]| {
        if unmasked {
            Vec::new()
        } else {
            paths.iter().map(|&path| path.to_owned()).collect()
        }
    };
    let seccomp = own
        .and_then(|own| own.seccomp_profile.as_ref())
        .or_else(|| of_pod.and_then(|of_pod| of_pod.seccomp_profile.as_ref()));
    let (seccomp, seccomp_profile_path) = seccomp_profile(seccomp, node)?;
    let (apparmor, apparmor_profile) = apparmor(pod, container);
    let selinux_options = own
        .and_then(|own| own.se_linux_options.as_ref())
        .or_else(|| of_pod.and_then(|of_pod| of_pod.se_linux_options.as_ref()))
        .map(selinux);
    let run_as_group = own
        .and_then(|own| own.run_as_group)
        .or_else(|| of_pod.and_then(|of_pod| of_pod.run_as_group))
        .map(int64);
    Ok(LinuxContainerSecurityContext {
        capabilities: capabilities(container)?,
        privileged: is_privileged(container),
        namespace_options: Some(namespaces(pod, ids)?),
        selinux_options,
        run_as_user,
        run_as_group,
        run_as_username,
        readonly_rootfs: own
            .and_then(|own| own.read_only_root_filesystem)
            .unwrap_or(false),
        supplemental_groups: supplemental_groups(of_pod),
        supplemental_groups_policy: groups_policy(of_pod)?.into(),
        no_new_privs: own.and_then(|own| own.allow_privilege_escalation) == Some(false),
        masked_paths: paths(&MASKED_PATHS),
        readonly_paths: paths(&READONLY_PATHS),
        seccomp: Some(seccomp),
        seccomp_profile_path,
        apparmor,
        apparmor_profile,
    })
}

fn is_privileged(container: &Container) -> bool {
    container
        .security_context
        .as_ref()
        .and_then(|own| own.privileged)
        == Some(true)
}

fn run_as_user(of_pod: Option<&PodSecurityContext>, own: Option<&SecurityContext>) -> Option<i64> {
    own.and_then(|own| own.run_as_user)
        .or_else(|| of_pod.and_then(|of_pod| of_pod.run_as_user))
}

/// Numbers are all that can be checked: what a name means only the image knows.
fn check_non_root(
    pod: &Pod,
    container: &Container,
    image_user: &ImageUser,
) -> Result<(), BuildError> {
    let of_pod = pod.spec_or_default().security_context.as_ref();
    let own = container.security_context.as_ref();
    let required = own
        .and_then(|own| own.run_as_non_root)
        .or_else(|| of_pod.and_then(|of_pod| of_pod.run_as_non_root));
    if required != Some(true) {
        return Ok(());
    }
    let reason = match (run_as_user(of_pod, own), image_user) {
        (Some(0), _) => "container's runAsUser breaks non-root policy".to_owned(),
        (None, ImageUser::Uid(0)) => {
            "container has runAsNonRoot and image will run as root".to_owned()
        }
        (None, ImageUser::Name(name)) => format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify \
             user is non-root"
        ),
        (Some(_), _) | (None, ImageUser::Uid(_)) => return Ok(()),
    };
    let pod = format!("{}_{}({})", pod.name(), pod.namespace(), pod.uid());
    Err(BuildError::RunsAsRoot {
        reason,
        pod,
        container: container.name.clone(),
    })
}

/// Has a container see the processes of another one, where it would see its own alone.
pub(super) fn see_processes_of(id: &str, context: &mut LinuxContainerSecurityContext) {
    let namespaces = context.namespace_options.as_mut();
    if let Some(own) = namespaces.filter(|it| it.pid() == NamespaceMode::Container) {
        own.set_pid(NamespaceMode::Target);
        id.clone_into(&mut own.target_id);
    }
}

fn namespaces(pod: &Pod, ids: Option<IdRange>) -> Result<NamespaceOption, BuildError> {
    let node_or_pod = |node| {
        if node {
            NamespaceMode::Node
        } else {
            NamespaceMode::Pod
        }
    };
    let pid = if pod.host_pid() {
        NamespaceMode::Node
    } else if pod.share_process_namespace() {
        NamespaceMode::Pod
    } else {
        NamespaceMode::Container
    };
    Ok(NamespaceOption {
        network: node_or_pod(pod.host_network()).into(),
        pid: pid.into(),
        ipc: node_or_pod(pod.host_ipc()).into(),
        target_id: String::new(),
        userns_options: user_namespace(pod, ids)?,
    })
}

fn int64(value: i64) -> Int64Value {
    Int64Value { value }
}

/// The group of the pod's volumes first, then the others.
fn supplemental_groups(of_pod: Option<&PodSecurityContext>) -> Vec<i64> {
    let volumes = of_pod.and_then(|of_pod| of_pod.fs_group);
    let others = of_pod.and_then(|of_pod| of_pod.supplemental_groups.as_ref());
    volumes
        .into_iter()
        .chain(others.into_iter().flatten().copied())
        .collect()
}

fn groups_policy(
    of_pod: Option<&PodSecurityContext>,
) -> Result<SupplementalGroupsPolicy, BuildError> {
    const FIELD: &str = "spec.securityContext.supplementalGroupsPolicy";
    match of_pod.and_then(|of_pod| of_pod.supplemental_groups_policy.as_deref()) {
        None | Some("Merge") => Ok(SupplementalGroupsPolicy::Merge),
        Some("Strict") => Ok(SupplementalGroupsPolicy::Strict),
        Some(other) => Err(BuildError::invalid(
            FIELD,
            format!("{other:?} is no policy"),
        )),
    }
}

fn selinux(options: &SELinuxOptions) -> SeLinuxOption {
    SeLinuxOption {
        user: options.user.clone().unwrap_or_default(),
        role: options.role.clone().unwrap_or_default(),
        r#type: options.type_.clone().unwrap_or_default(),
        level: options.level.clone().unwrap_or_default(),
    }
}

/// By their plain names: runtimes silently leave out a name that they do not know, and most
/// know none with `CAP_`.
fn capabilities(container: &Container) -> Result<Option<Capability>, BuildError> {
    let own = container.security_context.as_ref();
    let Some(capabilities) = own.and_then(|own| own.capabilities.as_ref()) else {
        return Ok(None);
    };
    let plain = |field: &str, names: &Option<Vec<String>>| {
        let names = names.iter().flatten().enumerate();
        let names = names.map(|(index, name)| {
            capability::known(name).ok_or_else(|| {
                let of = &container.name;
                BuildError::invalid(
                    format!("container {of:?}: securityContext.capabilities.{field}[{index}]"),
                    format!("{name:?} is not a capability of Linux"),
                )
            })
        });
        names.collect::<Result<_, _>>()
    };
    Ok(Some(Capability {
        add_capabilities: plain("add", &capabilities.add)?,
        drop_capabilities: plain("drop", &capabilities.drop)?,
        add_ambient_capabilities: Vec::new(),
    }))
}

/// The profile, and the text that runtimes before the field read. Who chooses none gets
/// the node's default.
fn seccomp_profile(
    profile: Option<&SeccompProfile>,
    node: &NodeFacts,
) -> Result<(SecurityProfile, String), BuildError> {
    const FIELD: &str = "seccompProfile.type";
    let (profile_type, path) = match profile.map(|profile| profile.type_.as_str()) {
        None if !node.seccomp_default => (ProfileType::Unconfined, String::new()),
        None | Some("RuntimeDefault") => {
            (ProfileType::RuntimeDefault, "runtime/default".to_owned())
        }
        Some("Unconfined") => (ProfileType::Unconfined, "unconfined".to_owned()),
        Some("Localhost") => {
            let name = profile.and_then(|profile| profile.localhost_profile.as_deref());
            let file = localhost_profile(&node.root_dir, name.unwrap_or_default())?;
            let profile = SecurityProfile {
                profile_type: ProfileType::Localhost.into(),
                localhost_ref: file.clone(),
            };
            return Ok((profile, format!("localhost/{file}")));
        }
        Some(other) => return Err(BuildError::invalid(FIELD, format!("{other:?} is no type"))),
    };
    let profile = SecurityProfile {
        profile_type: profile_type.into(),
        localhost_ref: String::new(),
    };
    Ok((profile, path))
}

/// A profile's file; its name cannot lead out of the directory of profiles.
fn localhost_profile(root_dir: &Path, name: &str) -> Result<String, BuildError> {
    let descends = Path::new(name)
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    if name.is_empty() || !descends {
        let reason = format!("{name:?} must be a relative path without '..'");
        return Err(BuildError::invalid(
            "seccompProfile.localhostProfile",
            reason,
        ));
    }
    Ok(root_dir
        .join(SECCOMP_PROFILES)
        .join(name)
        .display()
        .to_string())
}

/// The profile by field, container's before pod's, or by annotation; and the text that
/// runtimes before the field read.
fn apparmor(pod: &Pod, container: &Container) -> (Option<SecurityProfile>, String) {
    let of_pod = pod.spec_or_default().security_context.as_ref();
    let field = container
        .security_context
        .as_ref()
        .and_then(|own| own.app_armor_profile.as_ref())
        .or_else(|| of_pod.and_then(|of_pod| of_pod.app_armor_profile.as_ref()));
    let text = match field {
        Some(profile) => apparmor_text(profile),
        None => {
            let key = format!("{APPARMOR_ANNOTATION_PREFIX}{}", container.name);
            pod.annotation(&key).unwrap_or_default().to_owned()
        }
    };
    let (profile_type, localhost_ref) = match text.split_once('/') {
        Some(("runtime", "default")) => (ProfileType::RuntimeDefault, ""),
        Some(("localhost", name)) => (ProfileType::Localhost, name),
        None if text == "unconfined" => (ProfileType::Unconfined, ""),
        _ => return (None, text),
    };
    let localhost_ref = localhost_ref.to_owned();
    (
        Some(SecurityProfile {
            profile_type: profile_type.into(),
            localhost_ref,
        }),
        text,
    )
}

fn apparmor_text(profile: &AppArmorProfile) -> String {
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("RuntimeDefault", _) => "runtime/default".to_owned(),
        ("Localhost", Some(name)) => format!("localhost/{name}"),
        ("Unconfined", _) => "unconfined".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
