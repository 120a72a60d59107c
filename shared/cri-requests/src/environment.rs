//! The environment of a container: its variables in the order of the spec, with
//! references to earlier ones replaced, and fields and resources of the pod looked up.

mod env_file;
mod of_files;
mod of_objects;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use local_objects::{ObjectKind, Objects};
use pod::core::{Container, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector};
use pod::downward::{DownwardError, metadata_field, resource_value};
use pod::{Pod, PodExt, addresses};

pub use self::of_files::{EnvFile, EnvFileContent, EnvFiles, MAX_ENV_FILE_BYTES, env_files};
use self::of_objects::PodObjects;
use crate::error::BuildError;
use crate::expansion::{Budget, MAX_EXPANDED_BYTES, TooLong};
use crate::node_facts::NodeFacts;

/// Variables in the order in which they are handed over, and by name.
#[derive(Debug, Default)]
pub(super) struct Environment {
    order: Vec<String>,
    values: BTreeMap<String, String>,
    /// Those of Services that the container does not set itself; they come last.
    of_services: BTreeSet<String>,
}

impl Environment {
    /// Sets a variable; one that is set again keeps its place.
    fn set(&mut self, name: &str, value: String) {
        let is_new = self.values.insert(name.to_owned(), value).is_none();
        if self.of_services.remove(name) || is_new {
            self.order.push(name.to_owned());
        }
    }

    /// By name, for references.
    pub(super) fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// Names and values in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.order.iter().chain(&self.of_services).map(|name| {
            (
                name.as_str(),
                self.values.get(name).map_or("", String::as_str),
            )
        })
    }
}

/// What variables are made of.
pub(super) struct EnvironmentInput<'a> {
    pub(super) pod: &'a Pod,
    pub(super) container: &'a Container,
    /// Path of the container in the pod, for errors.
    pub(super) field: &'a str,
    pub(super) node: &'a NodeFacts,
    /// The addresses of the pod's sandbox, as the runtime tells them.
    pub(super) pod_ips: &'a [IpAddr],
    /// What is known of the objects that the pod refers to.
    pub(super) objects: &'a Objects,
    pub(super) service_variables: &'a BTreeMap<String, String>,
    /// The files of volumes that variables come from.
    pub(super) env_files: &'a EnvFiles,
}

impl EnvironmentInput<'_> {
    fn objects(&self) -> PodObjects<'_> {
        PodObjects {
            known: self.objects,
            namespace: self.pod.namespace(),
        }
    }
}

/// The environment of a container.
pub(super) fn environment(
    input: &EnvironmentInput<'_>,
    budget: &mut Budget,
) -> Result<Environment, BuildError> {
    let mut environment = Environment::default();
    for (name, value) in input.service_variables {
        let of_links = |TooLong| too_large("spec.enableServiceLinks");
        budget.spend(name).map_err(of_links)?;
        budget.spend(value).map_err(of_links)?;
        environment.of_services.insert(name.clone());
        environment.values.insert(name.clone(), value.clone());
    }
    for (index, source) in input.container.env_from.iter().flatten().enumerate() {
        let field = format!("{}.envFrom[{index}]", input.field);
        for (name, value) in of_objects::all_values(&input.objects(), source, &field)? {
            let mut spend = |text: &str| budget.spend(text).map_err(|TooLong| too_large(&field));
            spend(&name)?;
            spend(&value)?;
            environment.set(&name, value);
        }
    }
    for (index, variable) in input.container.env.iter().flatten().enumerate() {
        let field = format!("{}.env[{index}]", input.field);
        let literal = variable.value.as_deref().filter(|value| !value.is_empty());
        let value = match (literal, &variable.value_from) {
            (Some(text), _) => budget
                .expand(text, environment.values())
                .map_err(|TooLong| too_large(&field))?,
            (None, Some(source)) => {
                let Some(value) = looked_up(input, source, &field)? else {
                    continue;
                };
                budget.spend(&value).map_err(|TooLong| too_large(&field))?;
                value
            }
            (None, None) => String::new(),
        };
        environment.set(&variable.name, value);
    }
    Ok(environment)
}

