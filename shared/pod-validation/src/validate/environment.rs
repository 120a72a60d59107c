//! Environment variables and where their values come from.

use pod::core::{Container, EnvFromSource, EnvVar, ObjectFieldSelector, ResourceFieldSelector};
use pod::huge_pages::HUGE_PAGES_PREFIX;
use pod::{Quantity, resources};

use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::{list, text};

/// Fields of the pod that an environment variable may have.
const ENVIRONMENT_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields of the pod that a file of a downward API volume may have.
pub(super) const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
/// Fields that exist but cannot be had everywhere.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const CPU_DIVISORS: &[&str] = &["1m", "1"];
const BYTE_DIVISORS: &[&str] = &[
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

pub(super) fn validate(container: &Container, path: Path<'_>, errors: &mut Errors) {
    let variables = path.child("env");
    for (index, variable) in list(&container.env).iter().enumerate() {
        let path = variables.index(index);
        let name = path.child("name");
        if variable.name.is_empty() {
            errors.required(name, "");
        } else {
            let problem = formats::environment_variable(&variable.name);
            errors.invalid_if(name, &variable.name, problem);
        }
        value_from(variable, path.child("valueFrom"), errors);
    }
    let sources = path.child("envFrom");
    for (index, source) in list(&container.env_from).iter().enumerate() {
        whole_object(source, sources, sources.index(index), errors);
    }
}

fn value_from(variable: &EnvVar, path: Path<'_>, errors: &mut Errors) {
    let Some(source) = &variable.value_from else {
        return;
    };
    let mut sources = 0;
    if let Some(field) = &source.field_ref {
        sources += 1;
        pod_field(field, ENVIRONMENT_FIELDS, path.child("fieldRef"), errors);
    }
    if let Some(resource) = &source.resource_field_ref {
        sources += 1;
        container_resource(
            resource,
            Needs::Nothing,
            path.child("resourceFieldRef"),
            errors,
        );
    }
    if let Some(key) = &source.config_map_key_ref {
        sources += 1;
        object_key(&key.name, &key.key, path.child("configMapKeyRef"), errors);
    }
    if source.file_key_ref.is_some() {
        // Its own rules are in `env_files`.
        sources += 1;
    }
    if let Some(key) = &source.secret_key_ref {
        sources += 1;
        object_key(&key.name, &key.key, path.child("secretKeyRef"), errors);
    }
    if sources == 0 {
        errors.invalid(path, "", "must have one source");
    } else if !text(&variable.value).is_empty() {
        errors.invalid(path, "", "a variable has either a value or a source of it");
    } else if sources > 1 {
        errors.invalid(path, "", "must not have more than one source");
    }
}

fn object_key(name: &str, key: &str, path: Path<'_>, errors: &mut Errors) {
    errors.invalid_if(path.child("name"), name, formats::dns1123_subdomain(name));
    if key.is_empty() {
        errors.required(path.child("key"), "");
    } else {
        errors.invalid_if(path.child("key"), key, formats::object_key(key));
    }
}

/// All keys of an object; how many there are is reported at the list.
fn whole_object(source: &EnvFromSource, list_path: Path<'_>, path: Path<'_>, errors: &mut Errors) {
    let prefix = text(&source.prefix);
    if !prefix.is_empty() {
        let problem = formats::environment_variable(prefix);
        errors.invalid_if(path.child("prefix"), prefix, problem);
    }
    let config_map = source
        .config_map_ref
        .as_ref()
        .map(|object| ("configMapRef", &object.name));
    let secret = source
        .secret_ref
        .as_ref()
        .map(|object| ("secretRef", &object.name));
    for (field, name) in config_map.iter().chain(&secret) {
        let object = path.child(field);
        if name.is_empty() {
            errors.required(object.child("name"), "");
        } else {
            let problem = formats::dns1123_subdomain_prefix(name);
            errors.invalid_if(object.child("name"), name, problem);
        }
    }
    match (&config_map, &secret) {
        (None, None) => errors.invalid(list_path, "", "must have configMapRef or secretRef"),
        (Some(_), Some(_)) => {
            errors.invalid(
                list_path,
                "",
                "must not have both configMapRef and secretRef",
            );
        }
        _ => {}
    }
}

/// A field of the pod itself, e.g. `metadata.labels['a']`.
pub(super) fn pod_field(
    selector: &ObjectFieldSelector,
    allowed: &[&'static str],
    path: Path<'_>,
    errors: &mut Errors,
) {
    let version = text(&selector.api_version);
    let field = selector.field_path.as_str();
    let field_path = path.child("fieldPath");
    if version.is_empty() {
        return errors.required(path.child("apiVersion"), "");
    }
    if field.is_empty() {
        return errors.required(field_path, "");
    }
    if version != "v1" {
        return errors.invalid(field_path, field, "only apiVersion v1 is known");
    }
    match subscripted(field) {
        Some(("metadata.annotations", key)) => {
            errors.invalid_if(
                path,
                key,
                formats::qualified_name(&key.to_ascii_lowercase()),
            );
        }
        Some(("metadata.labels", key)) => {
            errors.invalid_if(path, key, formats::qualified_name(key));
        }
        Some(_) => errors.invalid(field_path, field, "has no keys"),
        // The old name of spec.nodeName.
        None if field == "spec.host" && allowed.contains(&"spec.nodeName") => {}
        None if !KNOWN_FIELDS.contains(&field) => {
            errors.invalid(field_path, field, "is no field that can be referred to");
        }
        None if !allowed.contains(&field) => errors.not_supported(field_path, field, allowed),
        None => {}
    }
}

/// Splits `path['key']`.
fn subscripted(field: &str) -> Option<(&str, &str)> {
    let (path, key) = field.strip_suffix("']")?.split_once("['")?;
    (!path.is_empty()).then_some((path, key))
}

/// Whether a reference to a container's resource must name the container.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    ContainerName,
}

pub(super) fn container_resource(
    selector: &ResourceFieldSelector,
    needs: Needs,
    path: Path<'_>,
    errors: &mut Errors,
) {
    let resource = selector.resource.as_str();
    let of = resource.split_once('.');
    let is_huge_pages = of.is_some_and(|(list, name)| {
        ["limits", "requests"].contains(&list) && name.starts_with(HUGE_PAGES_PREFIX)
    });
    if needs == Needs::ContainerName && text(&selector.container_name).is_empty() {
        errors.required(path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(path.child("resource"), "");
    } else if !RESOURCES.contains(&resource) && !is_huge_pages {
        errors.not_supported(path.child("resource"), resource, RESOURCES);
    }
    let Some(divisor) = selector
        .divisor
        .as_ref()
        .and_then(|text| Quantity::from_api(text).ok())
    else {
        return;
    };
    let allowed = if resource.ends_with(&format!(".{}", resources::CPU)) {
        CPU_DIVISORS
    } else if RESOURCES.contains(&resource) || is_huge_pages {
        BYTE_DIVISORS
    } else {
        return;
    };
    if !divisor.is_zero() && !allowed.contains(&divisor.to_string().as_str()) {
        let detail = format!("must be one of {}", allowed.join(", "));
        errors.invalid(path.child("divisor"), divisor, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(field: &str, allowed: &[&'static str]) -> Vec<String> {
        let selector = ObjectFieldSelector {
            api_version: Some("v1".to_owned()),
            field_path: field.to_owned(),
        };
        let mut errors = Errors::default();
        pod_field(&selector, allowed, Path::Root("fieldRef"), &mut errors);
        let found = errors.into_vec().into_iter();
        found.map(|error| error.to_string()).collect()
    }

    #[test]
    fn variables_may_have_more_fields_than_files() {
        for field in [
            "metadata.uid",
            "metadata.labels['app']",
            "spec.nodeName",
            "spec.host",
            "spec.serviceAccountName",
            "status.hostIP",
            "status.hostIPs",
            "status.podIP",
            "status.podIPs",
        ] {
            assert_eq!(wrong(field, ENVIRONMENT_FIELDS), [""; 0], "{field}");
            let in_a_file = wrong(field, VOLUME_FIELDS).len();
            let is_metadata = field.starts_with("metadata.");
            assert_eq!(in_a_file, usize::from(!is_metadata), "{field}");
        }
        for field in [
            "status.phase",
            "metadata.labels",
            "status.hostIPs['a']",
            "x",
        ] {
            assert_eq!(wrong(field, ENVIRONMENT_FIELDS).len(), 1, "{field}");
        }
        // One that exists is told apart from one that does not.
        let error = &wrong("status.hostIPs", VOLUME_FIELDS)[0];
        assert!(error.contains("supported values"), "{error}");
    }
}
