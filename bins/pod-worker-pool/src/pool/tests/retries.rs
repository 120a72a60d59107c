//! What one container of a pod waits for delays no other container of it.

use std::time::Duration;

use pod_lifecycle::UpdateKind;
use serde_json::{Value, json};
use simulated_runtime::Faults;

use super::{calls, not_live, running, starts};
use crate::testing::{IMAGE, TestNode, eventually, pod_running};

const ABSENT: &str = "localhost/absent:1";

/// A pod whose container `c` runs `command`, beside one whose image cannot be
/// pulled.
fn pod_with_absent_image(uid: &str, command: &[&str]) -> Value {
    let mut pod = pod_running(uid, uid, command);
    let probe = json!({"exec": {"command": ["true"]}});
    pod["spec"]["containers"] = json!([
        {"name": "c", "image": IMAGE, "command": command, "livenessProbe": probe},
        {"name": "d", "image": ABSENT},
    ]);
    pod
}

/// A node whose pod waits long for an image, and the step that finds it waiting
/// still runs.
async fn in_the_midst_of_a_step() -> (TestNode, Value, String) {
    let node = TestNode::new();
    let pod = pod_with_absent_image("u1", &["run"]);
    node.create(&pod).await;
    let id = running(&node, "u1").await;
    eventually("the image has failed often", || {
        calls(&node, "PullImage") == 4
    })
    .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    node.runtime.set_faults(Faults {
        slowness: 200.0,
        ..Faults::NONE
    });
    let asked = calls(&node, "ImageStatus");
    node.update(UpdateKind::Sync, &pod).await.unwrap();
    eventually("the image is asked for", || {
        calls(&node, "ImageStatus") > asked
    })
    .await;
    assert_eq!(node.running("u1").map(|it| it.id), Some(id.clone()));
    (node, pod, id)
}

/// Waits until another instance runs; pulls are not made for it.
async fn replaced_at_once(node: &TestNode, id: &str) {
    let begun = node.seconds();
    let pulls = calls(node, "PullImage");
    eventually("another one runs", || {
        node.running("u1").is_some_and(|it| it.id != id)
    })
    .await;
    let took = node.seconds() - begun;
    assert!(took < 10.0, "{took}");
    assert_eq!(calls(node, "PullImage"), pulls, "its back-off holds");
}

#[tokio::test(start_paused = true)]
async fn a_death_during_a_step_that_fails_is_seen_at_once() {
    let (node, _, id) = in_the_midst_of_a_step().await;
    node.runtime.crash_container(&id, 1);
    replaced_at_once(&node, &id).await;
}

#[tokio::test(start_paused = true)]
async fn a_verdict_during_a_step_that_fails_is_seen_at_once() {
    let (node, pod, id) = in_the_midst_of_a_step().await;
    let told = node.send(UpdateKind::Sync, &pod, None, vec![not_live(&id)]);
    told.await.unwrap();
    replaced_at_once(&node, &id).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_pulled_prolongs_no_crash_loop() {
    let crashes = &["exit", "1", "1000"];
    let node = TestNode::new();
    node.create(&pod_with_absent_image("u1", crashes)).await;
    node.create(&pod_running("u2", "u2", crashes)).await;
    tokio::time::sleep(Duration::from_secs(900)).await;
    let (beside, alone) = (starts(&node, "u1"), starts(&node, "u2"));
    assert!(alone.len() > 6, "{alone:?}");
    assert_eq!(beside.len(), alone.len(), "{beside:?} {alone:?}");
    for (beside, alone) in beside.iter().zip(&alone) {
        assert!(beside.abs_diff(*alone) <= 2, "{beside} {alone}");
    }
    // 10, 20, 40, 80, 160, 300 s apart, with a moment for each attempt.
    assert_eq!(calls(&node, "PullImage"), 7);
}

/// Seconds between the next tries, each of which calls `method` once.
async fn pauses(node: &TestNode, method: &'static str) -> Vec<f64> {
    let mut times = Vec::new();
    for _ in 0..6 {
        let made = calls(node, method);
        eventually("it is tried again", || calls(node, method) > made).await;
        times.push(node.seconds());
    }
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn an_error_is_tried_again_after_ten_seconds_and_one_that_passes_after_one() {
    for (faults, method, least) in [
        (
            Faults {
                sandboxes_fail: true,
                ..Faults::NONE
            },
            "RunPodSandbox",
            10.0,
        ),
        (
            Faults {
                network_down: true,
                ..Faults::NONE
            },
            "Status",
            1.0,
        ),
    ] {
        let node = TestNode::new();
        node.runtime.set_faults(faults);
        node.create(&pod_running("a", "u1", &["run"])).await;
        let pauses = pauses(&node, method).await;
        // What a try takes comes on top.
        let most = least * 1.5 + 0.5;
        let expected = least..=most;
        assert!(
            pauses.iter().all(|pause| expected.contains(pause)),
            "{method}: {pauses:?}"
        );
        let spread = pauses.iter().fold(0.0_f64, |spread, pause| {
            spread.max((pause - pauses[0]).abs())
        });
        assert!(spread > least / 50.0, "{method}: {pauses:?}");
    }
}
