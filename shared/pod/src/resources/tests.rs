//! Requests, limits, QoS classes and what follows from them.

use super::*;

fn container(name: &str, requests: &str, limits: &str) -> String {
    format!(
        r#"{{"name":"{name}","resources":{{"requests":{{{requests}}},"limits":{{{limits}}}}}}}"#
    )
}

fn pod(containers: &[String], init: &[String]) -> Pod {
    serde_json::from_str(&format!(
        r#"{{"spec":{{"containers":[{}],"initContainers":[{}]}}}}"#,
        containers.join(","),
        init.join(",")
    ))
    .unwrap()
}

#[test]
fn requests_are_the_sum_or_the_largest_init_container() {
    let pod = pod(
        &[
            container("a", r#""cpu":"100m","memory":"1Gi""#, ""),
            container("b", r#""cpu":"200m","memory":"1Gi""#, ""),
        ],
        &[
            container("i", r#""cpu":"1","memory":"1Mi""#, ""),
            container("j", r#""cpu":"500m""#, ""),
        ],
    );
    let requests = pod_requests(&pod);
    assert_eq!(requests.cpu_millis(), 1000);
    assert_eq!(requests.memory_bytes(), 2 << 30);
}

#[test]
fn sidecars_add_to_the_sum_and_to_later_init_containers() {
    let pod: Pod = serde_json::from_str(
        r#"{"spec":{
            "containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}],
            "initContainers":[
                {"name":"s","restartPolicy":"Always","resources":{"requests":{"cpu":"2"}}},
                {"name":"i","resources":{"requests":{"cpu":"4"}}}]}}"#,
    )
    .unwrap();
    assert_eq!(pod_requests(&pod).cpu_millis(), 6000);
}

#[test]
fn overhead_adds_to_requests_and_to_limits_that_exist() {
    let pod: Pod = serde_json::from_str(
        r#"{"spec":{"overhead":{"cpu":"250m","memory":"64Mi"},
            "containers":[{"name":"c","resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2"}}}]}}"#,
    )
    .unwrap();
    assert_eq!(pod_requests(&pod).cpu_millis(), 1250);
    assert_eq!(pod_requests(&pod).memory_bytes(), 64 << 20);
    assert_eq!(pod_limits(&pod).cpu_millis(), 2250);
    assert_eq!(pod_limits(&pod).memory_bytes(), 0);
}

