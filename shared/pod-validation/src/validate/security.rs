//! Security contexts of pods and containers, and what an operating system does
//! not have.

use std::collections::HashSet;

use pod::core::{
    AppArmorProfile, Container, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext,
};

use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::list;

pub(super) fn pod(spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    if spec.host_users != Some(false) {
        each_context(spec, path, |context, path| {
            if let Some(mode @ "Unmasked") = context.proc_mount.as_deref() {
                let detail = "`hostUsers` must be false to use `Unmasked`";
                errors.invalid(path.child("procMount"), mode, detail);
            }
        });
    }
    if spec.host_users == Some(false) {
        for (name, is_nodes) in [
            ("hostPID", spec.host_pid),
            ("hostIPC", spec.host_ipc),
            ("hostNetwork", spec.host_network),
        ] {
            if is_nodes == Some(true) {
                errors.forbidden(path.child(name), "when `hostUsers` is false");
            }
        }
    }
    let path = path.child("securityContext");
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        let detail = "cannot be combined with hostPID";
        errors.invalid(path.child("shareProcessNamespace"), true, detail);
    }
    let Some(context) = &spec.security_context else {
        return;
    };
    for (name, id) in [
        ("fsGroup", context.fs_group),
        ("runAsUser", context.run_as_user),
        ("runAsGroup", context.run_as_group),
    ] {
        id_number(id, path.child(name), errors);
    }
    let groups = path.child("supplementalGroups");
    for (index, group) in list(&context.supplemental_groups).iter().enumerate() {
        id_number(Some(*group), groups.index(index), errors);
    }
    sysctls(context, path.child("sysctls"), errors);
    for (name, value, values) in [
        (
            "fsGroupChangePolicy",
            &context.fs_group_change_policy,
            &["Always", "OnRootMismatch"] as &[&'static str],
        ),
        (
            "supplementalGroupsPolicy",
            &context.supplemental_groups_policy,
            &["Merge", "Strict"],
        ),
        (
            "seLinuxChangePolicy",
            &context.se_linux_change_policy,
            &["MountOption", "Recursive"],
        ),
    ] {
        if let Some(value) = value.as_deref().filter(|value| !values.contains(value)) {
            errors.not_supported(path.child(name), value, values);
        }
    }
    seccomp(
        context.seccomp_profile.as_ref(),
        path.child("seccompProfile"),
        errors,
    );
    app_armor(
        context.app_armor_profile.as_ref(),
        path.child("appArmorProfile"),
        errors,
    );
}

fn sysctls(context: &PodSecurityContext, path: Path<'_>, errors: &mut Errors) {
    let mut names = HashSet::new();
    for (index, sysctl) in list(&context.sysctls).iter().enumerate() {
        let sysctl_path = path.index(index);
        let field = sysctl_path.child("name");
        if sysctl.name.is_empty() {
            errors.required(field, "");
        } else if let Some(problem) = formats::sysctl_name(&sysctl.name) {
            errors.invalid(field, &sysctl.name, problem);
        } else if !names.insert(&sysctl.name) {
            errors.duplicate(field, &sysctl.name);
        }
    }
}

pub(super) fn container(container: &Container, path: Path<'_>, errors: &mut Errors) {
    let Some(context) = &container.security_context else {
        return;
    };
    id_number(context.run_as_user, path.child("runAsUser"), errors);
    id_number(context.run_as_group, path.child("runAsGroup"), errors);
    if let Some(mode) = &context.proc_mount {
        errors.one_of(path.child("procMount"), mode, &["Default", "Unmasked"]);
    }
    seccomp(
        context.seccomp_profile.as_ref(),
        path.child("seccompProfile"),
        errors,
    );
    app_armor(
        context.app_armor_profile.as_ref(),
        path.child("appArmorProfile"),
        errors,
    );
    if context.allow_privilege_escalation == Some(false) {
        escalation(context, path, errors);
    }
}

fn escalation(context: &SecurityContext, path: Path<'_>, errors: &mut Errors) {
    if context.privileged == Some(true) {
        errors.invalid(
            path,
            "",
            "a privileged container can escalate its privileges",
        );
    }
    let added = context
        .capabilities
        .iter()
        .flat_map(|capabilities| list(&capabilities.add));
    // Only with its prefix, as the API server has it.
    if added
        .into_iter()
        .any(|capability| capability == "CAP_SYS_ADMIN")
    {
        errors.invalid(
            path,
            "",
            "a container with CAP_SYS_ADMIN can escalate its privileges",
        );
    }
}

fn id_number(id: Option<i64>, path: Path<'_>, errors: &mut Errors) {
    if let Some(id) = id
        && let Some(problem) = formats::user_id(id)
    {
        errors.invalid(path, id, problem);
    }
}

