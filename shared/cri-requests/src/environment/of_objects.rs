//! Variables whose values are in ConfigMaps and Secrets.

use std::sync::Arc;

use local_objects::{LocalObject, Lookup, ObjectKind, Objects};
use pod::core::EnvFromSource;

use crate::error::BuildError;

/// Where a pod's variables find their objects.
pub(super) struct PodObjects<'a> {
    /// What is known of them.
    pub(super) known: &'a Objects,
    /// Of the pod.
    pub(super) namespace: &'a str,
}

/// All values of the object that a source names, with the names of their variables, in the
/// order of keys. None if it is optional and not there.
///
/// A name may be whatever an API server of 1.34 or later takes, which is every key.
pub(super) fn all_values(
    objects: &PodObjects<'_>,
    source: &EnvFromSource,
    field: &str,
) -> Result<Vec<(String, String)>, BuildError> {
    let (kind, name, optional) = if let Some(source) = &source.config_map_ref {
        (ObjectKind::ConfigMap, &source.name, source.optional)
    } else if let Some(source) = &source.secret_ref {
        (ObjectKind::Secret, &source.name, source.optional)
    } else {
        return Err(BuildError::invalid(field, "names no source"));
    };
    let Some(object) = object(objects, (kind, name), optional == Some(true))? else {
        return Ok(Vec::new());
    };
    let prefix = source.prefix.as_deref().unwrap_or_default();
    let keys = object.data.keys();
    let keys = keys.filter(|key| !object.binary_keys.contains(*key));
    keys.map(|key| {
        let value = text(&object, key, field)?;
        Ok((format!("{prefix}{key}"), value))
    })
    .collect()
}

/// The value of one key; `None` if it is optional and not there.
pub(super) fn value(
    objects: &PodObjects<'_>,
    (kind, name): (ObjectKind, &str),
    key: &str,
    optional: Option<bool>,
    field: &str,
) -> Result<Option<String>, BuildError> {
    let optional = optional == Some(true);
    let Some(object) = object(objects, (kind, name), optional)? else {
        return Ok(None);
    };
    if object.data.contains_key(key) && !object.binary_keys.contains(key) {
        return text(&object, key, field).map(Some);
    }
    if optional {
        return Ok(None);
    }
    let (kind, namespace) = (kind.name(), objects.namespace);
    let message = format!("couldn't find key {key} in {kind} {namespace}/{name}");
    Err(BuildError::Object { message })
}

fn object(
    objects: &PodObjects<'_>,
    (kind, name): (ObjectKind, &str),
    optional: bool,
) -> Result<Option<Arc<LocalObject>>, BuildError> {
    match objects.known.get(kind, objects.namespace, name) {
        Lookup::Found(object) => Ok(Some(object)),
        Lookup::Missing if optional => Ok(None),
        Lookup::Missing => {
            let message = format!("{} {name:?} not found", kind.resource());
            Err(BuildError::Object { message })
        }
        Lookup::Unknown(message) => Err(BuildError::Object { message }),
    }
}

/// The value as a text: the runtime takes no other variables. No error shows it.
fn text(object: &LocalObject, key: &str, field: &str) -> Result<String, BuildError> {
    let bytes = object.data.get(key).map(|value| value.as_slice());
    let text = str::from_utf8(bytes.unwrap_or_default());
    let text = text.map_err(|_| {
        let reason = format!(
            "the value of key {key} in {} is not UTF-8",
            object.reference
        );
        BuildError::invalid(field, reason)
    })?;
    Ok(text.to_owned())
}
