//! What is wished of a pod, apart from its status and from what an API server notes for
//! itself: these make no other version of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Error;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::metadata::LOCAL_ANNOTATIONS;

/// What a hash covers.
#[derive(Serialize, Deserialize)]
struct Wish<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
}

/// The name is part of it: a manifest that sets a UID may give its pod another one.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    labels: Option<Fields<'a>>,
    #[serde(borrow)]
    annotations: Option<Fields<'a>>,
    #[serde(borrow)]
    deletion_timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    deletion_grace_period_seconds: Option<&'a RawValue>,
}

type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// SHA-256 of what the JSON of a pod wishes: spec, labels,
/// annotations but those that a source adds, deletion and its grace.
///
/// # Errors
/// When it is no JSON of an object with metadata.
pub(crate) fn wish_hash(json: &[u8]) -> Result<[u8; 32], Error> {
    let mut wish: Wish<'_> = serde_json::from_slice(json)?;
    let metadata = &mut wish.metadata;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| !LOCAL_ANNOTATIONS.contains(&&**key));
    }
    // None at all are the same as an empty object of them.
    metadata.annotations.get_or_insert_default();
    metadata.labels.get_or_insert_default();
    Ok(Sha256::digest(serde_json::to_vec(&wish)?).into())
}

/// The JSON of a pod, and apart from it that of its status.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) wish: Vec<u8>,
    pub(crate) status: Vec<u8>,
}

/// What an API server notes in the metadata for itself, anew with each patch of a status.
const OF_SERVER: [&str; 2] = ["managedFields", "resourceVersion"];

impl Parts {
    /// Takes them apart. Bytes without a status, and without what a server notes, are kept as
    /// they are.
    ///
    /// # Errors
    /// When it is no JSON of an object.
    pub(crate) fn of(json: Vec<u8>) -> Result<Parts, Error> {
        let mut pod: Fields<'_> = serde_json::from_slice(&json)?;
        let metadata = pod.get("metadata").map(|it| it.get()).unwrap_or("{}");
        let mut metadata: Fields<'_> = serde_json::from_str(metadata)?;
        let all = metadata.len();
        metadata.retain(|key, _| !OF_SERVER.contains(&&**key));
        let status = pod.remove("status");
        if status.is_none() && metadata.len() == all {
            let status = Vec::new();
            return Ok(Parts { wish: json, status });
        }
        let metadata = serde_json::value::to_raw_value(&metadata)?;
        pod.insert("metadata".into(), &metadata);
        Ok(Parts {
            wish: serde_json::to_vec(&pod)?,
            status: status.map_or_else(Vec::new, |status| status.get().into()),
        })
    }

    /// Puts them together again.
    ///
    /// # Errors
    /// When one of them is no JSON.
    pub(crate) fn join(wish: &[u8], status: &[u8]) -> Result<Vec<u8>, Error> {
        if status.is_empty() {
            return Ok(wish.to_vec());
        }
        let mut pod: Fields<'_> = serde_json::from_slice(wish)?;
        pod.insert("status".into(), serde_json::from_slice(status)?);
        serde_json::to_vec(&pod)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The hash of a pod with one field more or other, as a source gives it.
    fn hash(pointer: &str, value: Value) -> [u8; 32] {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "uid": "u", "name": "n", "namespace": "d", "labels": {}, "annotations": null,
            },
            "spec": {"containers": [{"name": "c"}]},
        });
        if !pointer.is_empty() {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            pod.pointer_mut(parent).unwrap()[key] = value;
        }
        let parts = Parts::of(pod.to_string().into_bytes()).unwrap();
        wish_hash(&parts.wish).unwrap()
    }

    #[test]
    fn what_is_wished_makes_a_version_and_nothing_else_does() {
        let before = hash("", json!(null));
        let cases = [
            ("/spec/nodeName", json!("n"), true),
            ("/metadata/labels/a", json!("b"), true),
            ("/metadata/annotations", json!({"a": "b"}), true),
            (
                "/metadata/deletionTimestamp",
                json!("2026-01-01T00:00:00Z"),
                true,
            ),
            ("/metadata/deletionGracePeriodSeconds", json!(3), true),
            ("/metadata/name", json!("other"), true),
            (
                "/metadata/annotations",
                json!({"kubernetes.io/config.seen": "t"}),
                false,
            ),
            ("/metadata/resourceVersion", json!("7"), false),
            (
                "/metadata/managedFields",
                json!([{"manager": "kubelet"}]),
                false,
            ),
            ("/metadata/generation", json!(2), false),
            ("/metadata/finalizers", json!(["a/b"]), false),
            ("/status", json!({"phase": "Running"}), false),
        ];
        for (pointer, value, is_another) in cases {
            assert_eq!(hash(pointer, value) != before, is_another, "{pointer}");
        }
    }

    #[test]
    fn what_is_kept_has_neither_status_nor_notes_of_a_server() {
        let json = br#"{"metadata":{"name":"n","managedFields":[],"resourceVersion":"7"},"spec":{"a": 1},"status":{"b": 2}}"#;
        let parts = Parts::of(json.to_vec()).unwrap();
        assert_eq!(
            String::from_utf8(parts.wish).unwrap(),
            r#"{"metadata":{"name":"n"},"spec":{"a": 1}}"#
        );
        assert_eq!(parts.status, br#"{"b": 2}"#);
        let plain = br#"{ "spec": {}, "metadata": {} }"#;
        assert_eq!(Parts::of(plain.to_vec()).unwrap().wish, plain);
    }
}
