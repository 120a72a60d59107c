//! Pods for the tests of several crates.

use pod::{Pod, PodDocument, PodSource};
use serde_json::{Value, json};

/// A static pod with one container `c`.
#[must_use]
pub fn manifest(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": uid,
            "annotations": {"kubernetes.io/config.source": "file"}
        },
        "spec": {
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "c", "image": "localhost/busybox:test"}]
        }
    })
}

/// The same pod from the API server.
#[must_use]
pub fn api_manifest(name: &str, uid: &str) -> Value {
    let mut value = manifest(name, uid);
    value["metadata"]["annotations"] = json!({});
    value
}

/// A pod from its JSON.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn pod(value: Value) -> Pod {
    serde_json::from_value(value).expect("a pod")
}

/// A pod from its JSON, as its source gives it: a manifest, unless its annotations do
/// not say so.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn document(value: Value) -> PodDocument {
    let from_source = &value["metadata"]["annotations"]["kubernetes.io/config.source"];
    let source = match from_source.as_str() {
        Some(_) => PodSource::File,
        None => PodSource::Api,
    };
    PodDocument::encode(&pod(value), source).expect("a pod with a name")
}
