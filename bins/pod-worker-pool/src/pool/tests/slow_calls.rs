//! Calls that take long and outlive the process that made them.

use std::time::Duration;

use serde_json::{Value, json};
use simulated_runtime::{Faults, Happening};

use super::running;
use crate::testing::{TestNode, eventually, pod_running};
use crate::worker::UpdateKind;

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
    let history = node.runtime.history().into_iter();
    let of_them = history.filter(|entry| entry.container == container);
    let numbers = of_them.filter_map(|entry| match entry.happening {
        Happening::Created { attempt, .. } => Some(attempt),
        _ => None,
    });
    numbers.collect()
}

fn starts(node: &TestNode) -> usize {
    super::starts(node, "u1").len()
}

#[tokio::test(start_paused = true)]
async fn a_slow_sandbox_that_an_earlier_life_asked_for_is_the_only_one() {
    for policy in ["Always", "Never"] {
        // As long as a call may take, and longer than several lives last.
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
async fn a_slow_container_that_an_earlier_life_asked_for_is_the_only_one() {
    for policy in ["Always", "Never"] {
        let faults = Faults {
            container_delay: Duration::from_secs(100),
            ..Faults::NONE
        };
        let node = killed_during("CreateContainer", faults, &pod(policy)).await;
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
