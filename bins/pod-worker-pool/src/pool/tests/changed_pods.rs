//! Pods of which the source changes what a running pod keeps.

use std::collections::HashSet;
use std::time::Duration;

use bulkhead_api::v1::WorkerPhase;
use pod::PodSource;
use serde_json::{Value, json};
use simulated_runtime::Happening;

use super::{finished, running, starts};
use crate::testing::{TestNode, eventually, pod_running};
use pod_lifecycle::UpdateKind;

/// A pod with a command that its container does not look at, so that it can differ.
fn pod_with(command: &[&str], word: &str) -> Value {
    let mut pod = pod_running("a", "u1", &[command, &[word]].concat());
    pod["spec"]["terminationGracePeriodSeconds"] = json!(30);
    pod
}

/// As sync-loop does: once a second a worker that is missing, or has finished for a new
/// start, is made anew, until this version of the pod runs.
async fn begins_again(node: &TestNode, pod: &Value, word: &str) {
    let is_new = || {
        let now = node.running("u1");
        now.is_some_and(|now| now.config.command.last().is_some_and(|it| it == word))
    };
    for _ in 0..100 {
        if is_new() {
            return;
        }
        let desired = HashSet::from(["u1".to_owned()]);
        let pool = &node.current_run().pool;
        let known = pool.sync_known(desired, PodSource::ALL.into(), None);
        if known.await.unwrap().is_empty() {
            node.create(pod).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("{word} never runs");
}

/// Everything of the pod in the runtime is of this version, and counts from 0.
async fn runs_anew(node: &TestNode, word: &str) {
    let id = running(node, "u1").await;
    let of_pod: Vec<_> = node.runtime.containers();
    assert_eq!(of_pod.len(), 1, "nothing of the former version is left");
    assert_eq!(of_pod[0].id, id);
    assert_eq!(of_pod[0].config.command.last().unwrap(), word);
    assert_eq!(node.runtime.sandboxes().len(), 1);
    let annotations = &of_pod[0].config.annotations;
    assert_eq!(annotations["io.kubernetes.container.restartCount"], "0");
    assert!(node.runtime.violations().is_empty());
}

fn seconds_of(node: &TestNode, happening: Happening) -> Vec<u64> {
    let history = node.runtime.history().to_vec().into_iter();
    history
        .filter(|entry| entry.happening == happening && !entry.container.is_empty())
        .map(|entry| entry.at.since(crate::testing::START).as_secs())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_that_was_changed_ends_within_its_grace_and_is_started_anew() {
    // While the pool watches, and while it is away.
    for is_away in [false, true] {
        let mut node = TestNode::new();
        let old = pod_with(&["slow-term", "10000"], "old");
        node.create(&old).await;
        running(&node, "u1").await;
        let mut new = pod_with(&["run"], "new");
        // Its grace counts from the next start.
        new["spec"]["terminationGracePeriodSeconds"] = json!(1);
        if is_away {
            node.kill();
            node.start();
        }
        node.update(UpdateKind::Update, &new).await.unwrap();
        begins_again(&node, &new, "new").await;
        runs_anew(&node, "new").await;
        let asked = seconds_of(&node, Happening::Terminated)[0];
        assert_eq!(starts(&node, "u1").len(), 2);
        assert!(starts(&node, "u1")[1] >= asked + 10, "it had its time");
        let reasons = node.reasons("u1");
        assert!(reasons.contains(&"SpecChanged".to_owned()), "{reasons:?}");
        // It stays.
        node.kill();
        node.start();
        node.create(&new).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(starts(&node, "u1").len(), 2);
    }
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
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_ended_runs_once_more_when_it_is_changed() {
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
            node.update(UpdateKind::Update, &new).await.ok();
            begins_again(&node, &new, "new").await;
            runs_anew(&node, "new").await;
            finished(&node, "u1").await;
            for _ in 0..2 {
                node.kill();
                node.start();
                node.create(&new).await;
                finished(&node, "u1").await;
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            assert_eq!(starts(&node, "u1").len(), 2, "{policy} {is_away}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_a_kill_of_the_pool_interrupts_gives_the_grace_once() {
    for after in [0, 5, 2000, 10_100, 10_500] {
        let mut node = TestNode::new();
        let mut old = pod_with(&["ignore-term"], "old");
        old["spec"]["terminationGracePeriodSeconds"] = json!(10);
        node.create(&old).await;
        running(&node, "u1").await;
        let new = pod_with(&["run"], "new");
        node.update(UpdateKind::Update, &new).await.unwrap();
        tokio::time::sleep(Duration::from_millis(after)).await;
        node.kill();
        node.start();
        node.create(&new).await;
        begins_again(&node, &new, "new").await;
        runs_anew(&node, "new").await;
        let asked = seconds_of(&node, Happening::Terminated)[0];
        let killed = seconds_of(
            &node,
            Happening::Exited {
                code: 137,
                killed: true,
            },
        );
        assert!(
            killed.iter().all(|at| (10..=12).contains(&(at - asked))),
            "{after}: {asked} {killed:?}"
        );
        assert_eq!(starts(&node, "u1").len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_while_the_pod_is_being_started_leaves_nothing_of_the_former_version() {
    for after in [0, 10, 50, 200, 400, 800] {
        let node = TestNode::new();
        let old = pod_with(&["run"], "old");
        node.create(&old).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        let new = pod_with(&["run"], "new");
        node.update(UpdateKind::Update, &new).await.unwrap();
        begins_again(&node, &new, "new").await;
        runs_anew(&node, "new").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_pod_that_its_source_takes_back_is_not_started_again() {
    let node = TestNode::new();
    let old = pod_with(&["slow-term", "10000"], "old");
    node.create(&old).await;
    running(&node, "u1").await;
    let new = pod_with(&["run"], "new");
    node.update(UpdateKind::Update, &new).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    node.stop(&new, 3).await;
    finished(&node, "u1").await;
    let asked = seconds_of(&node, Happening::Terminated)[0];
    let killed = seconds_of(
        &node,
        Happening::Exited {
            code: 137,
            killed: true,
        },
    );
    assert!(killed.iter().all(|at| at - asked <= 6), "the grace shrinks");
    let desired = HashSet::from(["u1".to_owned()]);
    let pool = &node.current_run().pool;
    let known = pool.sync_known(desired, PodSource::ALL.into(), None).await;
    assert_eq!(known.unwrap().len(), 1, "it stays ended");
    assert_eq!(starts(&node, "u1").len(), 1);
}
