//! The node, as far as admission looks at it.

use std::collections::BTreeMap;

use bulkhead_api::v1::ApiNode;
use pod::core::Taint;

/// The node, as far as admission looks at it.
#[derive(Clone, Debug)]
pub(crate) struct NodeDescription {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// `allowedUnsafeSysctls`.
    pub allowed_unsafe_sysctls: Vec<String>,
}

impl NodeDescription {
    /// The same node with labels and taints of the Node that the API server holds; where it
    /// has none, those of the configuration hold.
    pub(super) fn held_as(&self, node: ApiNode) -> NodeDescription {
        if !node.exists {
            return self.clone();
        }
        let taints = node.taints.into_iter();
        let taints = taints.map(|taint| Taint {
            key: taint.key,
            value: Some(taint.value),
            effect: taint.effect,
            ..Taint::default()
        });
        NodeDescription {
            labels: node.labels.into_iter().collect(),
            taints: taints.collect(),
            ..self.clone()
        }
    }
}
