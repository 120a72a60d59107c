//! The environment of a container: its variables in the order of the spec, with
//! references to earlier ones replaced, and fields and resources of the pod looked up.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pod::core::{Container, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector};
use pod::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, container_limits, container_requests};
use pod::{Pod, PodExt, Quantity};

use crate::error::BuildError;
use crate::expansion::{Budget, MAX_EXPANDED_BYTES, TooLong};
use crate::node_facts::NodeFacts;

/// Variables in the order in which they are handed over, and by name.
#[derive(Debug, Default)]
pub(super) struct Environment {
    order: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Environment {
    /// Sets a variable; one that is set again keeps its place.
    fn set(&mut self, name: &str, value: String) {
        if self.values.insert(name.to_owned(), value).is_none() {
            self.order.push(name.to_owned());
        }
    }

    /// By name, for references.
    pub(super) fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// Names and values in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.order.iter().map(|name| {
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
    /// The addresses of the pod's sandbox.
    pub(super) pod_ips: &'a [IpAddr],
}

/// The environment of a container.
pub(super) fn environment(
    input: &EnvironmentInput<'_>,
    budget: &mut Budget,
) -> Result<Environment, BuildError> {
    if input
        .container
        .env_from
        .as_ref()
        .is_some_and(|sources| !sources.is_empty())
    {
        return Err(BuildError::unsupported(format!("{}.envFrom", input.field)));
    }
    let mut environment = Environment::default();
    for (index, variable) in input.container.env.iter().flatten().enumerate() {
        let field = format!("{}.env[{index}]", input.field);
        let literal = variable.value.as_deref().filter(|value| !value.is_empty());
        let value = match (literal, &variable.value_from) {
            (Some(text), _) => budget
                .expand(text, environment.values())
                .map_err(|TooLong| too_large(&field))?,
            (None, Some(source)) => {
                let value = looked_up(input, source, &field)?;
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

fn looked_up(
    input: &EnvironmentInput<'_>,
    source: &EnvVarSource,
    field: &str,
) -> Result<String, BuildError> {
    if let Some(selector) = &source.field_ref {
        return field_value(input, selector, &format!("{field}.valueFrom.fieldRef"));
    }
    if let Some(selector) = &source.resource_field_ref {
        return resource_value(
            input,
            selector,
            &format!("{field}.valueFrom.resourceFieldRef"),
        );
    }
    let kind = if source.config_map_key_ref.is_some() {
        "configMapKeyRef"
    } else if source.secret_key_ref.is_some() {
        "secretKeyRef"
    } else {
        return Err(BuildError::invalid(
            format!("{field}.valueFrom"),
            "names no source",
        ));
    };
    Err(BuildError::unsupported(format!("{field}.valueFrom.{kind}")))
}

/// A field of the pod as text.
fn field_value(
    input: &EnvironmentInput<'_>,
    selector: &ObjectFieldSelector,
    field: &str,
) -> Result<String, BuildError> {
    let (pod, metadata) = (input.pod, &input.pod.metadata);
    let spec = pod.spec_or_default();
    // A pod on the node's network has the node's addresses.
    let pod_ips = if pod.host_network() {
        input.node.node_ips.as_slice()
    } else {
        input.pod_ips
    };
    let path = selector.field_path.as_str();
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return Err(unknown_field(field, path)),
        };
        return Ok(map
            .as_ref()
            .and_then(|map| map.get(key))
            .cloned()
            .unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => pod.name().to_owned(),
        "metadata.namespace" => pod.namespace().to_owned(),
        "metadata.uid" => pod.uid().to_owned(),
        "spec.nodeName" => spec.node_name.clone().unwrap_or_default(),
        "spec.serviceAccountName" => spec.service_account_name.clone().unwrap_or_default(),
        "status.hostIP" => first(&input.node.node_ips),
        "status.hostIPs" => joined(&input.node.node_ips),
        "status.podIP" => first(pod_ips),
        "status.podIPs" => joined(pod_ips),
        _ => return Err(unknown_field(field, path)),
    })
}

fn unknown_field(field: &str, path: &str) -> BuildError {
    BuildError::invalid(
        format!("{field}.fieldPath"),
        format!("unsupported fieldPath: {path}"),
    )
}

/// `metadata.labels['key']` as its two parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
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

/// A request or limit of a container in units of the divisor, rounded up. A limit that
/// is not stated is what the node has for pods.
fn resource_value(
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
    let stated = selector
        .divisor
        .as_ref()
        .map(Quantity::from_api)
        .transpose();
    let stated = stated
        .map_err(|error| BuildError::invalid(format!("{field}.divisor"), error.to_string()))?;
    let divisor = stated
        .filter(|divisor| !divisor.is_zero())
        .unwrap_or(Quantity::from_millis(1000));
    let resource = selector.resource.as_str();
    let amount = match resource.split_once('.') {
        Some(("limits", name)) if is_exposed(name) => {
            let stated = container_limits(container)
                .get(name)
                .filter(|amount| !amount.is_zero());
            stated.or_else(|| input.node.allocatable.get(name).copied())
        }
        Some(("requests", name)) if is_exposed(name) => container_requests(container).get(name),
        _ => {
            let reason = format!("unsupported container resource : {resource}");
            return Err(BuildError::invalid(format!("{field}.resource"), reason));
        }
    };
    let amount = amount.unwrap_or(Quantity::ZERO);
    let (amount, divisor) = if resource.ends_with(".cpu") {
        (amount.milli_value(), divisor.milli_value())
    } else {
        (amount.value(), divisor.value())
    };
    Ok(rounded_up(amount, divisor).to_string())
}

fn is_exposed(name: &str) -> bool {
    matches!(name, CPU | MEMORY | EPHEMERAL_STORAGE) || name.starts_with("hugepages-")
}

fn rounded_up(amount: i64, divisor: i64) -> i64 {
    let divisor = divisor.max(1);
    amount / divisor + i64::from(amount % divisor > 0)
}

#[cfg(test)]
mod tests;