fn seccomp(profile: Option<&SeccompProfile>, path: Path<'_>, errors: &mut Errors) {
    let Some(profile) = profile else { return };
    let kinds = &["Localhost", "RuntimeDefault", "Unconfined"];
    errors.one_of(path.child("type"), &profile.type_, kinds);
    let file = path.child("localhostProfile");
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("Localhost", None) => errors.required(file, "type Localhost needs it"),
        // A kubelet once took it for no profile at all (CVE-2023-2431).
        ("Localhost", Some(name)) if name.is_empty() => {
            errors.required(file, "type Localhost needs it");
        }
        ("Localhost", Some(name)) => {
            errors.invalid_if(file, name, formats::descending_path(name));
        }
        (_, Some(name)) => errors.invalid(file, name, "only for type Localhost"),
        (_, None) => {}
    }
}

fn app_armor(profile: Option<&AppArmorProfile>, path: Path<'_>, errors: &mut Errors) {
    let Some(profile) = profile else { return };
    let kinds = &["Localhost", "RuntimeDefault", "Unconfined"];
    errors.one_of(path.child("type"), &profile.type_, kinds);
    let file = path.child("localhostProfile");
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("Localhost", None) => errors.required(file, "type Localhost needs it"),
        ("Localhost", Some(name)) if name.trim() != name => {
            errors.invalid(file, name, "must not begin or end with white space");
        }
        ("Localhost", Some(name)) if name.is_empty() => errors.required(file, ""),
        ("Localhost", Some(_)) | (_, None) => {}
        (_, Some(name)) => errors.invalid(file, name, "only for type Localhost"),
    }
}

/// A pod that is marked for Windows has nothing of Linux.
pub(super) fn windows_only(spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    let detail = "not for a Windows pod";
    for (name, present) in [
        ("hostUsers", spec.host_users.is_some()),
        ("hostPID", spec.host_pid == Some(true)),
        ("hostIPC", spec.host_ipc == Some(true)),
        (
            "shareProcessNamespace",
            spec.share_process_namespace.is_some(),
        ),
    ] {
        if present {
            errors.forbidden(path.child(name), detail);
        }
    }
    if let Some(context) = &spec.security_context {
        let path = path.child("securityContext");
        for (name, present) in [
            ("appArmorProfile", context.app_armor_profile.is_some()),
            ("seLinuxOptions", context.se_linux_options.is_some()),
            (
                "seLinuxChangePolicy",
                context.se_linux_change_policy.is_some(),
            ),
            ("seccompProfile", context.seccomp_profile.is_some()),
            ("fsGroup", context.fs_group.is_some()),
            (
                "fsGroupChangePolicy",
                context.fs_group_change_policy.is_some(),
            ),
            ("sysctls", !list(&context.sysctls).is_empty()),
            ("runAsUser", context.run_as_user.is_some()),
            ("runAsGroup", context.run_as_group.is_some()),
            ("supplementalGroups", context.supplemental_groups.is_some()),
            (
                "supplementalGroupsPolicy",
                context.supplemental_groups_policy.is_some(),
            ),
        ] {
            if present {
                errors.forbidden(path.child(name), detail);
            }
        }
    }
    each_context(spec, path, |context, path| {
        for (name, present) in [
            ("appArmorProfile", context.app_armor_profile.is_some()),
            ("seLinuxOptions", context.se_linux_options.is_some()),
            ("seccompProfile", context.seccomp_profile.is_some()),
            ("capabilities", context.capabilities.is_some()),
            (
                "readOnlyRootFilesystem",
                context.read_only_root_filesystem.is_some(),
            ),
            ("privileged", context.privileged.is_some()),
            (
                "allowPrivilegeEscalation",
                context.allow_privilege_escalation.is_some(),
            ),
            ("procMount", context.proc_mount.is_some()),
            ("runAsUser", context.run_as_user.is_some()),
            ("runAsGroup", context.run_as_group.is_some()),
        ] {
            if present {
                errors.forbidden(path.child(name), detail);
            }
        }
    });
}

/// Calls `action` with each container's security context and its path.
fn each_context(
    spec: &PodSpec,
    path: Path<'_>,
    mut action: impl FnMut(&SecurityContext, Path<'_>),
) {
    for (name, containers) in [
        ("initContainers", list(&spec.init_containers)),
        ("containers", spec.containers.as_slice()),
    ] {
        let containers_path = path.child(name);
        for (index, container) in containers.iter().enumerate() {
            let container_path = containers_path.index(index);
            if let Some(context) = &container.security_context {
                action(context, container_path.child("securityContext"));
            }
        }
    }
}