/// The error for a field that expands beyond the bound.
pub(super) fn too_large(field: &str) -> BuildError {
    BuildError::ExpansionTooLarge {
        field: field.to_owned(),
        limit: MAX_EXPANDED_BYTES,
    }
}

/// The value of a source; `None` if what it names is optional and not there.
fn looked_up(
    input: &EnvironmentInput<'_>,
    source: &EnvVarSource,
    field: &str,
) -> Result<Option<String>, BuildError> {
    let field = format!("{field}.valueFrom");
    if let Some(selector) = &source.field_ref {
        return field_value(input, selector, &format!("{field}.fieldRef")).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        return resource_of(input, selector, &format!("{field}.resourceFieldRef")).map(Some);
    }
    let of_object = |kind, name: &str, key: &str, optional| {
        of_objects::value(&input.objects(), (kind, name), key, optional, &field)
    };
    if let Some(it) = &source.config_map_key_ref {
        return of_object(ObjectKind::ConfigMap, &it.name, &it.key, it.optional);
    }
    if let Some(it) = &source.secret_key_ref {
        return of_object(ObjectKind::Secret, &it.name, &it.key, it.optional);
    }
    if let Some(selector) = &source.file_key_ref {
        let field = format!("{field}.fileKeyRef");
        return of_files::value(input.env_files, selector, &field);
    }
    Err(BuildError::invalid(field, "names no source"))
}

/// A field of the pod as text.
fn field_value(
    input: &EnvironmentInput<'_>,
    selector: &ObjectFieldSelector,
    field: &str,
) -> Result<String, BuildError> {
    let pod = input.pod;
    let spec = pod.spec_or_default();
    // A pod on the node's network has the node's addresses.
    let told = if pod.host_network() {
        input.node.node_ips.as_slice()
    } else {
        input.pod_ips
    };
    let node_ip = input.node.node_ips.first();
    let pod_ips = addresses::pod_ips(told.iter().copied(), node_ip.copied());
    let path = selector.field_path.as_str();
    // All labels, or all annotations, are only told in files.
    let is_all = matches!(path, "metadata.labels" | "metadata.annotations");
    if let Some(value) = metadata_field(pod, path).filter(|_| !is_all) {
        return Ok(value);
    }
    Ok(match path {
        // The second is the old name of the first, which validation takes too.
        "spec.nodeName" | "spec.host" => spec.node_name.clone().unwrap_or_default(),
        "spec.serviceAccountName" => spec.service_account_name.clone().unwrap_or_default(),
        "status.hostIP" => first(&input.node.node_ips),
        "status.hostIPs" => joined(&input.node.node_ips),
        "status.podIP" => first(&pod_ips),
        "status.podIPs" => joined(&pod_ips),
        _ => return Err(unknown_field(field, path)),
    })
}

fn unknown_field(field: &str, path: &str) -> BuildError {
    BuildError::invalid(
        format!("{field}.fieldPath"),
        format!("unsupported fieldPath: {path}"),
    )
}

fn first(ips: &[IpAddr]) -> String {
    ips.first().map(ToString::to_string).unwrap_or_default()
}

fn joined(ips: &[IpAddr]) -> String {
    ips.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

/// A request or limit of this container or of the one that the selector names.
fn resource_of(
    input: &EnvironmentInput<'_>,
    selector: &ResourceFieldSelector,
    field: &str,
) -> Result<String, BuildError> {
    let container = match selector
        .container_name
        .as_deref()
        .filter(|name| !name.is_empty())
    {
        None => input.container,
        Some(name) => match input.pod.container(name) {
            Some((_, container)) => container,
            None => {
                let reason = format!("container {name} not found");
                return Err(BuildError::invalid(
                    format!("{field}.containerName"),
                    reason,
                ));
            }
        },
    };
    resource_value((input.pod, container), selector, &input.node.allocatable).map_err(|error| {
        let at = match error {
            DownwardError::Divisor(_) => "divisor",
            DownwardError::Resource(_) => "resource",
        };
        BuildError::invalid(format!("{field}.{at}"), error.to_string())
    })
}

#[cfg(test)]
mod tests;
