//! Memory QoS of containers: how much of a container's memory the kernel leaves alone,
//! and from where on it slows the container down, instead of killing it at its limit. By
//! the kubelet's formulas (KEP 2570), for version 2 of cgroups.

use std::collections::BTreeMap;

use node_config::MemoryQos;
use pod::core::Container;
use pod::resources::{container_limits, container_requests};
use pod::{Pod, QosClass};

use crate::node_facts::NodeFacts;

/// What the kernel never takes from a cgroup.
const MIN: &str = "memory.min";
/// What the kernel takes from a cgroup only when there is no other to take it from.
const LOW: &str = "memory.low";
/// From where on the kernel slows a cgroup down.
const HIGH: &str = "memory.high";

/// What is written to files of the container's cgroup; nothing where the node has no
/// memory QoS.
pub(super) fn unified(
    pod: &Pod,
    container: &Container,
    node: &NodeFacts,
) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let Some(qos) = node.memory_qos else {
        return files;
    };
    let request = container_requests(container).memory_bytes();
    let limit = container_limits(container).memory_bytes();
    let kept = match QosClass::of(pod) {
        QosClass::Guaranteed => Some(MIN),
        QosClass::Burstable => Some(LOW),
        QosClass::BestEffort => None,
    };
    if let Some(file) = kept.filter(|_| qos.reserves && request > 0) {
        files.insert(file.to_owned(), request.to_string());
    }
    // A limit that it has from its pod as a whole is none of its own, as for a kubelet.
    let most = if limit > 0 {
        limit
    } else {
        node.pod_memory_bytes
    };
    let high = |factor| high((request, limit), most, node.page_bytes, factor);
    if let Some(high) = qos.throttling_millionths.and_then(high) {
        files.insert(HIGH.to_owned(), high.to_string());
    }
    files
}

/// The same files with what they have where nobody writes to them. A file that a change of
/// a running container leaves out keeps what it has.
pub(super) fn nothing(node: &NodeFacts) -> &'static [(&'static str, &'static str)] {
    match node.memory_qos {
        Some(_) => &[(MIN, "0"), (LOW, "0"), (HIGH, "max")],
        None => &[],
    }
}

