//! How long containers get from their SIGTERM, whatever happens meanwhile.

use std::time::Duration;

use bulkhead_api::v1;
use pod_lifecycle::{KillRequest, UpdateKind};
use serde_json::{Value, json};
use simulated_runtime::{Faults, Happening};
use tokio::time::Instant;

use super::running;
use crate::testing::{START, TestNode, eventually, pod_running};

/// A pod that ignores SIGTERM and whose liveness probe has a grace of its own.
pub(super) fn stubborn(probe_grace: u64) -> Value {
    let mut pod = pod_running("a", "u1", &["ignore-term"]);
    pod["spec"]["containers"][0]["livenessProbe"] = json!({
        "exec": {"command": ["true"]},
        "terminationGracePeriodSeconds": probe_grace,
    });
    pod
}

pub(super) async fn fails_its_probe(node: &TestNode, pod: &Value, id: &str) {
    let verdict = v1::ProbeVerdict {
        pod_uid: "u1".into(),
        container_name: "c".into(),
        container_id: id.to_owned(),
        kind: v1::ProbeKind::Liveness.into(),
        result: v1::ProbeResult::Failure.into(),
        message: String::new(),
    };
    let told = node.send(UpdateKind::Sync, pod, None, vec![verdict]);
    told.await.unwrap();
}

async fn asked_to_end(node: &TestNode) {
    eventually("it is asked to end", || {
        let history = node.runtime.history();
        let mut all = history.iter();
        all.any(|entry| entry.happening == Happening::Terminated)
    })
    .await;
}

/// Seconds until the container is dead, in time that no wall clock moves.
async fn dead_after(node: &TestNode, since: Instant) -> u64 {
    eventually("it is dead", || node.running("u1").is_none()).await;
    since.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_kill_under_way_keeps_its_deadline_when_the_pod_is_deleted() {
    // The probe's grace, the pod's, and when the container dies.
    for (probe, pod_grace, dies) in [(5, 60, 5), (60, 5, 7)] {
        for next_run in [false, true] {
            let mut node = TestNode::new();
            let pod = stubborn(probe);
            node.create(&pod).await;
            let id = running(&node, "u1").await;
            fails_its_probe(&node, &pod, &id).await;
            let begun = Instant::now();
            asked_to_end(&node).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            if next_run {
                node.kill();
                node.start();
                node.create(&pod).await;
            }
            node.stop(&pod, pod_grace).await;
            assert_eq!(dead_after(&node, begun).await, dies, "{next_run}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_jump_of_the_wall_clock_moves_no_deadline() {
    const HOUR: i64 = 3600 * 1_000_000_000;
    for (jump, next_run) in [(HOUR, false), (-HOUR, false), (HOUR, true), (-HOUR, true)] {
        let mut node = TestNode::new();
        let pod = pod_running("a", "u1", &["ignore-term"]);
        node.create(&pod).await;
        running(&node, "u1").await;
        let begun = Instant::now();
        node.stop(&pod, 40).await;
        asked_to_end(&node).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        node.clock.jump(jump);
        if next_run {
            node.kill();
            node.start();
            node.create(&pod).await;
        }
        // Shorter, but not over earlier: the termination begins again.
        node.stop(&pod, 39).await;
        assert_eq!(dead_after(&node, begun).await, 40, "{jump} {next_run}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grace_beyond_all_bounds_is_no_trouble() {
    let node = TestNode::new();
    let mut pod = stubborn(i64::MAX.unsigned_abs());
    pod["spec"]["containers"][0]["command"] = json!(["run"]);
    node.create(&pod).await;
    let id = running(&node, "u1").await;
    fails_its_probe(&node, &pod, &id).await;
    eventually("another one runs", || {
        node.running("u1")
            .is_some_and(|container| container.id != id)
    })
    .await;
    assert!(node.seconds() < 20.0, "{}", node.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_kill_that_waited_for_the_pool_gives_the_whole_grace() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", &["ignore-term"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    node.kill();
    let requested_at = node.clock.now();
    assert!(requested_at > START);
    tokio::time::sleep(Duration::from_secs(25)).await;
    node.start();
    let kill = KillRequest {
        grace: Some(Duration::from_secs(20)),
        requested_at: Some(requested_at),
        ..KillRequest::default()
    };
    let begun = Instant::now();
    let sent = node.send(UpdateKind::Kill, &pod, Some(kill), Vec::new());
    sent.await.unwrap();
    assert_eq!(dead_after(&node, begun).await, 20);
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_is_cut_short_at_once_still_asks_the_container_to_end() {
    let node = TestNode::new();
    let pod = pod_running("a", "u1", &["run"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    node.runtime.set_faults(Faults {
        signal_delay: Duration::from_millis(100),
        ..Faults::NONE
    });
    let begun = Instant::now();
    node.stop(&pod, 60).await;
    eventually("its stop is ordered", || {
        node.runtime.calls().contains_key("StopContainer")
    })
    .await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    node.stop(&pod, 30).await;
    eventually("the stop is ordered again", || {
        node.runtime.calls().get("StopContainer") == Some(&2)
    })
    .await;
    assert_eq!(dead_after(&node, begun).await, 0);
    let history = node.runtime.history();
    let mut all = history.iter();
    assert!(all.any(|entry| entry.happening == Happening::Terminated));
}
