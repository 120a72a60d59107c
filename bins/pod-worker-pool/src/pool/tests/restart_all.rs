//! All containers of a pod are started again, also where the pool is killed meanwhile.

use std::time::Duration;

use bulkhead_api::v1::RuntimeState;
use serde_json::{Value, json};
use simulated_runtime::Happening;

use crate::testing::{IMAGE, TestNode, eventually, pod_running};

/// When `c` exits with 42, after 3 s, all containers are started again. The two beside it
/// would run for ever; one of them needs long to stop.
fn pod() -> Value {
    let mut pod = pod_running("a", "u1", &["exit", "42", "3000"]);
    let rule = json!({
        "action": "RestartAllContainers",
        "exitCodes": {"operator": "In", "values": [42]},
    });
    let spec = &mut pod["spec"];
    spec["restartPolicy"] = json!("Never");
    spec["containers"][0]["restartPolicy"] = json!("Never");
    spec["containers"][0]["restartPolicyRules"] = json!([rule]);
    let beside = json!({"name": "d", "image": IMAGE, "command": ["ignore-term"]});
    spec["containers"].as_array_mut().unwrap().push(beside);
    spec["initContainers"] = json!([
        {"name": "i", "image": IMAGE, "command": ["exit", "0", "100"]},
        {"name": "s", "image": IMAGE, "command": ["run"], "restartPolicy": "Always"},
    ]);
    pod
}

/// Names of containers as they started, one after the other.
fn started(node: &TestNode) -> Vec<String> {
    let history = node.runtime.history().to_vec().into_iter();
    let started = history.filter(|it| it.happening == Happening::Started);
    let names = started.map(|it| it.container);
    names.filter(|name| !name.is_empty()).collect()
}

/// Starts of the first two rounds; containers that wait for nothing start in any order.
async fn started_twice(node: &TestNode, context: &str) {
    eventually("all have started twice", || started(node).len() >= 8).await;
    let started = started(node);
    for round in started[..8].chunks(4) {
        assert_eq!(round[..2], ["i", "s"], "{context}");
        let mut rest = round[2..].to_vec();
        rest.sort();
        assert_eq!(rest, ["c", "d"], "{context}");
    }
}

fn restart_counts(node: &TestNode) -> Vec<(String, u32)> {
    let seen = node.observation("u1").unwrap_or_default();
    let running = seen.containers.iter();
    let running = running.filter(|it| it.state() == RuntimeState::Running);
    let mut counts: Vec<_> = running
        .map(|it| (it.name.clone(), it.restart_count))
        .collect();
    counts.sort();
    counts
}

#[tokio::test(start_paused = true)]
async fn all_containers_start_again_from_the_first_in_the_same_sandbox() {
    let node = TestNode::new();
    node.create(&pod()).await;
    started_twice(&node, "").await;
    assert_eq!(node.runtime.sandboxes().len(), 1);
    eventually("their restarts are counted", || {
        restart_counts(&node) == ["c", "d", "s"].map(|name| (name.to_owned(), 1))
    })
    .await;
    assert!(node.runtime.violations().is_empty());
    let killed = node.reasons("u1").into_iter().filter(|it| it == "Killing");
    assert_eq!(killed.count(), 2, "d and s, once each");
}

#[tokio::test(start_paused = true)]
async fn what_ran_before_is_told_of_as_such_until_it_has_stopped() {
    let node = TestNode::new();
    node.create(&pod()).await;
    let left = || {
        let seen = node.observation("u1").unwrap_or_default();
        let of_before = seen
            .containers
            .into_iter()
            .filter(|it| it.is_of_earlier_round);
        of_before.collect::<Vec<_>>()
    };
    eventually("the others are being stopped", || {
        let left = left();
        let may_run = |state: RuntimeState| state == RuntimeState::Running;
        left.iter().any(|it| may_run(it.state())) && left.len() == 4
    })
    .await;
    started_twice(&node, "").await;
    eventually("nothing of before is left", || {
        left().iter().all(|it| it.state() == RuntimeState::Exited)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_restart_of_all_survives_the_pool_at_any_moment() {
    // The exit is 3.1 s to 3.4 s after the beginning; the last of the others has stopped
    // 2 s later.
    for after in (3000..6000).step_by(75) {
        let mut node = TestNode::with_seed(after);
        let pod = pod();
        node.create(&pod).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        node.kill();
        tokio::time::sleep(Duration::from_millis(30)).await;
        node.start();
        node.create(&pod).await;
        // An exit while no pool listened is told by no event, and the runtime's lists show
        // it late: a relist of pleg's finds it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        node.create(&pod).await;
        started_twice(&node, &format!("killed after {after} ms")).await;
        assert_eq!(node.runtime.sandboxes().len(), 1, "{after}");
        assert!(node.runtime.violations().is_empty(), "{after}");
    }
}
