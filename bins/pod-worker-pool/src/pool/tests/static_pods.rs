//! Static pods of one name.

use std::collections::HashSet;
use std::time::Duration;

use bulkhead_api::v1::WorkerPhase;
use pod::PodSource;
use pod::metadata::POD_UID_LABEL;
use pod_lifecycle::UpdateKind;
use serde_json::json;
use simulated_runtime::{Entry, Happening};

use super::{RUN, running};
use crate::testing::{IMAGE, TestNode, eventually, pod_running};

/// A sandbox of a pod that an earlier process has asked for, and that shows only now.
async fn appears_late(node: &TestNode, like: &str, uid: &str) {
    let sandboxes = node.runtime.sandboxes();
    let like = sandboxes.iter().find(|sandbox| sandbox.pod_uid == like);
    let mut config = like.unwrap().config.as_ref().clone();
    config.metadata.as_mut().unwrap().uid = uid.to_owned();
    config
        .labels
        .insert(POD_UID_LABEL.to_owned(), uid.to_owned());
    let runtime: &dyn cri::RuntimeChanges = &node.runtime;
    runtime.run_pod_sandbox(config, "").await.unwrap();
}

fn has_ready_sandbox(node: &TestNode, uid: &str) -> bool {
    let sandboxes = node.runtime.sandboxes();
    let mut own = sandboxes.iter().filter(|sandbox| sandbox.pod_uid == uid);
    own.any(|sandbox| sandbox.ready)
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_its_name_keeps_no_sandbox() {
    let node = TestNode::new();
    let holder = pod_running("a", "u1", RUN);
    let waiting = pod_running("a", "u2", RUN);
    node.create(&holder).await;
    running(&node, "u1").await;
    node.create(&waiting).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(node.phase("u2"), Some(WorkerPhase::Waiting));
    appears_late(&node, "u1", "u2").await;
    assert!(has_ready_sandbox(&node, "u2"));

    let run = node.current_run();
    let relist = run.relister.all().await.unwrap();
    let desired: HashSet<String> = ["u1", "u2"].map(str::to_owned).into();
    let pool = &run.pool;
    let told = pool.sync_known(desired, PodSource::ALL.into(), Some(relist));
    told.await.unwrap();
    eventually("it is stopped", || !has_ready_sandbox(&node, "u2")).await;
    assert_eq!(node.phase("u2"), Some(WorkerPhase::Waiting));
    assert!(node.running("u1").is_some());

    node.stop(&holder, 30).await;
    running(&node, "u2").await;
    assert!(node.runtime.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_showed_too_late_takes_no_name_from_a_pod_that_runs() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", RUN);
    node.create(&pod).await;
    let id = running(&node, "u1").await;
    // Both orders of the list.
    for late in ["u0", "u2"] {
        appears_late(&node, "u1", late).await;
        node.kill();
        node.start();
        node.create(&pod).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(node.phase("u1"), Some(WorkerPhase::Syncing), "{late}");
        assert_eq!(running(&node, "u1").await, id, "{late}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_showed_too_late_ends_no_pod_whose_init_containers_have_run() {
    const SLOW: &str = "localhost/slow:1";
    for late in ["u0", "u2"] {
        let mut node = TestNode::new();
        node.runtime.add_image(SLOW, false);
        node.runtime.set_pull_hangs(SLOW, true);
        let mut pod = pod_running("a", "u1", RUN);
        pod["spec"]["initContainers"] =
            json!([{"name": "i", "image": IMAGE, "command": ["exit", "0", "100"]}]);
        pod["spec"]["containers"][0]["image"] = SLOW.into();
        node.create(&pod).await;
        let ended = |node: &TestNode| {
            let history = node.runtime.history();
            let is_end = |it: &&Entry| matches!(it.happening, Happening::Exited { .. });
            history.iter().filter(is_end).count()
        };
        eventually("its init container ends", || ended(&node) == 1).await;
        appears_late(&node, "u1", late).await;
        node.kill();
        node.start();
        node.create(&pod).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        node.runtime.set_pull_hangs(SLOW, false);
        running(&node, "u1").await;
        assert_eq!(ended(&node), 1, "{late}: it ran again");
    }
}

/// Only a manifest that sets a UID can give its pod another name.
#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_a_name_and_gets_another_one_waits_for_that() {
    let node = TestNode::new();
    node.create(&pod_running("a", "u1", RUN)).await;
    running(&node, "u1").await;
    node.create(&pod_running("a", "u2", RUN)).await;
    node.create(&pod_running("a", "u3", RUN)).await;
    for uid in ["u2", "u3"] {
        let waits = || node.phase(uid) == Some(WorkerPhase::Waiting);
        eventually("it waits", waits).await;
    }
    let renamed = pod_running("b", "u2", RUN);
    node.update(UpdateKind::Update, &renamed).await.unwrap();
    running(&node, "u2").await;
    assert_eq!(node.phase("u3"), Some(WorkerPhase::Waiting));
    node.stop(&pod_running("a", "u1", RUN), 1).await;
    running(&node, "u3").await;
}
