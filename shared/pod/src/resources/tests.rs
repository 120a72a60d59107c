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
            cpu_quota_micros: Some(200_000),
            memory_limit_bytes: Some(2 << 30)
        }
    );
    let partly = pod(&[container("a", both, both), container("b", "", "")], &[]);
    assert_eq!(
        pod_cgroup_resources(&partly),
        PodCgroupResources {
            cpu_shares: 1024,
            cpu_quota_micros: None,
            memory_limit_bytes: None
        }
    );
    let nothing = pod(&[container("a", "", "")], &[]);
    assert_eq!(
        pod_cgroup_resources(&nothing),
        PodCgroupResources {
            cpu_shares: 2,
            cpu_quota_micros: None,
            memory_limit_bytes: None
        }
    );
}
