//! Security contexts of pods and containers, and the annotations that older clients
//! use instead.

use pod::Pod;
use pod::capability::{ALL, plain_name};
use pod::core::{
    AppArmorProfile, Capabilities, PodSecurityContext, PodSpec, SELinuxOptions, SeccompProfile,
    SecurityContext, WindowsSecurityContextOptions,
};

use super::list::{ContainerView, Demands};
use crate::demand::{Demand, SeLinuxOption};

/// Annotations of AppArmor and seccomp: the container's name, or `pod`, follows.
const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_ANNOTATIONS: [&str; 2] = [
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
];

/// Values of these annotations, besides `localhost/...`, that ask for no less than the
/// runtime's default.
const DEFAULT_PROFILES: [&str; 3] = ["", "runtime/default", "docker/default"];

pub(super) fn annotations(pod: &Pod, demands: &mut Demands) {
    for (key, value) in pod.metadata.annotations.iter().flatten() {
        let demand = if key.starts_with(APP_ARMOR_ANNOTATION) {
            Demand::AppArmorUnconfined
        } else if SECCOMP_ANNOTATIONS
            .iter()
            .any(|prefix| key.starts_with(prefix))
        {
            Demand::SeccompUnconfined
        } else {
            continue;
        };
        let is_profile =
            DEFAULT_PROFILES.contains(&value.as_str()) || value.starts_with("localhost/");
        if !is_profile {
            demands.of_pod(format!("metadata.annotations[{key}]"), demand);
        }
    }
}

/// What a pod's security context says for its containers too.
pub(super) struct PodContext<'a> {
    context: Option<&'a PodSecurityContext>,
    /// With user namespaces, root in a container is nobody on the node.
    has_user_namespace: bool,
    runs_as_non_root: bool,
    chooses_seccomp: bool,
}

