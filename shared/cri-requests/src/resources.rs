//! The kernel's figures for containers and sandboxes.

use std::collections::BTreeMap;

use cri::v1::{HugepageLimit, LinuxContainerResources};
use pod::core::Container;
use pod::huge_pages::{by_page_size, kernel_name};
use pod::resources::{
    CPU, MEMORY, ResourceAmounts, container_limits_in_pod, container_requests, cpu_quota_micros,
    cpu_shares, oom_score_adj, pod_level_limits, pod_limits_without_overhead,
    pod_requests_without_overhead,
};
use pod::{Pod, PodExt, Quantity};

use crate::memory_qos;
use crate::node_facts::NodeFacts;

/// What a container gets: when it is made, and when that is changed while it runs.
#[must_use]
pub fn container_resources(
    pod: &Pod,
    container: &Container,
    node: &NodeFacts,
) -> LinuxContainerResources {
    let limits = container_limits_in_pod(pod, container);
    let score = oom_score_adj(pod, container, node.memory_capacity_bytes);
    LinuxContainerResources {
        oom_score_adj: i64::from(score),
        unified: unified(pod, container, node),
        hugepage_limits: huge_page_limits(pod, &limits, &node.huge_page_sizes),
        ..cpu_and_memory(&container_requests(container), &limits, node)
    }
}

/// What a running container gets when its resources have changed: what it would be made
/// with, and an end to what it was made with and is to have no more.
#[must_use]
pub fn changed_container_resources(
    pod: &Pod,
    container: &Container,
    node: &NodeFacts,
) -> LinuxContainerResources {
    let mut resources = container_resources(pod, container, node);
    for &(file, nothing) in memory_qos::nothing(node) {
        resources
            .unified
            .entry(file.to_owned())
            .or_insert_with(|| nothing.to_owned());
    }
    resources
}

