//! Addresses and times, and the bounds on what is published.

use super::*;

#[test]
fn a_pod_keeps_its_address_when_its_sandbox_is_gone() {
    let mut node = Node::with_policy("Never");
    let sandbox = |ready: bool, ips: &[&str]| SandboxObservation {
        ready,
        ips: ips.iter().map(|&ip| ip.to_owned()).collect(),
        ..SandboxObservation::default()
    };
    let ip = |status: PodStatus| status.pod_ip.unwrap_or_default();
    node.observation.sandboxes = vec![sandbox(true, &["10.0.0.5"])];
    assert_eq!(ip(node.compute()), "10.0.0.5");
    node.observation.sandboxes = vec![sandbox(false, &[])];
    assert_eq!(ip(node.compute()), "10.0.0.5");
    node.observation.sandboxes.clear();
    assert_eq!(ip(node.compute()), "10.0.0.5");
    node.observation.sandboxes = vec![sandbox(true, &[]), sandbox(false, &["10.0.0.5"])];
    assert_eq!(ip(node.compute()), "", "a new sandbox has no address yet");
    node.observation.sandboxes = vec![sandbox(true, &["10.0.0.6", "not an address"])];
    assert_eq!(ip(node.compute()), "10.0.0.6");
}

#[test]
fn the_first_address_is_of_the_nodes_family() {
    let mut node = Node::with_policy("Always");
    node.observation.sandboxes = vec![SandboxObservation {
        ready: true,
        ips: ["10.0.0.5", "10.0.0.6", "fd00::5"]
            .map(str::to_owned)
            .into(),
        ..SandboxObservation::default()
    }];
    node.observation.host_ip = "fd00::1".to_owned();
    let status = node.compute();
    let ips: Vec<_> = status
        .pod_ips
        .iter()
        .flatten()
        .map(|ip| ip.ip.as_str())
        .collect();
    assert_eq!(ips, ["fd00::5", "10.0.0.5"]);
    assert_eq!(status.pod_ip.as_deref(), Some("fd00::5"));
    assert_eq!(status.host_ip.as_deref(), Some("fd00::1"));
}

#[test]
fn a_pod_that_ran_before_we_came_is_as_old_as_it_is() {
    let mut node = Node::with_policy("Always");
    let status = node.running("c", "a").compute();
    assert_eq!(status.start_time.unwrap().0.as_second(), 10);
}

#[test]
fn messages_are_bounded_per_container_and_per_pod() {
    let length = |containers: usize| {
        let list: Vec<_> = (0..containers)
            .map(|number| json!({"name": format!("c{number}")}))
            .collect();
        let mut node = Node::new(json!({"restartPolicy": "Never", "containers": list}));
        for number in 0..containers {
            node.exited(&format!("c{number}"), &format!("id{number}"), 1);
        }
        for instance in &mut node.observation.containers {
            instance.message = "ä".repeat(10_000);
        }
        let status = node.compute();
        let state = container(&status, "c0").state.clone().unwrap();
        state.terminated.unwrap().message.unwrap().len()
    };
    assert_eq!(length(1), 4096);
    assert_eq!(length(3), 4096);
    assert_eq!(length(6), 2048);
    assert_eq!(length(12), 1024);
}

#[test]
fn hostile_observations_do_no_harm() {
    let mut node = Node::with_policy("Always");
    node.running("c", "a")
        .running("not in the spec", "b")
        .waiting("neither is this", "X");
    let instance = &mut node.observation.containers[0];
    instance.started_at_unix_nanos = i64::MIN;
    instance.created_at_unix_nanos = i64::MAX;
    instance.restart_count = u32::MAX;
    instance.state = 77;
    node.observation.phase = -5;
    node.observation.host_ip = "; rm".to_owned();
    let status = node.compute();
    assert_eq!(status.container_statuses.as_ref().map(Vec::len), Some(1));
    assert_eq!(status.host_ip, None);
}
