//! What of the Node others go by. Pure.

use std::collections::HashMap;

use bulkhead_api::v1::{ApiNode, NodeTaint};
use node_config::are_pod_cidrs;
use serde::Deserialize;

use crate::object::Object;

/// Labels and taints that are passed on; more than any node has.
const MAX_LABELS: usize = 1000;
/// See [`MAX_LABELS`].
const MAX_TAINTS: usize = 1000;

/// Longest key, value or effect that is passed on: an API server takes no longer one.
const MAX_WORD_BYTES: usize = 317;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    labels: HashMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    taints: Vec<Taint>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: String,
    value: String,
    effect: String,
}

/// What is passed on of the Node, if there is one.
pub(crate) fn of(node: Option<&Object>) -> ApiNode {
    let Some(node) = node else {
        return ApiNode::default();
    };
    let is_word = |word: &String| word.len() <= MAX_WORD_BYTES;
    // Null stands for none.
    let metadata: Metadata = serde_json::from_str(node.metadata()).unwrap_or_default();
    let spec: Spec = serde_json::from_str(node.spec()).unwrap_or_default();
    let labels = metadata.labels.into_iter();
    let labels = labels.filter(|(key, value)| is_word(key) && is_word(value));
    let taints = spec.taints.into_iter();
    let taints = taints.filter(|it| [&it.key, &it.value, &it.effect].into_iter().all(is_word));
    ApiNode {
        exists: true,
        labels: labels.take(MAX_LABELS).collect(),
        taints: taints
            .take(MAX_TAINTS)
            .map(|Taint { key, value, effect }| NodeTaint { key, value, effect })
            .collect(),
        pod_cidrs: Some(spec.pod_cidrs)
            .filter(|cidrs| are_pod_cidrs(cidrs))
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(labels: serde_json::Value, spec: &serde_json::Value) -> ApiNode {
        let node = json!({"metadata": {"name": "n", "labels": labels}, "spec": spec});
        of(Some(&Object::parse(&node.to_string()).unwrap()))
    }

    #[test]
    fn labels_taints_and_networks_are_passed_on_and_whether_there_is_a_node() {
        assert_eq!(of(None), ApiNode::default());
        let taints =
            json!([{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]);
        let passed = node(
            json!({"a": "b"}),
            &json!({"podCIDRs": ["10.0.0.0/24", "fd00::/64"], "taints": taints}),
        );
        assert!(passed.exists);
        assert_eq!(passed.labels, [("a".to_owned(), "b".to_owned())].into());
        assert_eq!(
            (&*passed.taints[0].key, &*passed.taints[0].effect),
            ("k", "NoExecute")
        );
        assert_eq!(passed.pod_cidrs, ["10.0.0.0/24", "fd00::/64"]);
        let bare = node(serde_json::Value::Null, &json!({}));
        let exists = true;
        assert_eq!(
            bare,
            ApiNode {
                exists,
                ..ApiNode::default()
            }
        );
    }

    #[test]
    fn what_no_api_server_stores_is_not_passed_on() {
        let long = "x".repeat(400);
        let many: HashMap<String, String> = (0..2000)
            .map(|it| (it.to_string(), String::new()))
            .collect();
        assert_eq!(node(json!({"a": long}), &json!({})).labels.len(), 0);
        assert_eq!(node(json!(many), &json!({})).labels.len(), MAX_LABELS);
        let taints = vec![json!({"key": "k"}); 2000];
        assert_eq!(
            node(json!({}), &json!({"taints": taints})).taints.len(),
            MAX_TAINTS
        );
        let networks = json!({"podCIDRs": ["10.0.0.0/24", "rm -rf"]});
        assert_eq!(node(json!({}), &networks).pod_cidrs, [""; 0]);
    }
}
