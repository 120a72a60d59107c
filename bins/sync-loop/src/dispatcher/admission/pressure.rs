//! Pods that a node takes while it is short of something.

use bulkhead_api::v1::NodeCapacity;
use eviction::NodeCondition;

use super::rejection::Rejection;
use crate::dispatcher::pod_facts::PodFacts;

/// What the pool says that the node suffers from; a name that nobody knows says nothing.
pub(super) fn conditions(capacity: &NodeCapacity) -> Vec<NodeCondition> {
    let names = capacity
        .node_conditions
        .iter()
        .take(NodeCondition::ALL.len());
    names
        .filter_map(|name| NodeCondition::named(name))
        .collect()
}

/// Refuses a pod that the node has no room for now.
pub(super) fn check(pod: &PodFacts, conditions: &[NodeCondition]) -> Result<(), Rejection> {
    eviction::admit(conditions, pod.under_pressure).map_err(|message| Rejection {
        reason: eviction::REASON.to_owned(),
        message,
    })
}
