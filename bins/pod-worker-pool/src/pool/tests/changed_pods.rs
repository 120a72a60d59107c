//! Pods of which the source changes what a running pod keeps.

use std::time::Duration;

use bulkhead_api::v1::WorkerPhase;
use serde_json::{Value, json};

use super::{finished, running, starts};
use crate::testing::{TestNode, eventually, pod_running};
use pod_lifecycle::UpdateKind;
use pod_lifecycle::plan::NOT_APPLIED_REASON;

/// A pod with a command that its container does not look at, so that it can differ.
fn pod_with(command: &[&str], word: &str) -> Value {
    let mut pod = pod_running("a", "u1", &[command, &[word]].concat());
    pod["spec"]["terminationGracePeriodSeconds"] = json!(30);
    pod
}

/// The word of the version that runs, if any does.
fn word_of(node: &TestNode) -> Option<String> {
    let running = node.running("u1")?;
    running.config.command.last().cloned()
}

/// What people were told of versions that are not applied.
fn told(node: &TestNode) -> Vec<String> {
    let mut events = node.events("u1");
    events.retain(|event| event.reason == NOT_APPLIED_REASON);
    events.into_iter().map(|event| event.message).collect()
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_keeps_its_spec_and_takes_the_rest_of_a_version() {
    let node = TestNode::new();
    node.create(&pod_with(&["exit", "1", "30000"], "old")).await;
    let first = running(&node, "u1").await;
    let mut new = pod_with(&["exit", "1", "30000"], "new");
    new["metadata"]["labels"] = json!({"new": "1"});
    for _ in 0..2 {
        node.update(UpdateKind::Update, &new).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(running(&node, "u1").await, first);
    let told = told(&node);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("spec.containers[0].command"), "{told:?}");
    let known = node.current_run().pool.desired("u1").await.unwrap();
    let known = known.unwrap().decode().unwrap();
    assert_eq!(known.metadata.labels.unwrap()["new"], "1");
    let command = known.spec.unwrap().containers.remove(0).command.unwrap();
    assert_eq!(command.last().unwrap(), "old");
    // It is started again as what it was.
    eventually("it is started again", || {
        node.running("u1").is_some_and(|now| now.id != first)
    })
    .await;
    assert_eq!(word_of(&node).as_deref(), Some("old"));
    // Its source takes it back: it ends with the grace that it has.
    node.stop(&new, 5).await;
    finished(&node, "u1").await;
}

#[tokio::test(start_paused = true)]
async fn what_was_changed_while_the_pool_was_away_runs_on_until_it_ends() {
    let mut node = TestNode::new();
    node.create(&pod_with(&["exit", "1", "60000"], "old")).await;
    let first = running(&node, "u1").await;
    let new = pod_with(&["run"], "new");
    for _ in 0..2 {
        node.kill();
        node.start();
        node.create(&new).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(running(&node, "u1").await, first);
        assert_eq!(node.phase("u1"), Some(WorkerPhase::Syncing));
        assert_eq!(told(&node).len(), 1);
    }
    // The version that runs may come back.
    let old = pod_with(&["exit", "1", "60000"], "old");
    node.update(UpdateKind::Update, &old).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let waiting = node.observation("u1").unwrap().last_plan;
    assert!(!waiting.contains(NOT_APPLIED_REASON), "{waiting}");
    node.kill();
    node.start();
    node.create(&new).await;
    eventually("the new version runs", || {
        word_of(&node).as_deref() == Some("new")
    })
    .await;
    assert_eq!(starts(&node, "u1").len(), 2);
    assert!(node.runtime.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_lets_change_ends_no_pod() {
    for is_away in [false, true] {
        let mut node = TestNode::new();
        node.runtime.add_image("localhost/app:2", true);
        let mut pod = pod_with(&["run"], "x");
        node.create(&pod).await;
        let first = running(&node, "u1").await;
        pod["metadata"]["labels"] = json!({"new": "1"});
        pod["spec"]["activeDeadlineSeconds"] = json!(100_000);
        if is_away {
            node.kill();
            node.start();
        }
        node.update(UpdateKind::Update, &pod).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(running(&node, "u1").await, first);

        pod["spec"]["containers"][0]["image"] = json!("localhost/app:2");
        if is_away {
            node.kill();
            node.start();
        }
        node.update(UpdateKind::Update, &pod).await.unwrap();
        eventually("its container is started again", || {
            let now = node.running("u1");
            now.is_some_and(|now| now.id != first)
        })
        .await;
        assert_eq!(node.runtime.sandboxes().len(), 1, "in the same sandbox");
        assert_eq!(node.phase("u1"), Some(WorkerPhase::Syncing));
        assert_eq!(told(&node), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_ended_stays_so_when_it_is_changed() {
    for policy in ["Never", "OnFailure"] {
        for is_away in [false, true] {
            let mut node = TestNode::new();
            let mut old = pod_with(&["exit", "0", "100"], "old");
            old["spec"]["restartPolicy"] = json!(policy);
            node.create(&old).await;
            finished(&node, "u1").await;
            let mut new = old.clone();
            new["spec"]["containers"][0]["command"] = json!(["exit", "0", "5000", "new"]);
            if is_away {
                node.kill();
                node.start();
            }
            node.update(UpdateKind::Create, &new).await.ok();
            finished(&node, "u1").await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(starts(&node, "u1").len(), 1, "{policy} {is_away}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_which_nothing_runs_becomes_its_newest_version() {
    for is_away in [false, true] {
        let mut node = TestNode::new();
        node.create(&pod_with(&["exit", "1", "10"], "old")).await;
        eventually("it crashes", || starts(&node, "u1").len() == 3).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(word_of(&node), None, "it waits");
        let new = pod_with(&["run"], "new");
        if is_away {
            node.kill();
            node.start();
        }
        node.update(UpdateKind::Create, &new).await.unwrap();
        eventually("it runs", || word_of(&node).as_deref() == Some("new")).await;
        let id = running(&node, "u1").await;
        node.kill();
        node.start();
        node.create(&new).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(running(&node, "u1").await, id);
        assert_eq!(told(&node), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_while_the_pod_is_being_started_mixes_no_versions() {
    for after in [0, 10, 50, 200, 400, 800] {
        let node = TestNode::new();
        node.create(&pod_with(&["run"], "old")).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        let new = pod_with(&["run"], "new");
        node.update(UpdateKind::Update, &new).await.unwrap();
        running(&node, "u1").await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let word = word_of(&node).unwrap();
        assert_eq!(told(&node).len(), usize::from(word == "old"), "{after}");
        assert_eq!(starts(&node, "u1").len(), 1, "{after}");
        assert_eq!(node.runtime.sandboxes().len(), 1, "{after}");
        let plan = node.observation("u1").unwrap().last_plan;
        assert!(!plan.contains(NOT_APPLIED_REASON), "{after}: {plan}");
    }
}
