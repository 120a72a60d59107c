//! Calls that take long and outlive the process that made them.

use std::time::Duration;

use pod_lifecycle::UpdateKind;
use serde_json::{Value, json};
use simulated_runtime::{Faults, Happening};

use super::running;
use crate::testing::{TestNode, eventually, pod_running};

fn pod(policy: &str) -> Value {
    let mut pod = pod_running("a", "u1", &["run"]);
    pod["spec"]["restartPolicy"] = json!(policy);
    pod
}

/// A node whose pool died a second after a call that takes this long was made.
async fn killed_during(method: &str, faults: Faults, pod: &Value) -> TestNode {
    let mut node = TestNode::new();
    node.runtime.set_faults(faults);
    node.create(pod).await;
    eventually("the call is made", || {
        node.runtime.calls().contains_key(method)
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.kill();
    node.start();
    node.create(pod).await;
    node
}

fn slow_sandbox(seconds: u64) -> Faults {
    Faults {
        sandbox_delay: Duration::from_secs(seconds),
        ..Faults::NONE
    }
}

/// Numbers of the sandboxes (of containers, by name) that were made.
fn made(node: &TestNode, container: &str) -> Vec<u32> {
    let history = node.runtime.history().to_vec().into_iter();
    let of_them = history.filter(|entry| entry.container == container);
    let numbers = of_them.filter_map(|entry| match entry.happening {
        Happening::Created { attempt, .. } => Some(attempt),
        _ => None,
    });
    numbers.collect()
}

fn pulls(node: &TestNode) -> u64 {
    node.runtime.calls().get("PullImage").copied().unwrap_or(0)
}

fn slow_container(seconds: u64) -> Faults {
    Faults {
        container_delay: Duration::from_secs(seconds),
        ..Faults::NONE
    }
}

fn with_pull_policy(mut pod: Value, policy: &str) -> Value {
    pod["spec"]["containers"][0]["imagePullPolicy"] = json!(policy);
    pod
}

fn starts(node: &TestNode) -> usize {
    super::starts(node, "u1").len()
}

#[tokio::test(start_paused = true)]
async fn a_slow_sandbox_that_an_earlier_run_asked_for_is_the_only_one() {
    for policy in ["Always", "Never"] {
        // As long as a call may take, and longer than several runs last.
        for takes in [60, 239] {
            let pod = pod(policy);
            let mut node = killed_during("RunPodSandbox", slow_sandbox(takes), &pod).await;
            tokio::time::sleep(Duration::from_secs(30)).await;
            node.kill();
            node.start();
            node.create(&pod).await;
            let id = running(&node, "u1").await;
            tokio::time::sleep(Duration::from_secs(600)).await;
            assert_eq!(running(&node, "u1").await, id);
            assert_eq!(made(&node, ""), [0], "{policy} {takes}");
            assert_eq!(starts(&node), 1, "{policy} {takes}");
            assert!(node.runtime.violations().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_container_that_an_earlier_run_asked_for_is_the_only_one() {
    for policy in ["Always", "Never"] {
        let node = killed_during("CreateContainer", slow_container(100), &pod(policy)).await;
        let id = running(&node, "u1").await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(running(&node, "u1").await, id);
        assert_eq!(made(&node, "c"), [0], "{policy}");
        assert_eq!(starts(&node), 1, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_leaked_is_passed_over_when_no_call_can_hold_it_any_more() {
    for policy in ["Always", "Never"] {
        let pod = pod(policy);
        let node = killed_during("RunPodSandbox", slow_sandbox(1000), &pod).await;
        node.runtime.set_faults(Faults::NONE);
        let id = running(&node, "u1").await;
        let after = node.seconds();
        assert!((300.0..310.0).contains(&after), "{after}");
        assert_eq!(made(&node, ""), [1]);
        // And should it show yet: what runs does not pay for it.
        eventually("it shows", || made(&node, "") == [1, 0]).await;
        node.update(UpdateKind::Sync, &pod).await.unwrap();
        eventually("it is stopped", || {
            let sandboxes = node.runtime.sandboxes().into_iter();
            sandboxes.filter(|sandbox| sandbox.ready).count() == 1
        })
        .await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(running(&node, "u1").await, id);
        assert_eq!((made(&node, ""), starts(&node)), (vec![1, 0], 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaked_name_of_a_container_is_passed_over_whatever_its_pull_policy() {
    for pull_policy in ["IfNotPresent", "Always"] {
        let pod = with_pull_policy(pod("Always"), pull_policy);
        let node = killed_during("CreateContainer", slow_container(1000), &pod).await;
        node.runtime.set_faults(Faults::NONE);
        let id = running(&node, "u1").await;
        let after = node.seconds();
        assert!((180.0..190.0).contains(&after), "{pull_policy} {after}");
        assert_eq!(made(&node, "c"), [1], "{pull_policy}");
        // Once in each run.
        assert!(pulls(&node) <= 2, "{pull_policy} {}", pulls(&node));
        // And should it show yet: what runs does not pay for it.
        eventually("it shows", || made(&node, "c") == [1, 0]).await;
        node.update(UpdateKind::Sync, &pod).await.unwrap();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(running(&node, "u1").await, id);
        assert_eq!((made(&node, "c"), starts(&node)), (vec![1, 0], 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_is_not_pulled_again_and_again_while_the_sandbox_waits_for_its_name() {
    let pod = with_pull_policy(pod("Always"), "Always");
    let node = killed_during("RunPodSandbox", slow_sandbox(1000), &pod).await;
    node.runtime.set_faults(Faults::NONE);
    running(&node, "u1").await;
    let after = node.seconds();
    assert!((300.0..310.0).contains(&after), "{after}");
    assert!(pulls(&node) <= 2, "{}", pulls(&node));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_was_kept_for_a_taken_name_is_not_the_next_starts() {
    let mut pod = with_pull_policy(pod("Always"), "Always");
    pod["spec"]["containers"][0]["command"] = json!(["exit", "1", "2000"]);
    let node = killed_during("CreateContainer", slow_container(100), &pod).await;
    node.runtime.set_faults(Faults::NONE);
    eventually("it runs", || starts(&node) == 1).await;
    assert_eq!(made(&node, "c"), [0]);
    let before = pulls(&node);
    tokio::time::sleep(Duration::from_secs(5)).await;
    node.update(UpdateKind::Sync, &pod).await.unwrap();
    eventually("it is started again", || starts(&node) == 2).await;
    assert_eq!(pulls(&node), before + 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_name_that_was_passed_over_every_number_is_used_once() {
    let mut pod = pod("Always");
    pod["spec"]["containers"][0]["command"] = json!(["cannot-start"]);
    let node = killed_during("CreateContainer", slow_container(100_000), &pod).await;
    node.runtime.set_faults(Faults::NONE);
    eventually("it was made often", || made(&node, "c").len() == 5).await;
    assert_eq!(made(&node, "c"), [1, 2, 3, 4, 5]);
}

/// The case of a sandbox that shows late, when the pod runs in another.
#[tokio::test(start_paused = true)]
async fn a_surplus_sandbox_that_cannot_be_stopped_does_not_freeze_the_pod_beside_it() {
    let pod = pod("Always");
    let node = killed_during("RunPodSandbox", slow_sandbox(1000), &pod).await;
    node.runtime.set_faults(Faults::NONE);
    let id = running(&node, "u1").await;
    let kept = node.runtime.sandboxes().remove(0).id;
    eventually("it shows", || made(&node, "") == [1, 0]).await;
    let sandboxes = node.runtime.sandboxes().into_iter();
    let stray = sandboxes.map(|it| it.id).find(|it| *it != kept).unwrap();
    let is_ready = |id: &str| {
        let mut sandboxes = node.runtime.sandboxes().into_iter();
        sandboxes.any(|sandbox| sandbox.id == id && sandbox.ready)
    };
    node.runtime.set_call_fails("StopPodSandbox", &stray, true);
    node.runtime.crash_container(&id, 1);
    let begun = node.seconds();
    node.update(UpdateKind::Sync, &pod).await.unwrap();
    eventually("it is started again", || starts(&node) == 2).await;
    let took = node.seconds() - begun;
    assert!(took < 2.0, "{took}");
    eventually("its owner is told", || {
        let observation = node.observation("u1").unwrap_or_default();
        observation.sync_error.contains("it cannot be done")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(is_ready(&stray) && is_ready(&kept));

    // It is tried again and again, and what runs does not pay for it.
    let id = running(&node, "u1").await;
    node.runtime.set_call_fails("StopPodSandbox", &stray, false);
    eventually("it is stopped", || !is_ready(&stray)).await;
    eventually("all is well", || {
        let observation = node.observation("u1").unwrap_or_default();
        observation.sync_error.is_empty()
    })
    .await;
    assert!(is_ready(&kept));
    assert_eq!(running(&node, "u1").await, id);
    assert_eq!((made(&node, ""), starts(&node)), (vec![1, 0], 2));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_whose_status_cannot_be_read_does_not_keep_its_pod_from_ending() {
    let mut node = TestNode::new();
    let pod = pod("Always");
    node.create(&pod).await;
    running(&node, "u1").await;
    let sandbox = node.runtime.sandboxes().remove(0).id;
    node.kill();
    node.runtime
        .set_call_fails("PodSandboxStatus", &sandbox, true);
    node.start();
    node.stop(&pod, 1).await;
    eventually("nothing runs", || {
        let mut containers = node.runtime.containers().into_iter();
        !containers.any(|container| container.running)
    })
    .await;
}

/// The same with a stop that hangs: the runtime cannot end what is in it.
#[tokio::test(start_paused = true)]
async fn a_surplus_sandbox_whose_stop_hangs_does_not_freeze_the_pod_beside_it() {
    let pod = pod("Always");
    let node = killed_during("RunPodSandbox", slow_sandbox(1000), &pod).await;
    node.runtime.set_faults(Faults {
        sandbox_stop_delay: Duration::from_secs(1000),
        ..Faults::NONE
    });
    running(&node, "u1").await;
    eventually("it shows", || made(&node, "") == [1, 0]).await;
    for restarts in 1..=2 {
        let id = running(&node, "u1").await;
        // Long enough to wait for no back-off.
        tokio::time::sleep(Duration::from_secs(700)).await;
        node.runtime.crash_container(&id, 1);
        let begun = node.seconds();
        node.update(UpdateKind::Sync, &pod).await.unwrap();
        eventually("it is started again", || starts(&node) == restarts + 1).await;
        let took = node.seconds() - begun;
        assert!(took < 5.0, "{took}");
    }
    eventually("its owner is told", || {
        let observation = node.observation("u1").unwrap_or_default();
        observation.sync_error.contains("still being stopped")
    })
    .await;
}
