//! The rules that an API server (1.26) applies to a pod that is created,
//! defaults already applied. Field paths are the API server's, including the
//! few that leave an index out.
//!
//! What `support` refuses whatever it says (most kinds of volumes, block devices, gates)
//! has no rules here: they could only add to a refusal.
//!
//! One topic per module; this one has the pod as a whole.

mod containers;
mod env_files;
mod environment;
pub(crate) mod ephemeral;
mod metadata;
mod mounts;
mod network;
mod only_one;
mod probes;
mod profile_annotations;
mod projections;
mod resize_policies;
pub(crate) mod resources;
mod scheduling;
mod security;
mod volumes;

use pod::Pod;
use pod::core::PodSpec;

use crate::field::{Errors, FieldError, Path};
use crate::formats;
use crate::optional::{list, text};

/// Everything that is wrong with a pod, by the API server's rules.
pub fn validate(pod: &Pod) -> Vec<FieldError> {
    validate_at(pod, "")
}

/// As `validate`, with a prefix for the paths of fields.
pub fn validate_at(pod: &Pod, prefix: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let metadata_root = format!("{prefix}metadata");
    let spec_root = format!("{prefix}spec");
    let default_spec = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&default_spec);
    let path = Path::Root(&spec_root);

    let metadata = Path::Root(&metadata_root);
    metadata::validate(&pod.metadata, spec, metadata, &mut errors);
    profile_annotations::validate(pod, spec, (metadata, path), &mut errors);
    let volumes = volumes::validate(pod, path.child("volumes"), &mut errors);
    containers::validate(spec, &volumes, path, &mut errors);
    pod_fields(spec, path, &mut errors);
    scheduling::validate(spec, path, &mut errors);
    network::validate(spec, path, &mut errors);
    security::pod(spec, path, &mut errors);
    operating_system(spec, path, &mut errors);
    errors.into_vec()
}

fn pod_fields(spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    errors.one_of(
        path.child("restartPolicy"),
        text(&spec.restart_policy),
        &["Always", "OnFailure", "Never"],
    );
    if let Some(seconds) = spec.active_deadline_seconds
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = "must be between 1 and 2147483647";
        errors.invalid(path.child("activeDeadlineSeconds"), seconds, detail);
    }
    for (name, value) in [
        ("serviceAccountName", &spec.service_account_name),
        ("nodeName", &spec.node_name),
        ("priorityClassName", &spec.priority_class_name),
    ] {
        let value = text(value);
        if !value.is_empty() {
            errors.invalid_if(path.child(name), value, formats::dns1123_subdomain(value));
        }
    }
    if let Some(name) = &spec.runtime_class_name {
        let field = path.child("runtimeClassName");
        errors.invalid_if(field, name, formats::dns1123_subdomain(name));
    }
    if let Some(policy) = &spec.preemption_policy {
        let field = path.child("preemptionPolicy");
        errors.one_of(field, policy, &["PreemptLowerPriority", "Never"]);
    }
    if !list(&spec.ephemeral_containers).is_empty() {
        errors.forbidden(path.child("ephemeralContainers"), "cannot be set on create");
    }
    if let Some(overhead) = &spec.overhead {
        let field = path.child("overhead");
        resources::amounts(Some(overhead), None, field, errors);
    }
    if spec.resources.is_some() {
        resources::of_pod(spec, path.child("resources"), errors);
    }
}

fn operating_system(spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    let Some(system) = &spec.os else { return };
    let field = path.child("os");
    match system.name.as_str() {
        "" => errors.required(field.child("name"), ""),
        "linux" => {}
        "windows" => security::windows_only(spec, path, errors),
        other => errors.not_supported(field, other, &["linux", "windows"]),
    }
}
