//! What Bulkhead does not do yet, and what a static pod cannot have. Such a pod
//! is refused with the field's path: no field is ever silently ignored.
//!
//! The types are taken apart completely, so a field that a new version of the
//! API brings does not compile until somebody decides about it here.

pub(crate) mod api_pods;
mod containers;
mod metadata;
mod refuse;
mod volumes;

use pod::core::{Container, PodSecurityContext, PodSpec, ResourceRequirements};
use pod::{Pod, ephemeral};

use refuse::refuse;

use crate::field::{Errors, FieldError, Path};
use crate::optional::{list, text};

/// The service account that every namespace has; naming it asks for nothing.
const DEFAULT_SERVICE_ACCOUNT: &str = "default";

/// Everything that the pod asks for and Bulkhead does not do.
pub fn unsupported_fields(pod: &Pod) -> Vec<FieldError> {
    unsupported_fields_at(pod, "")
}

/// Everything in its metadata that a pod cannot have that comes from a manifest: what
/// only an API server can honour.
pub fn static_pod_restrictions(pod: &Pod) -> Vec<FieldError> {
    static_pod_restrictions_at(pod, "")
}

/// As [`unsupported_fields`], with a prefix for the paths of fields.
pub fn unsupported_fields_at(pod: &Pod, prefix: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec_root = format!("{prefix}spec");
    if let Some(spec) = &pod.spec {
        pod_spec(spec, Path::Root(&spec_root), &mut errors);
    }
    errors.into_vec()
}

/// As [`static_pod_restrictions`], with a prefix for the paths of fields.
pub fn static_pod_restrictions_at(pod: &Pod, prefix: &str) -> Vec<FieldError> {
    let Pod {
        metadata,
        // The same for pods of all sources.
        spec: _,
        // What a manifest says of it is dropped: only the node knows it.
        status: _,
    } = pod;
    let mut errors = Errors::default();
    let metadata_root = format!("{prefix}metadata");
    metadata::forbidden(metadata, Path::Root(&metadata_root), &mut errors);
    errors.into_vec()
}

#[expect(
    clippy::too_many_lines,
    reason = "every field is named, so that a new one cannot be forgotten"
)]
fn pod_spec(spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    let PodSpec {
        active_deadline_seconds: _,
        // Required node affinity is checked at admission; the rest is advice to a
        // scheduler.
        affinity: _,
        // Without an API server there is no token to mount.
        automount_service_account_token: _,
        containers,
        dns_config: _,
        dns_policy: _,
        enable_service_links: _,
        ephemeral_containers,
        // Told to controllers that evict.
        eviction_responders: _,
        host_aliases: _,
        host_ipc: _,
        host_network: _,
        host_pid: _,
        // Not everywhere: asked of the runtime when the pod is to be made.
        host_users: _,
        hostname: _,
        hostname_override: _,
        // Secrets of the node.
        image_pull_secrets: _,
        init_containers,
        node_name: _,
        node_selector: _,
        os: _,
        // As the pod's runtime class says.
        overhead: _,
        preemption_policy: _,
        priority: _,
        priority_class_name: _,
        readiness_gates,
        resource_claims,
        resources,
        restart_policy: _,
        // One of the node's configuration.
        runtime_class_name: _,
        scheduler_name: _,
        scheduling_gates,
        // Told to a scheduler.
        scheduling_group: _,
        security_context,
        // Follows service_account_name.
        service_account: _,
        service_account_name,
        set_hostname_as_fqdn: _,
        share_process_namespace: _,
        subdomain: _,
        termination_grace_period_seconds: _,
        tolerations: _,
        topology_spread_constraints: _,
        volumes,
    } = spec;
    let account = text(service_account_name);
    refuse(
        &[
            ("readinessGates", !list(readiness_gates).is_empty()),
            ("resourceClaims", !list(resource_claims).is_empty()),
            ("schedulingGates", !list(scheduling_gates).is_empty()),
            (
                "serviceAccountName",
                !["", DEFAULT_SERVICE_ACCOUNT].contains(&account),
            ),
        ],
        path,
        errors,
    );
    if let Some(context) = security_context {
        self::security_context(context, path.child("securityContext"), errors);
    }
    if let Some(ResourceRequirements {
        // Forbidden by an API server.
        claims: _,
        limits: _,
        requests: _,
    }) = resources
    {}
    all_containers(list(init_containers), path.child("initContainers"), errors);
    all_containers(containers, path.child("containers"), errors);
    let listed = list(ephemeral_containers).iter();
    let ephemeral: Vec<Container> = listed.map(ephemeral::as_container).collect();
    all_containers(&ephemeral, path.child("ephemeralContainers"), errors);
    let volumes_path = path.child("volumes");
    for (index, volume) in list(volumes).iter().enumerate() {
        volumes::volume(volume, volumes_path.index(index), errors);
    }
}

fn all_containers(containers: &[Container], path: Path<'_>, errors: &mut Errors) {
    for (index, container) in containers.iter().enumerate() {
        containers::container(container, path.index(index), errors);
    }
}

fn security_context(context: &PodSecurityContext, path: Path<'_>, errors: &mut Errors) {
    let PodSecurityContext {
        app_armor_profile: _,
        fs_group: _,
        fs_group_change_policy: _,
        run_as_group: _,
        run_as_non_root: _,
        run_as_user: _,
        // How volumes of others get the label: there are none of these.
        se_linux_change_policy: _,
        se_linux_options: _,
        seccomp_profile: _,
        supplemental_groups: _,
        supplemental_groups_policy: _,
        sysctls: _,
        windows_options,
    } = context;
    refuse(
        &[("windowsOptions", windows_options.is_some())],
        path,
        errors,
    );
}

#[cfg(test)]
mod tests;
