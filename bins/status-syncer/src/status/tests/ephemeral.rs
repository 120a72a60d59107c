//! Statuses of ephemeral containers, which count for nothing else.

use super::*;

fn node(policy: &str) -> Node {
    Node::new(json!({
        "restartPolicy": policy,
        "containers": [{"name": "c"}],
        "ephemeralContainers": [{"name": "e"}],
    }))
    .api_pod()
}

fn told(status: &PodStatus) -> &ContainerStatus {
    let all = status.ephemeral_container_statuses.as_deref();
    &all.unwrap()[0]
}

#[test]
fn an_ephemeral_container_is_told_of_beside_the_others() {
    for policy in ["Always", "Never"] {
        let mut node = node(policy);
        let status = node.running("c", "a").compute();
        let waiting = told(&status).state.as_ref().unwrap().waiting.as_ref();
        let reason = waiting.unwrap().reason.as_deref();
        assert_eq!(reason, Some("ContainerCreating"));
        assert_eq!(status.phase.as_deref(), Some("Running"), "nobody waits");
        assert_eq!(condition(&status, "Ready").status, "True");
        let status = node.running("e", "b").compute();
        assert!(told(&status).state.as_ref().unwrap().running.is_some());
        assert!(!told(&status).ready && told(&status).started.is_none());
        node.observation.containers.truncate(1);
        node.exited("e", "b", 3).waiting("e", "CrashLoopBackOff");
        let status = node.compute();
        let ended = told(&status).state.as_ref().unwrap().terminated.as_ref();
        assert_eq!(ended.unwrap().exit_code, 3, "no other start follows");
        assert_eq!(status.phase.as_deref(), Some("Running"));
        assert_eq!(condition(&status, "Ready").status, "True");
    }
}

#[test]
fn one_that_runs_keeps_no_pod_from_having_ended() {
    let mut node = node("Never");
    let status = node.exited("c", "a", 0).running("e", "b").compute();
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
}
