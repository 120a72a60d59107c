//! What of `metadata` a static pod cannot have.
//!
//! The rest acts, is advice, or was written by an API server for itself. Of a
//! pod as `kubectl get -o yaml` shows it that last part says nothing to a node,
//! and `pod-manifest` drops it together with the status.

use pod::meta::ObjectMeta;
use pod::metadata::CONFIG_MIRROR_ANNOTATION;

use crate::field::{Errors, Path};
use crate::optional::{list, text};

/// Everything in `metadata` that a pod from a manifest cannot have.
pub(super) fn forbidden(metadata: &ObjectMeta, path: Path<'_>, errors: &mut Errors) {
    let ObjectMeta {
        // `unsupported_fields` looks at others, whatever source the pod has.
        annotations,
        creation_timestamp: _,
        deletion_grace_period_seconds,
        deletion_timestamp,
        finalizers,
        // Beside a name it has no effect on an API server either; without one
        // the missing name is the error.
        generate_name: _,
        generation: _,
        labels: _,
        managed_fields: _,
        name,
        namespace: _,
        owner_references,
        resource_version: _,
        self_link: _,
        // Checked where it is given.
        uid: _,
    } = metadata;
    if text(name).is_empty() {
        errors.required(path.child("name"), "nobody makes a name for a static pod");
    }
    for (name, set, detail) in [
        (
            "deletionTimestamp",
            deletion_timestamp.is_some(),
            "a static pod is deleted by removing it from its manifest",
        ),
        (
            "deletionGracePeriodSeconds",
            deletion_grace_period_seconds.is_some(),
            "the grace of a static pod is spec.terminationGracePeriodSeconds",
        ),
        (
            "finalizers",
            !list(finalizers).is_empty(),
            "nobody waits for a finalizer before a static pod is deleted",
        ),
        (
            "ownerReferences",
            !list(owner_references).is_empty(),
            "a static pod belongs to its manifest and is not deleted with another object",
        ),
    ] {
        if set {
            errors.forbidden(path.child(name), detail);
        }
    }
    let annotations_path = path.child("annotations");
    let is_mirror = |key: &&String| key.as_str() == CONFIG_MIRROR_ANNOTATION;
    for key in annotations
        .iter()
        .flat_map(|annotations| annotations.keys())
        .filter(is_mirror)
    {
        errors.forbidden(
            annotations_path.key(key),
            "a manifest makes the pod itself, not its mirror in an API server",
        );
    }
}
