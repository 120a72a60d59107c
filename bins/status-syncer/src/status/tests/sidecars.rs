//! Statuses of sidecars, and what they count for.

use super::*;

/// A pod with a sidecar `s`, an init container `i` and a container `c`.
fn node(policy: &str) -> Node {
    Node::new(json!({
        "restartPolicy": policy,
        "initContainers": [
            {
                "name": "s", "restartPolicy": "Always",
                "startupProbe": {"exec": {}}, "readinessProbe": {"exec": {}},
            },
            {"name": "i"},
        ],
        "containers": [{"name": "c"}],
    }))
}

fn holds(status: &PodStatus, type_: &str) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|it| it.type_ == type_ && it.status == "True")
}

fn sidecar(status: &PodStatus) -> (Option<bool>, bool) {
    let status = container(status, "s");
    (status.started, status.ready)
}

#[test]
fn a_sidecar_has_started_and_is_ready_as_its_probes_say() {
    let mut node = node("Always");
    let status = node.running("s", "a").compute();
    assert_eq!(sidecar(&status), (Some(false), false));
    assert!(!holds(&status, "Initialized"));
    node.verdict("a", ProbeKind::Startup, ProbeResult::Success);
    let status = node.compute();
    assert_eq!(sidecar(&status), (Some(true), false));
    assert!(!holds(&status, "Initialized"), "the other one has not run");
    let status = node.exited("i", "b", 0).compute();
    assert!(holds(&status, "Initialized"));
    let status = node.running("c", "d").compute();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert!(!holds(&status, "ContainersReady"), "the sidecar is not");
    node.verdict("a", ProbeKind::Readiness, ProbeResult::Success);
    let status = node.compute();
    assert_eq!(sidecar(&status), (Some(true), true));
    assert!(holds(&status, "ContainersReady") && holds(&status, "Ready"));
}

#[test]
fn a_sidecar_that_crashes_waits_whatever_the_policy_and_the_pod_stays_initialized() {
    for policy in ["Always", "OnFailure", "Never"] {
        for code in [0, 1] {
            let mut node = node(policy);
            node.exited("i", "b", 0).running("c", "d");
            node.exited("s", "a", code).waiting("s", "CrashLoopBackOff");
            let status = node.compute();
            assert_eq!(state_of(&status, "s"), "waiting CrashLoopBackOff");
            assert_eq!(status.phase.as_deref(), Some("Running"), "{policy} {code}");
            assert!(holds(&status, "Initialized"));
            assert!(!holds(&status, "Ready"));
        }
    }
}

#[test]
fn a_sidecar_that_is_gone_from_the_runtime_has_not_completed() {
    let mut node = node("Always");
    node.running("c", "d");
    let status = node.compute();
    assert_eq!(state_of(&status, "s"), "waiting PodInitializing");
    assert_eq!(state_of(&status, "i"), "terminated 0 Completed");
}

#[test]
fn a_pod_whose_init_container_failed_has_not_ended_while_a_sidecar_runs() {
    let mut node = node("Never");
    let status = node.running("s", "a").compute();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    node.exited("i", "b", 1);
    for phase in [WorkerPhase::Syncing, WorkerPhase::Terminating] {
        for state in [RuntimeState::Running, RuntimeState::Unknown] {
            node.observation.containers[0].set_state(state);
            let status = node.phase(phase).compute();
            assert_eq!(status.phase.as_deref(), Some("Pending"), "{phase:?}");
        }
    }
    node.gone().exited("s", "a", 137).exited("i", "b", 1);
    let status = node.phase(WorkerPhase::Terminated).compute();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
}
