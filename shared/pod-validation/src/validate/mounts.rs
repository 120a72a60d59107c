//! Where volumes appear in containers.

use std::collections::HashSet;

use pod::core::{Container, VolumeMount};

use super::volumes;
use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::{list, text};

const PROPAGATIONS: &[&str] = &["Bidirectional", "HostToContainer", "None"];

pub(super) fn validate(
    container: &Container,
    volumes: &volumes::ByName<'_>,
    path: Path<'_>,
    errors: &mut Errors,
) {
    let path = path.child("volumeMounts");
    let mut mount_points = HashSet::new();
    for (index, mount) in list(&container.volume_mounts).iter().enumerate() {
        let mount_path = path.index(index);
        let name = mount_path.child("name");
        if mount.name.is_empty() {
            errors.required(name, "");
        }
        if !volumes.contains_key(mount.name.as_str()) {
            errors.not_found(name, &mount.name);
        }
        let point = mount_path.child("mountPath");
        if mount.mount_path.is_empty() {
            errors.required(point, "");
        }
        if !mount_points.insert(&mount.mount_path) {
            errors.invalid(point, &mount.mount_path, "must be unique");
        }
        // The API server leaves the index out of the paths of these.
        sub_paths(mount, path, mount_path, errors);
        propagation(mount, container, path.child("mountPropagation"), errors);
        recursive_read_only(mount, path.child("recursiveReadOnly"), errors);
    }
}

fn sub_paths(mount: &VolumeMount, list_path: Path<'_>, path: Path<'_>, errors: &mut Errors) {
    let plain = text(&mount.sub_path);
    let expression = text(&mount.sub_path_expr);
    errors.invalid_if(
        list_path.child("subPath"),
        plain,
        formats::descending_path(plain),
    );
    if !expression.is_empty() && !plain.is_empty() {
        let detail = "must not be given together with subPath";
        errors.invalid(path.child("subPathExpr"), expression, detail);
    }
    let problem = formats::descending_path(expression);
    errors.invalid_if(list_path.child("subPathExpr"), expression, problem);
}

fn propagation(mount: &VolumeMount, container: &Container, path: Path<'_>, errors: &mut Errors) {
    let Some(propagation) = &mount.mount_propagation else {
        return;
    };
    if !PROPAGATIONS.contains(&propagation.as_str()) {
        errors.not_supported(path, propagation, PROPAGATIONS);
    }
    let privileged = container
        .security_context
        .as_ref()
        .and_then(|context| context.privileged)
        == Some(true);
    if propagation == "Bidirectional" && !privileged {
        errors.forbidden(path, "Bidirectional needs a privileged container");
    }
}

fn recursive_read_only(mount: &VolumeMount, path: Path<'_>, errors: &mut Errors) {
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount.read_only != Some(true) {
                errors.forbidden(path, "may only be given for a mount that is readOnly");
            }
            if mount
                .mount_propagation
                .as_deref()
                .is_some_and(|propagation| propagation != "None")
            {
                errors.forbidden(path, "may only be given with mountPropagation None");
            }
        }
        Some(other) => errors.not_supported(path, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}
