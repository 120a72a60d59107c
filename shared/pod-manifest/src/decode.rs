//! Untyped documents to typed pods, strictly: a field that does not exist or
//! whose value is of another type is an error that names it.

use pod::Quantity;
use pod::core::Pod;
use pod::items::{ItemBudget, LARGE, MAX_ITEMS};
use pod_validation::{Errors, FieldError, Reason};
use serde_json::{Map, Value};
use value_errors::shown;

use crate::{normalize, strict};

/// Most pods in one manifest: the largest number that a node is run with.
pub const MAX_PODS: usize = 1024;

/// Most items in the lists of all pods in one manifest: ten pods as large as one may be.
pub(crate) const MAX_MANIFEST_ITEMS: usize = 10 * MAX_ITEMS;

/// Where quantities are. `[]` stands for each item of a list, `{}` for each
/// value of a mapping. The API takes numbers for them, and so texts must be
/// made of these before the typed decoding.
const QUANTITIES: &[&str] = &[
    "spec.containers[].resources.limits{}",
    "spec.containers[].resources.requests{}",
    "spec.containers[].env[].valueFrom.resourceFieldRef.divisor",
    "spec.initContainers[].resources.limits{}",
    "spec.initContainers[].resources.requests{}",
    "spec.initContainers[].env[].valueFrom.resourceFieldRef.divisor",
    "spec.ephemeralContainers[].resources.limits{}",
    "spec.ephemeralContainers[].resources.requests{}",
    "spec.ephemeralContainers[].env[].valueFrom.resourceFieldRef.divisor",
    "spec.resources.limits{}",
    "spec.resources.requests{}",
    "spec.overhead{}",
    "spec.volumes[].emptyDir.sizeLimit",
    "spec.volumes[].downwardAPI.items[].resourceFieldRef.divisor",
    "spec.volumes[].projected.sources[].downwardAPI.items[].resourceFieldRef.divisor",
    "spec.volumes[].ephemeral.volumeClaimTemplate.spec.resources.limits{}",
    "spec.volumes[].ephemeral.volumeClaimTemplate.spec.resources.requests{}",
];

/// A pod and the prefix of its fields' paths: empty, or `items[3].`.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) pod: Pod,
    pub(crate) canonical_json: String,
    pub(crate) prefix: String,
}

/// The pods of one document: a Pod, a PodList, or a List of Pods. `left` is what the
/// manifest's documents before it have left of [`MAX_MANIFEST_ITEMS`]. A pod with errors
/// lacks what is wrong, so that the rest of it can be judged.
pub(crate) fn pods(document: Value, left: &ItemBudget) -> (Vec<Located>, Vec<FieldError>) {
    let mut errors = Errors::default();
    if let Some(problem) = too_many_items(&document, left, MAX_MANIFEST_ITEMS) {
        let problem = format!("the pods of a manifest have {problem}");
        malformed(&mut errors, "", problem);
        return (Vec::new(), errors.into_vec());
    }
    let pods = match document {
        Value::Object(fields) => match kind_of(&fields) {
            Some("Pod") => pod(Value::Object(fields), String::new(), &mut errors)
                .into_iter()
                .collect::<Vec<_>>(),
            Some("PodList" | "List") => list(fields, &mut errors),
            _ => {
                let found = describe(&fields);
                malformed(
                    &mut errors,
                    "",
                    format!("expected a v1 Pod, PodList or List, found {found}"),
                );
                Vec::new()
            }
        },
        other => {
            malformed(
                &mut errors,
                "",
                format!("expected a Pod, found {}", type_name(&other)),
            );
            Vec::new()
        }
    };
    (pods, errors.into_vec())
}

fn kind_of(fields: &Map<String, Value>) -> Option<&str> {
    (fields.get("apiVersion")?.as_str()? == "v1").then_some(())?;
    fields.get("kind")?.as_str()
}

fn describe(fields: &Map<String, Value>) -> String {
    let part = |name| match fields.get(name).and_then(Value::as_str) {
        Some(text) => format!("{name} \"{}\"", shown(text)),
        None => format!("no {name}"),
    };
    format!("{} and {}", part("apiVersion"), part("kind"))
}

