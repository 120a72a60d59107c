//! Pods that a node takes while it is short of something.

use bulkhead_api::v1::NodeCapacity;
use eviction::NodeCondition;
use pod::EVICTED;

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
        reason: EVICTED.to_owned(),
        message,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dispatcher::tests::manifest;

    fn refusal(conditions: &[&str], spec: serde_json::Value) -> Option<String> {
        let told = NodeCapacity {
            node_conditions: conditions.iter().map(|&name| name.to_owned()).collect(),
            ..NodeCapacity::default()
        };
        let pod = serde_json::from_value(manifest("u", "a", spec)).unwrap();
        let refused = check(&PodFacts::of(&pod), &super::conditions(&told)).err()?;
        assert_eq!(refused.reason, "Evicted");
        Some(refused.message)
    }

    #[test]
    fn a_pod_that_the_node_has_no_room_for_now_is_refused_in_the_kubelets_words() {
        let said = |names: &str| Some(format!("The node had condition: [{names}]. "));
        let requests = || {
            json!({"containers": [{
                "name": "c", "image": "i", "resources": {"requests": {"memory": "1Mi"}},
            }]})
        };
        let critical = json!({"priorityClassName": "system-cluster-critical"});
        for (conditions, spec, expected) in [
            (&[][..], json!({}), None),
            (&["MemoryPressure"], json!({}), said("MemoryPressure")),
            (&["MemoryPressure"], requests(), None),
            (&["DiskPressure"], requests(), said("DiskPressure")),
            (&["DiskPressure", "PIDPressure"], critical, None),
            (&["nonsense"], json!({}), None),
        ] {
            assert_eq!(refusal(conditions, spec), expected, "{conditions:?}");
        }
    }
}
