//! Annotations of seccomp and AppArmor profiles: their values, the containers that they
//! name, and the fields that they must agree with.

use pod::Pod;
use pod::core::{AppArmorProfile, PodSpec, SeccompProfile, SecurityContext};

use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::list;
use crate::profile_annotations::{APP_ARMOR, SECCOMP_OF_CONTAINER, SECCOMP_OF_POD};
use crate::profile_annotations::{all, app_armor, seccomp};

pub(super) fn validate(
    pod: &Pod,
    spec: &PodSpec,
    (metadata, path): (Path<'_>, Path<'_>),
    errors: &mut Errors,
) {
    let Some(annotations) = &pod.metadata.annotations else {
        return;
    };
    let annotations_path = metadata.child("annotations");
    for (key, value) in all(annotations) {
        // The paths are the API server's, which differ between the two.
        if key == SECCOMP_OF_POD {
            let here = annotations_path.child(key);
            seccomp_value(value, here, errors);
            let context = spec.security_context.as_ref();
            let field = context.and_then(|context| context.seccomp_profile.as_ref());
            let context_path = path.child("securityContext");
            seccomp_agrees(value, field, context_path, errors);
        } else if let Some(name) = key.strip_prefix(SECCOMP_OF_CONTAINER) {
            let here = annotations_path.child(key);
            seccomp_value(value, here, errors);
            let found = each(spec, name, path, |context, path| {
                let field = context.and_then(|context| context.seccomp_profile.as_ref());
                seccomp_agrees(value, field, path, errors);
            });
            if !found {
                errors.invalid(here, name, "container not found");
            }
        } else if let Some(name) = key.strip_prefix(APP_ARMOR) {
            let here = annotations_path.key(key);
            if !value.is_empty() && app_armor(value).is_none() {
                errors.invalid(here, value, "invalid AppArmor profile name");
            }
            let of_pod = spec.security_context.as_ref();
            let of_pod = of_pod.and_then(|context| context.app_armor_profile.as_ref());
            let found = each(spec, name, path, |context, path| {
                let own = context.and_then(|context| context.app_armor_profile.as_ref());
                app_armor_agrees(value, own.or(of_pod), path, errors);
            });
            if !found {
                errors.invalid(here, name, "container not found");
            }
        } else {
            // An API server ignores it.
            let detail = "nothing reads this annotation";
            errors.invalid(annotations_path.key(key), value, detail);
        }
    }
}