fn list(mut fields: Map<String, Value>, errors: &mut Errors) -> Vec<Located> {
    let items = match fields.remove("items") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(other) => {
            malformed(
                errors,
                "items",
                format!("expected a list, found {}", type_name(&other)),
            );
            return Vec::new();
        }
    };
    for name in fields.keys() {
        if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            errors.add(name, Reason::Unknown, "");
        }
    }
    if items.len() > MAX_PODS {
        malformed(
            errors,
            "items",
            format!("{} pods, more than {MAX_PODS}", items.len()),
        );
        return Vec::new();
    }
    let typed = fields.get("kind").and_then(Value::as_str) == Some("PodList");
    items
        .into_iter()
        .enumerate()
        .filter_map(|(index, mut item)| {
            let prefix = format!("items[{index}].");
            if let (true, Value::Object(fields)) = (typed, &mut item) {
                // A typed list need not repeat what its items are.
                fields.entry("apiVersion").or_insert_with(|| "v1".into());
                fields.entry("kind").or_insert_with(|| "Pod".into());
            }
            match item.as_object().and_then(kind_of) {
                Some("Pod") => pod(item, prefix, errors),
                _ => {
                    let found = item
                        .as_object()
                        .map_or(type_name(&item).to_owned(), describe);
                    let field = format!("items[{index}]");
                    malformed(errors, &field, format!("expected a v1 Pod, found {found}"));
                    None
                }
            }
        })
        .collect()
}

/// A typed pod takes many times as much memory as its text: it is made of what is within
/// the bounds.
fn too_many_items(value: &Value, left: &ItemBudget, most: usize) -> Option<String> {
    let has_room = left.has_room_for(value).unwrap_or(false);
    (!has_room).then(|| {
        format!("more than {most} items in lists, where a container or volume counts as {LARGE}")
    })
}

fn pod(mut value: Value, prefix: String, errors: &mut Errors) -> Option<Located> {
    if let Some(problem) = too_many_items(&value, &ItemBudget::new(MAX_ITEMS), MAX_ITEMS) {
        let field = prefix.trim_end_matches('.');
        malformed(errors, field, format!("the pod has {problem}"));
        return None;
    }
    normalize::fill_map_values(&mut value);
    for pattern in QUANTITIES {
        visit(
            &mut value,
            pattern,
            &mut prefix.clone(),
            &mut |path, value| {
                canonical_quantity(path, value, errors);
            },
        );
    }
    // Decoded once as it is, to find every unknown field, and once without the
    // zero values that the API does not tell from absent ones.
    strict::checked(&mut value, &prefix, errors)?;
    normalize::drop_zero_values(&mut value);
    let pod = match strict::decoded(&value) {
        Ok(pod) => pod,
        Err(error) => {
            let said = value_errors::for_people(&error.to_string(), None);
            malformed(errors, prefix.trim_end_matches('.'), said);
            return None;
        }
    };
    // serde_json keeps keys sorted.
    Some(Located {
        pod,
        canonical_json: value.to_string(),
        prefix,
    })
}

fn canonical_quantity(path: &str, value: &mut Value, errors: &mut Errors) {
    let text = match &*value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Null => "0".to_owned(),
        other => {
            let found = type_name(other);
            malformed(errors, path, format!("expected a quantity, found {found}"));
            *value = "0".into();
            return;
        }
    };
    match text.parse::<Quantity>() {
        Ok(quantity) => *value = quantity.to_string().into(),
        Err(error) => {
            let text = shown(&text);
            malformed(errors, path, format!("\"{text}\" is {error}"));
        }
    }
}

/// Calls `action` with the path and value of everything that `pattern` names.
fn visit(
    value: &mut Value,
    pattern: &str,
    path: &mut String,
    action: &mut impl FnMut(&str, &mut Value),
) {
    let length = path.len();
    if pattern.is_empty() {
        action(path, value);
    } else if let Some(rest) = pattern.strip_prefix("[]") {
        for (index, item) in value.as_array_mut().into_iter().flatten().enumerate() {
            path.push_str(&format!("[{index}]"));
            visit(item, rest, path, action);
            path.truncate(length);
        }
    } else if let Some(rest) = pattern.strip_prefix("{}") {
        for (key, item) in value.as_object_mut().into_iter().flatten() {
            path.push_str(&format!("[{key}]"));
            visit(item, rest, path, action);
            path.truncate(length);
        }
    } else {
        let (dot, field) = match pattern.strip_prefix('.') {
            Some(field) => (".", field),
            None => ("", pattern),
        };
        let end = field.find(['.', '[', '{']).unwrap_or(field.len());
        let (name, rest) = field.split_at(end);
        if let Some(inner) = value
            .as_object_mut()
            .and_then(|fields| fields.get_mut(name))
        {
            path.push_str(dot);
            path.push_str(name);
            visit(inner, rest, path, action);
            path.truncate(length);
        }
    }
}

fn malformed(errors: &mut Errors, field: &str, detail: String) {
    errors.add(field, Reason::Malformed, detail);
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