impl<'a> PodContext<'a> {
    pub(super) fn of(spec: &'a PodSpec) -> PodContext<'a> {
        let context = spec.security_context.as_ref();
        PodContext {
            context,
            has_user_namespace: spec.host_users == Some(false),
            runs_as_non_root: context.and_then(|context| context.run_as_non_root) == Some(true),
            chooses_seccomp: context.is_some_and(|context| context.seccomp_profile.is_some()),
        }
    }

    /// What the pod itself asks for. A value that each container overrides counts too,
    /// as in the Standards.
    pub(super) fn demands(&self, demands: &mut Demands) {
        let Some(context) = self.context else { return };
        let PodSecurityContext {
            app_armor_profile,
            fs_group,
            fs_group_change_policy: _,
            run_as_group,
            run_as_non_root,
            run_as_user,
            se_linux_change_policy: _,
            se_linux_options,
            seccomp_profile,
            supplemental_groups,
            supplemental_groups_policy: _,
            sysctls,
            windows_options,
        } = context;
        let mut add = |field: &str, demand| {
            demands.of_pod(format!("spec.securityContext.{field}"), demand);
        };
        shared_demands(
            &Shared {
                app_armor: app_armor_profile.as_ref(),
                seccomp: seccomp_profile.as_ref(),
                se_linux: se_linux_options.as_ref(),
                windows: windows_options.as_ref(),
                run_as_user: *run_as_user,
                run_as_group: *run_as_group,
                has_user_namespace: self.has_user_namespace,
            },
            &mut add,
        );
        if *run_as_non_root == Some(false) && !self.has_user_namespace {
            add("runAsNonRoot", Demand::MayRunAsRoot);
        }
        if let Some(group) = fs_group {
            add("fsGroup", Demand::Group(*group));
        }
        for (index, group) in supplemental_groups.iter().flatten().enumerate() {
            add(
                &format!("supplementalGroups[{index}]"),
                Demand::Group(*group),
            );
        }
        for (index, sysctl) in sysctls.iter().flatten().enumerate() {
            add(
                &format!("sysctls[{index}].name"),
                Demand::sysctl(&sysctl.name),
            );
        }
    }

    pub(super) fn container_demands(&self, container: &ContainerView<'_>, demands: &mut Demands) {
        let empty = SecurityContext::default();
        let SecurityContext {
            allow_privilege_escalation,
            app_armor_profile,
            capabilities,
            privileged,
            proc_mount,
            read_only_root_filesystem: _,
            run_as_group,
            run_as_non_root,
            run_as_user,
            se_linux_options,
            seccomp_profile,
            windows_options,
        } = container.security_context.unwrap_or(&empty);
        let mut add = |field: &str, demand| {
            demands.of_container(container, &format!("securityContext.{field}"), demand);
        };
        if *privileged == Some(true) {
            add("privileged", Demand::Privileged);
        }
        if *allow_privilege_escalation != Some(false) {
            add("allowPrivilegeEscalation", Demand::PrivilegeEscalation);
        }
        let is_non_root = run_as_non_root.unwrap_or(self.runs_as_non_root);
        if !is_non_root && !self.has_user_namespace {
            add("runAsNonRoot", Demand::MayRunAsRoot);
        }
        let is_unmasked = proc_mount.as_deref().is_some_and(|kind| kind != "Default");
        match (is_unmasked, self.has_user_namespace) {
            (true, false) => add("procMount", Demand::UnmaskedProc),
            (true, true) => add("procMount", Demand::UnmaskedProcOfOwnUsers),
            (false, _) => {}
        }
        if seccomp_profile.is_none() && !self.chooses_seccomp {
            add("seccompProfile", Demand::SeccompUnset);
        }
        capability_demands(capabilities.as_ref(), &mut add);
        shared_demands(
            &Shared {
                app_armor: app_armor_profile.as_ref(),
                seccomp: seccomp_profile.as_ref(),
                se_linux: se_linux_options.as_ref(),
                windows: windows_options.as_ref(),
                run_as_user: *run_as_user,
                run_as_group: *run_as_group,
                has_user_namespace: self.has_user_namespace,
            },
            &mut add,
        );
    }
}

fn capability_demands(capabilities: Option<&Capabilities>, add: &mut impl FnMut(&str, Demand)) {
    let empty = Capabilities::default();
    let Capabilities { add: added, drop } = capabilities.unwrap_or(&empty);
    if !drop.iter().flatten().any(|name| plain_name(name) == ALL) {
        add("capabilities.drop", Demand::DefaultCapabilities);
    }
    for (index, name) in added.iter().flatten().enumerate() {
        add(
            &format!("capabilities.add[{index}]"),
            Demand::capability(name),
        );
    }
}

/// What pods and containers say with the same fields.
struct Shared<'a> {
    app_armor: Option<&'a AppArmorProfile>,
    seccomp: Option<&'a SeccompProfile>,
    se_linux: Option<&'a SELinuxOptions>,
    windows: Option<&'a WindowsSecurityContextOptions>,
    run_as_user: Option<i64>,
    run_as_group: Option<i64>,
    has_user_namespace: bool,
}

fn shared_demands(shared: &Shared<'_>, add: &mut impl FnMut(&str, Demand)) {
    if let Some(profile) = shared.app_armor
        && !is_confined(&profile.type_)
    {
        add("appArmorProfile.type", Demand::AppArmorUnconfined);
    }
    if let Some(profile) = shared.seccomp
        && !is_confined(&profile.type_)
    {
        add("seccompProfile.type", Demand::SeccompUnconfined);
    }
    if let Some(options) = shared.se_linux {
        let SELinuxOptions {
            level: _,
            role,
            type_,
            user,
        } = options;
        for (field, option, value) in [
            ("type", SeLinuxOption::Type, type_),
            ("user", SeLinuxOption::User, user),
            ("role", SeLinuxOption::Role, role),
        ] {
            if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
                let field = format!("seLinuxOptions.{field}");
                add(&field, Demand::SeLinux(option, value.clone()));
            }
        }
    }
    if shared.windows.and_then(|options| options.host_process) == Some(true) {
        add("windowsOptions.hostProcess", Demand::WindowsHostProcess);
    }
    match shared.run_as_user {
        Some(0) if shared.has_user_namespace => {}
        Some(user) => add("runAsUser", Demand::User(user)),
        None => {}
    }
    if let Some(group) = shared.run_as_group {
        add("runAsGroup", Demand::Group(group));
    }
}

/// Whether a profile's type is one that the Standards allow: a profile that the owner of
/// the node put there (`Localhost`) is as good as the runtime's.
fn is_confined(type_: &str) -> bool {
    matches!(type_, "RuntimeDefault" | "Localhost")
}
