//! Memory QoS of containers: how much of a container's memory the kernel leaves alone,
//! and from where on it slows the container down, instead of killing it at its limit. By
//! the kubelet's formulas (KEP 2570), for version 2 of cgroups.

use std::collections::BTreeMap;

use node_config::MemoryQos;
use pod::core::Container;
use pod::resources::{MEMORY, container_limits, container_requests};

use crate::node_facts::NodeFacts;

/// `memory.high` is whole pages of this size.
const PAGE_BYTES: i64 = 4096;

/// What is written to files of the container's cgroup; nothing where the node has no
/// memory QoS.
pub(super) fn unified(container: &Container, node: &NodeFacts) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let Some(qos) = node.memory_qos else {
        return files;
    };
    let request = container_requests(container).memory_bytes();
    let limit = container_limits(container).memory_bytes();
    if request > 0 {
        files.insert("memory.min".to_owned(), request.to_string());
    }
    let allocatable = node
        .allocatable
        .get(MEMORY)
        .map_or(0, |amount| amount.value());
    if let Some(high) = high(request, limit, allocatable, qos) {
        files.insert("memory.high".to_owned(), high.to_string());
    }
    files
}

/// From where on a container is slowed down: at a part of what lies between its request
/// and its limit, or what the node has for pods. None where request and limit are equal:
/// a container without both included.
fn high(request: i64, limit: i64, allocatable: i64, qos: MemoryQos) -> Option<i64> {
    if request == limit {
        return None;
    }
    let most = if limit > 0 { limit } else { allocatable };
    if most <= 0 {
        return None;
    }
    let between = i128::from(most) - i128::from(request);
    let high = i128::from(request)
        + between * i128::from(qos.throttling_millionths) / i128::from(MemoryQos::MILLION);
    let page = i128::from(PAGE_BYTES);
    let high = i64::try_from(high / page * page).ok()?;
    (high > request).then_some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pods::{node, pod};

    const MIB: i64 = 1 << 20;

    #[test]
    fn a_container_is_slowed_down_between_its_request_and_its_limit() {
        let qos = MemoryQos::new(0.9);
        for (request, limit, allocatable, expected) in [
            (0, 100 * MIB, 1000 * MIB, Some(90 * MIB)),
            (100 * MIB, 200 * MIB, 1000 * MIB, Some(190 * MIB)),
            (100 * MIB, 0, 1000 * MIB, Some(910 * MIB)),
            // Whole pages.
            (0, 10_000, 0, Some(8192)),
            (0, 4096, 0, None),
            // Guaranteed.
            (100 * MIB, 100 * MIB, 1000 * MIB, None),
            // The node has less than is requested.
            (100 * MIB, 0, 50 * MIB, None),
            (0, 0, 1000 * MIB, None),
            (0, i64::MAX, 0, Some(i64::MAX / 10 * 9 / 4096 * 4096)),
        ] {
            let found = high(request, limit, allocatable, qos);
            let close = match (found, expected) {
                (Some(found), Some(expected)) => (found - expected).abs() <= 4096,
                (found, expected) => found == expected,
            };
            assert!(close, "{request} {limit} {allocatable}: {found:?}");
        }
        assert_eq!(high(0, 100 * MIB, 0, MemoryQos::new(1.0)), Some(100 * MIB));
    }

    #[test]
    fn without_memory_qos_nothing_is_said() {
        let pod = pod(r#"{"spec":{"containers":[{"name":"c","resources":
            {"requests":{"memory":"64Mi"},"limits":{"memory":"128Mi"}}}]}}"#);
        let container = &pod.spec.as_ref().unwrap().containers[0];
        assert!(unified(container, &node()).is_empty());
        let node = NodeFacts {
            memory_qos: Some(MemoryQos::new(0.5)),
            ..node()
        };
        let expected = [
            ("memory.high".to_owned(), (96 * MIB).to_string()),
            ("memory.min".to_owned(), (64 * MIB).to_string()),
        ];
        assert_eq!(unified(container, &node), expected.into());
    }
}
