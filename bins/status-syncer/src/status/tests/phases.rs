//! The phase of a pod, its end, and the reason and message that come with it.

use super::*;

#[test]
fn at_its_end_every_container_that_could_have_run_has_ended() {
    const LOST: &str = "terminated 137 ContainerStatusUnknown";
    type Setup = fn(&mut Node) -> &mut Node;
    // what was seen, then the states of i1, i2 and c
    let table: &[(&str, Setup, [&str; 3])] = &[
        (
            "nothing ran",
            |node| node,
            [LOST, "waiting PodInitializing", "waiting PodInitializing"],
        ),
        (
            "the first init container runs",
            |node| node.running("i1", "a"),
            [LOST, "waiting PodInitializing", "waiting PodInitializing"],
        ),
        (
            "the first init container failed",
            |node| node.exited("i1", "a", 1),
            [
                "terminated 1 Error",
                "waiting PodInitializing",
                "waiting PodInitializing",
            ],
        ),
        (
            "the second init container runs",
            |node| node.exited("i1", "a", 0).running("i2", "b"),
            ["terminated 0 Completed", LOST, "waiting PodInitializing"],
        ),
        (
            "all init containers completed",
            |node| node.exited("i1", "a", 0).exited("i2", "b", 0),
            ["terminated 0 Completed", "terminated 0 Completed", LOST],
        ),
        (
            "the container runs",
            |node| {
                node.exited("i1", "a", 0)
                    .exited("i2", "b", 0)
                    .running("c", "d")
            },
            ["terminated 0 Completed", "terminated 0 Completed", LOST],
        ),
        (
            "the container ended",
            |node| {
                node.exited("i1", "a", 0)
                    .exited("i2", "b", 0)
                    .exited("c", "d", 0)
            },
            [
                "terminated 0 Completed",
                "terminated 0 Completed",
                "terminated 0 Completed",
            ],
        ),
    ];
    for (what, setup, expected) in table {
        let mut node = Node::with_init("Always");
        setup(&mut node);
        let status = node.phase(WorkerPhase::Terminated).compute();
        let states = ["i1", "i2", "c"].map(|name| state_of(&status, name));
        assert_eq!(states, *expected, "{what}");
    }
}

#[test]
fn a_pod_of_the_api_server_that_was_told_to_end_is_failed_or_succeeded() {
    for (exit_code, expected) in [(0, "Succeeded"), (1, "Failed")] {
        let mut node = Node::with_policy("Always").api_pod();
        node.exited("c", "a", exit_code)
            .phase(WorkerPhase::Terminating);
        assert_eq!(node.compute().phase.as_deref(), Some("Running"));
        node.phase(WorkerPhase::Terminated);
        assert_eq!(node.compute().phase.as_deref(), Some(expected));
    }
}

/// What is told while the pod is stopped is told of a start that is under way too.
#[test]
fn a_pod_that_is_stopped_ends_when_none_of_its_containers_can_run_any_more() {
    use WorkerPhase::{Finished, Syncing, Terminated, Terminating};
    // policy, exit code, why it fails, phase of its worker, and what is told after Running
    for (policy, exit_code, failure, phase, expected) in [
        ("OnFailure", 0, "", Syncing, "Succeeded"),
        ("OnFailure", 0, "", Terminating, "Running"),
        ("OnFailure", 0, "", Terminated, "Succeeded"),
        ("OnFailure", 0, "", Finished, "Succeeded"),
        ("OnFailure", 1, "", Terminating, "Running"),
        ("Never", 1, "", Terminating, "Running"),
        ("Never", 1, "", Terminated, "Failed"),
        ("Always", 0, "Evicted", Terminating, "Running"),
        ("Always", 0, "Evicted", Terminated, "Failed"),
    ] {
        let mut node = Node::with_policy(policy);
        node.running("c", "a").compute();
        node.gone().exited("c", "a", exit_code).phase(phase);
        node.observation.failed_reason = failure.to_owned();
        let told = node.compute().phase;
        let case = (policy, exit_code, failure, phase);
        assert_eq!(told.as_deref(), Some(expected), "{case:?}");
    }
}

#[test]
fn a_static_pod_that_was_removed_keeps_its_phase() {
    let mut node = Node::with_policy("Always");
    node.running("c", "a").compute();
    let status = node
        .gone()
        .exited("c", "a", 0)
        .phase(WorkerPhase::Terminated)
        .compute();
    assert_eq!(status.phase.as_deref(), Some("Running"));
}

