//! Names, labels, annotations and owners.

use std::collections::BTreeMap;

use pod::core::PodSpec;
use pod::meta::ObjectMeta;

use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::{list, text};

/// Most bytes that all annotations together may have.
const MAX_ANNOTATIONS_BYTES: usize = 256 << 10;
/// As much of `generateName` becomes part of a name.
const MAX_NAME_PREFIX: usize = 58;
const MIRROR: &str = pod::metadata::CONFIG_MIRROR_ANNOTATION;
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(super) fn validate(metadata: &ObjectMeta, spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    names(metadata, path, errors);
    labels(metadata.labels.as_ref(), path.child("labels"), errors);
    if let Some(found) = &metadata.annotations {
        annotations(found, spec, path.child("annotations"), errors);
    }
    owners(metadata, path, errors);
    for (index, finalizer) in list(&metadata.finalizers).iter().enumerate() {
        let finalizers = path.child("finalizers");
        let problem = formats::qualified_name(finalizer);
        errors.invalid_if(finalizers.index(index), finalizer, problem);
    }
}

fn names(metadata: &ObjectMeta, path: Path<'_>, errors: &mut Errors) {
    let prefix = text(&metadata.generate_name);
    if !prefix.is_empty() {
        let field = path.child("generateName");
        errors.invalid_if(field, prefix, formats::dns1123_subdomain_prefix(prefix));
    }
    match text(&metadata.name) {
        "" if prefix.is_empty() => errors.required(path.child("name"), "name or generateName"),
        // The server makes a name of the prefix and some letters.
        "" => {
            let name: String = prefix
                .chars()
                .take(MAX_NAME_PREFIX)
                .chain("xxxxx".chars())
                .collect();
            errors.invalid_if(path.child("name"), &name, formats::dns1123_subdomain(&name));
        }
        name => errors.invalid_if(path.child("name"), name, formats::dns1123_subdomain(name)),
    }
    let field = path.child("namespace");
    match text(&metadata.namespace) {
        "" => errors.required(field, ""),
        namespace => errors.invalid_if(field, namespace, formats::dns1123_label(namespace)),
    }
}

/// Labels, node selectors and what else has a label's key and value. All errors
/// are reported at the mapping.
pub(super) fn labels(
    labels: Option<&BTreeMap<String, String>>,
    path: Path<'_>,
    errors: &mut Errors,
) {
    for (key, value) in labels.into_iter().flatten() {
        errors.invalid_if(path, key, formats::qualified_name(key));
        errors.invalid_if(path, value, formats::label_value(value));
    }
}

fn annotations(
    annotations: &BTreeMap<String, String>,
    spec: &PodSpec,
    path: Path<'_>,
    errors: &mut Errors,
) {
    let mut bytes = 0;
    for (key, value) in annotations {
        errors.invalid_if(
            path,
            key,
            formats::qualified_name(&key.to_ascii_lowercase()),
        );
        bytes += key.len() + value.len();
    }
    if bytes > MAX_ANNOTATIONS_BYTES {
        errors.invalid(
            path,
            format!("{bytes} bytes"),
            "must have at most 262144 bytes in all",
        );
    }
    if let Some(value) = annotations.get(MIRROR)
        && text(&spec.node_name).is_empty()
    {
        errors.invalid(
            path.key(MIRROR),
            value,
            "a mirror pod must have spec.nodeName",
        );
    }
    if let Some(value) = annotations.get(DELETION_COST)
        && !is_deletion_cost(value)
    {
        errors.invalid(path.key(DELETION_COST), value, "must be a 32-bit number");
    }
}

/// A number as Go prints it: no leading zeros, no plus sign.
fn is_deletion_cost(value: &str) -> bool {
    value
        .parse::<i32>()
        .is_ok_and(|number| number.to_string() == value)
}

fn owners(metadata: &ObjectMeta, path: Path<'_>, errors: &mut Errors) {
    let owners_path = path.child("ownerReferences");
    let mut controllers = 0;
    for (index, owner) in list(&metadata.owner_references).iter().enumerate() {
        let owner_path = owners_path.index(index);
        for (name, value) in [
            ("apiVersion", &owner.api_version),
            ("kind", &owner.kind),
            ("name", &owner.name),
            ("uid", &owner.uid),
        ] {
            if value.is_empty() {
                errors.required(owner_path.child(name), "");
            }
        }
        controllers += usize::from(owner.controller == Some(true));
    }
    if controllers > 1 {
        errors.invalid(
            owners_path,
            controllers,
            "only one owner may be the controller",
        );
    }
}
