//! The mirror of a static pod: a pod of the API server by which people see it
//! (`pkg/kubelet/pod/mirror_client.go`). Pure.

use pod::PodDocument;
use pod::metadata::{CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION};
use serde_json::{Map, Value, json};

/// A static pod as its mirror shows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StaticPod {
    /// By which a mirror is known to be this pod's.
    pub(crate) hash: String,
    /// The pod without what an API server gives it, and without status.
    object: Map<String, Value>,
}

impl StaticPod {
    /// None when it cannot be read.
    pub(crate) fn of(desired: &PodDocument) -> Option<StaticPod> {
        let pod: Value = serde_json::from_slice(desired.json()).ok()?;
        let metadata = &pod["metadata"];
        let mut annotations = metadata["annotations"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        let hash = annotations.get(CONFIG_HASH_ANNOTATION);
        let hash = hash.and_then(Value::as_str);
        let hash = hash.unwrap_or(desired.identity().uid()).to_owned();
        annotations.insert(CONFIG_MIRROR_ANNOTATION.to_owned(), json!(hash));
        let object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "labels": metadata["labels"],
                "annotations": annotations,
            },
            "spec": pod["spec"],
        });
        let Value::Object(object) = object else {
            return None;
        };
        Some(StaticPod { hash, object })
    }

    /// The mirror that is created. The Node owns it: it goes with the Node.
    pub(crate) fn mirror(&self, node_name: &str, node_uid: &str) -> Value {
        let mut object = Value::Object(self.object.clone());
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1",
            "kind": "Node",
            "name": node_name,
            "uid": node_uid,
            "controller": true,
        }]);
        object["spec"]["nodeName"] = json!(node_name);
        object
    }
}

#[cfg(test)]
mod tests {
    use pod::PodSource;

    use super::*;

    #[test]
    fn a_mirror_is_the_static_pod_with_its_hash_and_the_node_as_owner() {
        let json = json!({
            "metadata": {"name": "web-n", "namespace": "d", "uid": "u", "labels": {"a": "b"},
                "annotations": {"kubernetes.io/config.hash": "h"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running"},
        });
        let (document, _) =
            PodDocument::from_json(json.to_string().into_bytes(), PodSource::File).unwrap();
        let pod = StaticPod::of(&document).unwrap();
        assert_eq!(pod.hash, "h");
        let mirror = pod.mirror("n", "node-uid");
        let metadata = &mirror["metadata"];
        assert_eq!(metadata["annotations"]["kubernetes.io/config.mirror"], "h");
        assert_eq!(metadata["ownerReferences"][0]["uid"], "node-uid");
        assert_eq!(metadata["labels"], json!({"a": "b"}));
        assert_eq!(metadata["uid"], Value::Null);
        assert_eq!(mirror["spec"]["nodeName"], "n");
        assert_eq!(mirror["status"], Value::Null);
    }
}