/// Calls `action` with the security context of each container of this name and its path;
/// whether there is one.
fn each(
    spec: &PodSpec,
    name: &str,
    path: Path<'_>,
    mut action: impl FnMut(Option<&SecurityContext>, Path<'_>),
) -> bool {
    let mut found = false;
    for (list_name, containers) in [
        ("initContainers", list(&spec.init_containers)),
        ("containers", spec.containers.as_slice()),
    ] {
        let containers_path = path.child(list_name);
        for (index, container) in containers.iter().enumerate() {
            if container.name == name {
                found = true;
                let container_path = containers_path.index(index);
                let context = container.security_context.as_ref();
                action(context, container_path.child("securityContext"));
            }
        }
    }
    found
}

fn seccomp_value(value: &str, path: Path<'_>, errors: &mut Errors) {
    match seccomp(value) {
        None => errors.invalid(path, value, "must be a valid seccomp profile"),
        Some(profile) => {
            let file = profile.localhost_profile.unwrap_or_default();
            errors.invalid_if(path, &file, formats::descending_path(&file));
        }
    }
}

/// A value that means no profile has been reported before.
fn seccomp_agrees(
    value: &str,
    field: Option<&SeccompProfile>,
    context: Path<'_>,
    errors: &mut Errors,
) {
    if let (Some(annotated), Some(field)) = (seccomp(value), field) {
        let path = context.child("seccompProfile");
        if annotated.type_ != field.type_ {
            let detail = "seccomp type in annotation and field must match";
            errors.forbidden(path.child("type"), detail);
        } else if annotated.localhost_profile != field.localhost_profile {
            let detail = "seccomp profile in annotation and field must match";
            errors.forbidden(path.child("localhostProfile"), detail);
        }
    }
}

fn app_armor_agrees(
    value: &str,
    field: Option<&AppArmorProfile>,
    context: Path<'_>,
    errors: &mut Errors,
) {
    if let (Some(annotated), Some(field)) = (app_armor(value), field) {
        let path = context.child("appArmorProfile");
        if annotated.type_ != field.type_ {
            let detail = "apparmor type in annotation and field must match";
            errors.forbidden(path.child("type"), detail);
        } else if annotated.localhost_profile != field.localhost_profile {
            let detail = "apparmor profile in annotation and field must match";
            errors.forbidden(path.child("localhostProfile"), detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply_defaults;

    /// The fields that a pod with this annotation is refused for.
    fn refused(key: &str, value: &str, pod: &str, container: &str) -> Vec<String> {
        let text = format!(
            r#"{{"metadata":{{"name":"p","namespace":"d","annotations":{{"{key}":"{value}"}}}},
                "spec":{{"securityContext":{pod},
                "containers":[{{"name":"c","image":"i:1","securityContext":{container}}}]}}}}"#
        );
        let mut pod: Pod = serde_json::from_str(&text).unwrap();
        apply_defaults(&mut pod);
        let found = crate::validate(&pod).into_iter();
        found.map(|error| error.field).collect()
    }

    #[test]
    fn values_and_containers_of_annotations_are_checked() {
        let annotations = "metadata.annotations";
        for (key, value, expected) in [
            (SECCOMP_OF_POD.to_owned(), "runtime/default", None),
            (SECCOMP_OF_POD.to_owned(), "localhost/a/b", None),
            (
                SECCOMP_OF_POD.to_owned(),
                "x",
                Some(format!("{annotations}.{SECCOMP_OF_POD}")),
            ),
            (
                SECCOMP_OF_POD.to_owned(),
                "localhost/",
                Some(format!("{annotations}.{SECCOMP_OF_POD}")),
            ),
            (format!("{SECCOMP_OF_CONTAINER}c"), "unconfined", None),
            (
                format!("{SECCOMP_OF_CONTAINER}d"),
                "unconfined",
                Some(format!("{annotations}.{SECCOMP_OF_CONTAINER}d")),
            ),
            (format!("{APP_ARMOR}c"), "localhost/x", None),
            (format!("{APP_ARMOR}c"), "", None),
            (
                format!("{APP_ARMOR}c"),
                "docker/default",
                Some(format!("{annotations}[{APP_ARMOR}c]")),
            ),
            (
                format!("{APP_ARMOR}d"),
                "runtime/default",
                Some(format!("{annotations}[{APP_ARMOR}d]")),
            ),
            (
                "seccomp.security.alpha.kubernetes.io/other".to_owned(),
                "unconfined",
                Some(format!(
                    "{annotations}[seccomp.security.alpha.kubernetes.io/other]"
                )),
            ),
        ] {
            let found = refused(&key, value, "{}", "{}");
            assert_eq!(found, Vec::from_iter(expected), "{key}={value}");
        }
    }

    #[test]
    fn what_is_wrong_in_an_annotation_is_wrong_in_its_field_too() {
        assert_eq!(
            refused(SECCOMP_OF_POD, "localhost/../a", "{}", "{}"),
            [
                format!("metadata.annotations.{SECCOMP_OF_POD}"),
                "spec.securityContext.seccompProfile.localhostProfile".to_owned(),
            ]
        );
    }

    #[test]
    fn annotation_and_field_agree() {
        let seccomp = r#"{"seccompProfile":{"type":"Localhost","localhostProfile":"a"}}"#;
        let app_armor = r#"{"appArmorProfile":{"type":"Localhost","localhostProfile":"a"}}"#;
        let of_container = format!("{SECCOMP_OF_CONTAINER}c");
        let armor = format!("{APP_ARMOR}c");
        let container = "spec.containers[0].securityContext";
        for (key, value, pod, own, expected) in [
            (SECCOMP_OF_POD, "localhost/a", seccomp, "{}", String::new()),
            (
                SECCOMP_OF_POD,
                "localhost/b",
                seccomp,
                "{}",
                "spec.securityContext.seccompProfile.localhostProfile".to_owned(),
            ),
            (
                SECCOMP_OF_POD,
                "unconfined",
                seccomp,
                "{}",
                "spec.securityContext.seccompProfile.type".to_owned(),
            ),
            (
                &of_container,
                "unconfined",
                "{}",
                seccomp,
                format!("{container}.seccompProfile.type"),
            ),
            (&armor, "localhost/a", "{}", app_armor, String::new()),
            (
                &armor,
                "unconfined",
                "{}",
                app_armor,
                format!("{container}.appArmorProfile.type"),
            ),
            (
                &armor,
                "localhost/b",
                "{}",
                app_armor,
                format!("{container}.appArmorProfile.localhostProfile"),
            ),
        ] {
            let expected = Some(expected).filter(|field| !field.is_empty());
            let found = refused(key, value, pod, own);
            assert_eq!(found, Vec::from_iter(expected), "{key}={value}");
        }
    }
}