// Phase, reason and message.

#[test]
fn a_terminal_phase_is_final() {
    let mut node = Node::with_policy("Never");
    let status = node.exited("c", "a", 1).compute();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let status = node.gone().running("c", "a").compute();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    node.observation.failed_reason = "Evicted".to_owned();
    assert_eq!(
        node.compute().reason,
        None,
        "it failed before it was evicted"
    );
}

#[test]
fn a_terminal_phase_in_the_api_is_final_too() {
    let mut node = Node::with_policy("Always").api_pod();
    node.pod.status = Some(PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some("Evicted".to_owned()),
        ..PodStatus::default()
    });
    let status = node.running("c", "a").compute();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
}

#[test]
fn a_pod_can_be_failed_whatever_its_containers_say() {
    let mut node = Node::with_policy("Always");
    node.running("c", "a").compute();
    node.observation.failed_reason = "DeadlineExceeded".to_owned();
    node.observation.failed_message = "too long".to_owned();
    let status = node.phase(WorkerPhase::Terminating).compute();
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Running"), None),
        "nobody may replace it while its container runs"
    );
    assert!(container(&status, "c").ready);

    node.gone().exited("c", "a", 0);
    let status = node.phase(WorkerPhase::Terminated).compute();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(status.message.as_deref(), Some("too long"));
    assert_eq!(
        condition(&status, "Ready").reason.as_deref(),
        Some("PodFailed")
    );

    // A pool that forgot why does not change it.
    node.observation.failed_reason.clear();
    let again = node.compute();
    assert_eq!(again.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(again.message.as_deref(), Some("too long"));
}

#[test]
fn a_rejected_pod_is_failed_and_says_why_it_was_rejected_last() {
    let node = Node::with_policy("Always");
    let status = rejected_status(
        &node.pod,
        "OutOfcpu",
        "no room",
        None,
        UnixNanos(7 * SECOND),
    );
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    assert_eq!(status.message.as_deref(), Some("Pod was rejected: no room"));
    assert_eq!(status.start_time.as_ref().unwrap().0.as_second(), 7);
    let again = rejected_status(
        &node.pod,
        "OutOfpods",
        "too many",
        Some(&status),
        UnixNanos(9 * SECOND),
    );
    assert_eq!(again.phase, status.phase);
    assert_eq!(again.reason.as_deref(), Some("OutOfpods"));
    assert_eq!(again.message.as_deref(), Some("Pod was rejected: too many"));
    assert_eq!(again.start_time, status.start_time);
    // It had ended otherwise, and that stands.
    for (phase, reason) in [("Succeeded", None), ("Failed", Some("Evicted"))] {
        let mut ended = status.clone();
        ended.phase = Some(phase.to_owned());
        ended.reason = reason.map(str::to_owned);
        ended.message = None;
        let again = rejected_status(&node.pod, "OutOfcpu", "", Some(&ended), UnixNanos(SECOND));
        assert_eq!(again, ended);
    }
}

/// A container whose liveness probe failed may end with 0 when it is asked to.
#[test]
fn a_pod_whose_container_was_stopped_to_be_started_again_has_not_ended() {
    for (is_restarted, phase) in [(false, "Succeeded"), (true, "Running")] {
        let mut node = Node::new(json!({
            "restartPolicy": "OnFailure",
            "containers": [{"name": "c"}],
        }));
        node.exited("c", "c0", 0);
        node.observation.containers[0].is_restarted_after_kill = is_restarted;
        assert_eq!(node.compute().phase.as_deref(), Some(phase));
    }
}

/// What status-syncer has after its own restart: what was published, and no observation.
#[test]
fn a_pod_that_nobody_has_looked_at_yet_keeps_its_phase() {
    let mut node = Node::new(json!({
        "restartPolicy": "OnFailure",
        "containers": [{"name": "c"}],
    }));
    node.exited("c", "c0", 0);
    node.observation.containers[0].is_restarted_after_kill = true;
    assert_eq!(node.compute().phase.as_deref(), Some("Running"));
    node.observation = PodObservation::default();
    assert_eq!(node.compute().phase.as_deref(), Some("Running"));
}