#[test]
fn qos_class_follows_the_kubelets_rules() {
    let both = r#""cpu":"1","memory":"1Gi""#;
    for (name, containers, init, expected) in [
        (
            "nothing",
            vec![container("a", "", "")],
            vec![],
            QosClass::BestEffort,
        ),
        (
            "zero",
            vec![container("a", r#""cpu":"0""#, "")],
            vec![],
            QosClass::BestEffort,
        ),
        (
            "storage only",
            vec![container("a", r#""ephemeral-storage":"1Gi""#, "")],
            vec![],
            QosClass::BestEffort,
        ),
        (
            "equal",
            vec![container("a", both, both)],
            vec![],
            QosClass::Guaranteed,
        ),
        (
            "equal, written otherwise",
            vec![container("a", r#""cpu":"1000m","memory":"1024Mi""#, both)],
            vec![],
            QosClass::Guaranteed,
        ),
        (
            "less requested",
            vec![container("a", r#""cpu":"1""#, both)],
            vec![],
            QosClass::Burstable,
        ),
        (
            "one limit only",
            vec![container("a", r#""cpu":"1""#, r#""cpu":"1""#)],
            vec![],
            QosClass::Burstable,
        ),
        (
            "one container without",
            vec![container("a", both, both), container("b", "", "")],
            vec![],
            QosClass::Burstable,
        ),
        (
            "init container without",
            vec![container("a", both, both)],
            vec![container("i", "", "")],
            QosClass::Burstable,
        ),
        (
            "request only",
            vec![container("a", both, "")],
            vec![],
            QosClass::Burstable,
        ),
    ] {
        assert_eq!(QosClass::of(&pod(&containers, &init)), expected, "{name}");
    }
}

#[test]
fn oom_scores_follow_class_and_request() {
    const CAPACITY: i64 = 1000 << 20;
    let both = r#""cpu":"1","memory":"1Gi""#;
    for (requests, limits, expected) in [
        ("", "", 1000),
        (both, both, -997),
        (r#""memory":"100Mi""#, "", 900),
        (r#""memory":"1000Mi""#, "", 3),
        (r#""memory":"9Gi""#, "", 3),
        (r#""cpu":"1""#, "", 999),
        (r#""memory":"1""#, "", 999),
    ] {
        let pod = pod(&[container("a", requests, limits)], &[]);
        assert_eq!(
            oom_score_adj(&pod, &pod.containers()[0], CAPACITY),
            expected,
            "{requests} {limits}"
        );
    }
}

#[test]
fn a_node_critical_pod_is_spared() {
    let mut pod = pod(&[container("a", "", "")], &[]);
    let spec = pod.spec.as_mut().unwrap();
    spec.priority_class_name = Some("system-node-critical".to_owned());
    spec.priority = Some(2_000_001_000);
    assert_eq!(oom_score_adj(&pod, &pod.containers()[0], 1 << 30), -997);
}

#[test]
fn cpu_figures_stay_within_what_the_kernel_takes() {
    for (millis, shares, quota) in [
        (-5, 2, None),
        (0, 2, None),
        (1, 2, Some(1000)),
        (10, 10, Some(1000)),
        (100, 102, Some(10_000)),
        (1000, 1024, Some(100_000)),
        (1_000_000, 262_144, Some(100_000_000)),
    ] {
        assert_eq!(cpu_shares(millis), shares, "{millis}");
        assert_eq!(
            cpu_quota_micros(millis, CPU_PERIOD_MICROS),
            quota,
            "{millis}"
        );
    }
    assert_eq!(cpu_weight(2), 1);
    assert_eq!(cpu_weight(1024), 39);
    assert_eq!(cpu_weight(262_144), 10_000);
}

#[test]
fn a_pod_is_limited_only_if_all_its_containers_are() {
    let both = r#""cpu":"1","memory":"1Gi""#;
    let limited = pod(
        &[container("a", both, both), container("b", both, both)],
        &[],
    );
    assert_eq!(
        pod_cgroup_resources(&limited),
        PodCgroupResources {
            cpu_shares: 2048,
            cpu_request_millis: 2000,
            cpu_quota_micros: Some(200_000),
            memory_limit_bytes: Some(2 << 30),
            memory_request_bytes: 2 << 30,
            huge_pages: BTreeMap::new(),
        }
    );
    let partly = pod(&[container("a", both, both), container("b", "", "")], &[]);
    assert_eq!(
        pod_cgroup_resources(&partly),
        PodCgroupResources {
            cpu_shares: 1024,
            cpu_request_millis: 1000,
            cpu_quota_micros: None,
            memory_limit_bytes: None,
            memory_request_bytes: 1 << 30,
            huge_pages: BTreeMap::new(),
        }
    );
    let nothing = pod(&[container("a", "", "")], &[]);
    assert_eq!(
        pod_cgroup_resources(&nothing),
        PodCgroupResources {
            cpu_shares: 2,
            cpu_request_millis: 0,
            cpu_quota_micros: None,
            memory_limit_bytes: None,
            memory_request_bytes: 0,
            huge_pages: BTreeMap::new(),
        }
    );
}

#[test]
fn huge_pages_of_a_pod_are_those_of_its_containers_together() {
    let resources = r#""memory":"1Gi","hugepages-2Mi":"4Mi""#;
    let wanting = pod(
        &[
            container("a", resources, resources),
            container("b", resources, resources),
        ],
        &[container("i", resources, resources)],
    );
    let pages = pod_cgroup_resources(&wanting).huge_pages;
    assert_eq!(pages, [(2 << 20, 8 << 20)].into());
}

/// A pod of two containers that states these requests and limits for itself.
fn stating(requests: &str, limits: &str) -> Pod {
    let mut pod = pod(
        &[
            container("a", r#""memory":"64Mi""#, ""),
            container("b", "", r#""memory":"32Mi""#),
        ],
        &[],
    );
    let stated = format!(r#"{{"requests":{{{requests}}},"limits":{{{limits}}}}}"#);
    pod.spec.as_mut().unwrap().resources = serde_json::from_str(&stated).unwrap();
    pod
}

#[test]
fn what_a_pod_states_for_itself_counts_instead_of_its_containers() {
    let stated = stating(r#""cpu":"1","memory":"256Mi""#, r#""memory":"512Mi""#);
    let (requests, limits) = (pod_requests(&stated), pod_limits(&stated));
    assert_eq!(
        (requests.cpu_millis(), requests.memory_bytes()),
        (1000, 256 << 20)
    );
    assert_eq!((limits.cpu_millis(), limits.memory_bytes()), (0, 512 << 20));
    let cgroup = pod_cgroup_resources(&stated);
    assert_eq!(cgroup.cpu_shares, 1024);
    assert_eq!(cgroup.cpu_quota_micros, None);
    assert_eq!(cgroup.memory_limit_bytes, Some(512 << 20));
    // Disks are no matter of a pod as a whole.
    let storage = stating(r#""ephemeral-storage":"1Gi""#, "");
    assert_eq!(pod_requests(&storage).ephemeral_storage_bytes(), 0);
    assert!(pod_level(&storage).is_none());
}

#[test]
fn the_class_follows_what_a_pod_states_for_itself() {
    let all = r#""cpu":"1","memory":"1Gi""#;
    for (requests, limits, class) in [
        (all, all, QosClass::Guaranteed),
        (all, "", QosClass::Burstable),
        (all, r#""cpu":"1","memory":"2Gi""#, QosClass::Burstable),
        (r#""cpu":"1""#, r#""cpu":"1""#, QosClass::Burstable),
        (
            r#""hugepages-2Mi":"2Mi""#,
            r#""hugepages-2Mi":"2Mi""#,
            QosClass::BestEffort,
        ),
        // By the containers.
        ("", "", QosClass::Burstable),
    ] {
        assert_eq!(
            QosClass::of(&stating(requests, limits)),
            class,
            "{requests} {limits}"
        );
    }
}

#[test]
fn a_container_without_a_limit_has_that_of_its_pod() {
    let stated = stating("", r#""cpu":"2","memory":"1Gi","hugepages-2Mi":"2Mi""#);
    let limits = |index: usize| container_limits_in_pod(&stated, &stated.containers()[index]);
    assert_eq!(limits(0).memory_bytes(), 1 << 30);
    assert_eq!(limits(1).memory_bytes(), 32 << 20);
    assert_eq!(limits(1).cpu_millis(), 2000);
    assert_eq!(limits(0).get("hugepages-2Mi"), None);
}

#[test]
fn memory_that_only_the_pod_requests_counts_for_all_of_its_containers() {
    let stated = stating(r#""memory":"264Mi""#, r#""cpu":"1""#);
    let score = |index: usize| oom_score_adj(&stated, &stated.containers()[index], 1 << 30);
    // 200 MiB are shared out among two.
    assert_eq!(score(0), 1000 - 1000 * (64 + 100) / 1024);
    assert_eq!(score(1), 1000 - 1000 * 100 / 1024);
}