/// What is written to files of the container's cgroup as it is, where cgroups are of
/// version 2.
fn unified(pod: &Pod, container: &Container, node: &NodeFacts) -> BTreeMap<String, String> {
    let mut files = memory_qos::unified(pod, container, node);
    if node.oom_kills_all {
        files.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    files
}

/// What the containers of a pod get together. Only told to the runtime for its
/// information: the pod's cgroup is ours.
pub(super) fn sandbox_resources(pod: &Pod, node: &NodeFacts) -> LinuxContainerResources {
    let requests = pod_requests_without_overhead(pod);
    cpu_and_memory(&requests, &pod_limits_without_overhead(pod), node)
}

/// What the sandbox itself needs.
pub(super) fn sandbox_overhead(pod: &Pod, node: &NodeFacts) -> LinuxContainerResources {
    match &pod.spec_or_default().overhead {
        Some(overhead) => {
            let amounts = ResourceAmounts::of(Some(overhead));
            cpu_and_memory(&amounts, &amounts, node)
        }
        None => LinuxContainerResources::default(),
    }
}

fn cpu_and_memory(
    requests: &ResourceAmounts,
    limits: &ResourceAmounts,
    node: &NodeFacts,
) -> LinuxContainerResources {
    let requested = requests.get(CPU);
    let millis = requested.map_or_else(|| limits.cpu_millis(), Quantity::milli_value);
    let period = node.cpu_cfs_quota_period_micros;
    let (cpu_period, cpu_quota) = if node.cpu_cfs_quota {
        (
            period,
            cpu_quota_micros(limits.cpu_millis(), period).unwrap_or(0),
        )
    } else {
        (0, 0)
    };
    LinuxContainerResources {
        cpu_shares: signed(cpu_shares(millis)),
        cpu_period: signed(cpu_period),
        cpu_quota: signed(cpu_quota),
        memory_limit_in_bytes: limits.get(MEMORY).map_or(0, Quantity::value).max(0),
        ..LinuxContainerResources::default()
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A limit for each size that the kernel has: none of them unless the container asks, or
/// its pod does and the container states none.
fn huge_page_limits(pod: &Pod, limits: &ResourceAmounts, sizes: &[u64]) -> Vec<HugepageLimit> {
    let mut wanted = by_page_size(limits.iter());
    if wanted.is_empty() {
        wanted = by_page_size(pod_level_limits(pod).iter());
    }
    let limit = |size: &u64| HugepageLimit {
        page_size: kernel_name(*size),
        limit: wanted.get(size).copied().unwrap_or(0),
    };
    sizes.iter().map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pods::{node, pod};

    fn of(resources: &str) -> LinuxContainerResources {
        let pod = pod(&format!(
            r#"{{"spec":{{"containers":[{{"name":"c","resources":{resources}}}]}}}}"#
        ));
        container_resources(&pod, &pod.containers()[0], &node())
    }

    #[test]
    fn a_container_that_has_no_memory_left_is_killed_whole_where_the_node_has_it_so() {
        let pod = pod(r#"{"spec":{"containers":[{"name":"c"}]}}"#);
        for (oom_kills_all, expected) in [(false, None), (true, Some("1"))] {
            let node = NodeFacts {
                oom_kills_all,
                ..node()
            };
            let resources = container_resources(&pod, &pod.containers()[0], &node);
            let found = resources.unified.get("memory.oom.group");
            assert_eq!(found.map(String::as_str), expected);
        }
    }

    #[test]
    fn huge_pages_are_the_containers_or_else_those_of_its_pod() {
        let mut node = node();
        node.huge_page_sizes = vec![2 << 20];
        let limit = |own: &str| {
            let pod = pod(&format!(
                r#"{{"spec":{{"resources":{{"limits":{{"hugepages-2Mi":"64Mi"}}}},
                    "containers":[{{"name":"c","resources":{{"limits":{{{own}}}}}}}]}}}}"#
            ));
            let resources = container_resources(&pod, &pod.containers()[0], &node);
            resources.hugepage_limits[0].limit
        };
        assert_eq!(limit(r#""hugepages-2Mi":"4Mi""#), 4 << 20);
        assert_eq!(limit(r#""cpu":"1""#), 64 << 20);
    }

    #[test]
    fn shares_follow_the_request_or_else_the_limit() {
        assert_eq!(of("{}").cpu_shares, 2);
        assert_eq!(of(r#"{"requests":{"cpu":"1"}}"#).cpu_shares, 1024);
        assert_eq!(of(r#"{"limits":{"cpu":"500m"}}"#).cpu_shares, 512);
        assert_eq!(
            of(r#"{"requests":{"cpu":"0"},"limits":{"cpu":"500m"}}"#).cpu_shares,
            2
        );
    }

    #[test]
    fn a_quota_needs_a_limit_and_the_setting() {
        let resources = r#"{"limits":{"cpu":"250m","memory":"1Mi"}}"#;
        let limited = of(resources);
        assert_eq!((limited.cpu_period, limited.cpu_quota), (100_000, 25_000));
        assert_eq!(limited.memory_limit_in_bytes, 1 << 20);
        assert_eq!(of("{}").cpu_quota, 0);

        let pod = pod(&format!(
            r#"{{"spec":{{"containers":[{{"name":"c","resources":{resources}}}]}}}}"#
        ));
        let mut node = node();
        node.cpu_cfs_quota = false;
        let unlimited = container_resources(&pod, &pod.containers()[0], &node);
        assert_eq!((unlimited.cpu_period, unlimited.cpu_quota), (0, 0));
        node.cpu_cfs_quota = true;
        node.cpu_cfs_quota_period_micros = 10_000;
        let short = container_resources(&pod, &pod.containers()[0], &node);
        assert_eq!((short.cpu_period, short.cpu_quota), (10_000, 2_500));
    }

    #[test]
    fn huge_pages_are_forbidden_unless_asked_for() {
        let limits = |resources: &str| {
            let limits = of(resources).hugepage_limits;
            limits
                .into_iter()
                .map(|limit| (limit.page_size, limit.limit))
                .collect::<Vec<_>>()
        };
        assert_eq!(limits("{}"), [("2MB".to_owned(), 0), ("1GB".to_owned(), 0)]);
        assert_eq!(
            limits(r#"{"limits":{"hugepages-2Mi":"8Mi","hugepages-1Gi":"1Gi"}}"#),
            [("2MB".to_owned(), 8 << 20), ("1GB".to_owned(), 1 << 30)]
        );
        // A size that the kernel has not.
        assert_eq!(limits(r#"{"limits":{"hugepages-64Ki":"1Mi"}}"#)[0].1, 0);
    }

    #[test]
    fn a_container_without_limits_has_those_of_its_pod() {
        let pod = pod(
            r#"{"spec":{"resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2","memory":"1Gi"}},
                "containers":[{"name":"c"},
                    {"name":"d","resources":{"requests":{"cpu":"100m"},"limits":{"memory":"1Mi"}}}]}}"#,
        );
        let of = |index: usize| container_resources(&pod, &pod.containers()[index], &node());
        let (free, bounded) = (of(0), of(1));
        assert_eq!((free.cpu_shares, free.cpu_quota), (2048, 200_000));
        assert_eq!(free.memory_limit_in_bytes, 1 << 30);
        assert_eq!((bounded.cpu_shares, bounded.cpu_quota), (102, 200_000));
        assert_eq!(bounded.memory_limit_in_bytes, 1 << 20);
        assert_eq!(sandbox_resources(&pod, &node()).cpu_shares, 1024);
    }

    #[test]
    fn overhead_is_its_own_and_empty_without_one() {
        let plain = pod(r#"{"spec":{"containers":[{"name":"c"}]}}"#);
        assert_eq!(
            sandbox_overhead(&plain, &node()),
            LinuxContainerResources::default()
        );
        let heavy = pod(
            r#"{"spec":{"overhead":{"cpu":"250m","memory":"10Mi"},"containers":[{"name":"c",
                "resources":{"limits":{"cpu":"1","memory":"20Mi"}}}]}}"#,
        );
        let overhead = sandbox_overhead(&heavy, &node());
        assert_eq!((overhead.cpu_shares, overhead.cpu_quota), (256, 25_000));
        let resources = sandbox_resources(&heavy, &node());
        assert_eq!((resources.cpu_shares, resources.cpu_quota), (1024, 100_000));
        assert_eq!(resources.memory_limit_in_bytes, 20 << 20);
    }
}