/// From where on a container is slowed down: at a part of what lies between its request
/// and the most that it can have (its limit, or what all pods have), in whole pages. None
/// where request and limit are equal: a container without both included.
fn high(
    (request, limit): (i64, i64),
    most: i64,
    page_bytes: u64,
    factor_millionths: u32,
) -> Option<i64> {
    if request == limit || most <= 0 {
        return None;
    }
    let between = i128::from(most) - i128::from(request);
    let high = i128::from(request)
        + between * i128::from(factor_millionths) / i128::from(MemoryQos::MILLION);
    let page = i128::from(page_bytes.max(1));
    let high = i64::try_from(high / page * page).ok()?;
    (high > request).then_some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::{changed_container_resources, container_resources};
    use crate::test_pods::{node, pod};
    use cri::v1::LinuxContainerResources;

    const MIB: i64 = 1 << 20;

    #[test]
    fn a_container_is_slowed_down_between_its_request_and_its_limit() {
        for (request, limit, most, page_bytes, expected) in [
            (0, 100 * MIB, 100 * MIB, 4096, Some(90 * MIB)),
            (100 * MIB, 200 * MIB, 200 * MIB, 4096, Some(190 * MIB)),
            (100 * MIB, 0, 1000 * MIB, 4096, Some(910 * MIB)),
            // Whole pages, of whatever size.
            (0, 10_000, 10_000, 4096, Some(8192)),
            (0, 4096, 4096, 4096, None),
            (0, 100_000, 100_000, 4096, Some(86_016)),
            (0, 100_000, 100_000, 65_536, Some(65_536)),
            // Guaranteed.
            (100 * MIB, 100 * MIB, 100 * MIB, 4096, None),
            // The node has less than is requested.
            (100 * MIB, 0, 50 * MIB, 4096, None),
            (0, 0, 1000 * MIB, 4096, None),
            (
                0,
                i64::MAX,
                i64::MAX,
                4096,
                Some(i64::MAX / 10 * 9 / 4096 * 4096),
            ),
        ] {
            let found = high((request, limit), most, page_bytes, 900_000);
            assert_eq!(found, expected, "{request} {limit} {most} {page_bytes}");
        }
        let all = high((0, 100 * MIB), 100 * MIB, 4096, MemoryQos::MILLION);
        assert_eq!(all, Some(100 * MIB));
    }

    /// As for a kubelet: not by what is left for pods beyond the thresholds of eviction.
    #[test]
    fn without_a_limit_it_is_by_what_all_pods_together_may_use() {
        let pod = pod(r#"{"spec":{"resources":{"limits":{"memory":"256Mi"}},
            "containers":[{"name":"c","resources":{"requests":{"memory":"100Mi"}}}]}}"#);
        let node = NodeFacts {
            memory_qos: Some(MemoryQos::new(Some(0.5), true)),
            allocatable: [("memory".to_owned(), "900Mi".parse().unwrap())].into(),
            pod_memory_bytes: 1000 * MIB,
            ..node()
        };
        let found = unified(&pod, &pod.spec.as_ref().unwrap().containers[0], &node);
        assert_eq!(found["memory.high"], (550 * MIB).to_string());
    }

    #[test]
    fn a_change_lifts_what_is_wanted_no_more() {
        let with_qos = NodeFacts {
            memory_qos: Some(MemoryQos::new(Some(0.5), true)),
            ..node()
        };
        for (resources, node, made, changed) in [
            // Guaranteed: no throttling before the limit.
            (
                r#"{"requests":{"cpu":"1","memory":"1Mi"},
                    "limits":{"cpu":"1","memory":"1Mi"}}"#,
                &with_qos,
                vec![(MIN, "1048576")],
                vec![(HIGH, "max"), (LOW, "0"), (MIN, "1048576")],
            ),
            (
                r#"{"requests":{"memory":"1Mi"},"limits":{"memory":"3Mi"}}"#,
                &with_qos,
                vec![(HIGH, "2097152"), (LOW, "1048576")],
                vec![(HIGH, "2097152"), (LOW, "1048576"), (MIN, "0")],
            ),
            (
                r#"{"requests":{"cpu":"1"}}"#,
                &with_qos,
                vec![],
                vec![(HIGH, "max"), (LOW, "0"), (MIN, "0")],
            ),
            (r#"{"limits":{"memory":"3Mi"}}"#, &node(), vec![], vec![]),
        ] {
            let pod = pod(&format!(
                r#"{{"spec":{{"containers":[{{"name":"c","resources":{resources}}}]}}}}"#
            ));
            let container = &pod.spec.as_ref().unwrap().containers[0];
            let files = |given: LinuxContainerResources| -> Vec<(String, String)> {
                let of_memory = |(file, _): &(String, String)| file != "memory.oom.group";
                given.unified.into_iter().filter(of_memory).collect()
            };
            let expected = |files: Vec<(&str, &str)>| -> Vec<(String, String)> {
                let owned = |(file, value): (&str, &str)| (file.to_owned(), value.to_owned());
                files.into_iter().map(owned).collect()
            };
            let found = files(container_resources(&pod, container, node));
            assert_eq!(found, expected(made), "{resources}");
            let found = files(changed_container_resources(&pod, container, node));
            assert_eq!(found, expected(changed), "{resources}");
        }
    }

    #[test]
    fn without_memory_qos_nothing_is_said() {
        let pod = pod(r#"{"spec":{"containers":[{"name":"c","resources":
            {"requests":{"memory":"64Mi"},"limits":{"memory":"128Mi"}}}]}}"#);
        let container = &pod.spec.as_ref().unwrap().containers[0];
        assert!(unified(&pod, container, &node()).is_empty());
        let high = (HIGH.to_owned(), (96 * MIB).to_string());
        let low = (LOW.to_owned(), (64 * MIB).to_string());
        for (factor, reserves, expected) in [
            (Some(0.5), true, vec![high.clone(), low.clone()]),
            (Some(0.5), false, vec![high]),
            (None, true, vec![low]),
        ] {
            let node = NodeFacts {
                memory_qos: Some(MemoryQos::new(factor, reserves)),
                ..node()
            };
            let expected = expected.into_iter().collect();
            assert_eq!(unified(&pod, container, &node), expected);
        }
    }
}
