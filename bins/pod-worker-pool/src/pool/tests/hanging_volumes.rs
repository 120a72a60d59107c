//! A volume on a file system that hangs is the trouble of its pod alone.

use std::collections::BTreeSet;
use std::time::Duration;

use bulkhead_api::v1::{ProbeVerdict, WorkerPhase};
use pod_lifecycle::UpdateKind;
use serde_json::{Value, json};
use simulated_runtime::{ContainerView, Happening};

use super::{RUN, finished, not_live, running, starts};
use crate::garbage::Order;
use crate::testing::{IMAGE, TestNode, eventually, pod_running};

fn set_hanging(node: &TestNode, uids: &[&str]) {
    let uids: BTreeSet<String> = uids.iter().map(|&uid| uid.to_owned()).collect();
    node.host.state().hanging = uids;
}

/// A pod of an earlier process left this.
fn leave_directory(node: &TestNode, uid: &str) {
    let mut state = node.host.state();
    state.directories.insert(uid.to_owned());
}

fn has_directory(node: &TestNode, uid: &str) -> bool {
    node.host.state().directories.contains(uid)
}

fn order_everything(node: &TestNode, desired: &[&str]) {
    node.current_run().garbage.order(Order::Everything {
        desired: desired.iter().map(|&uid| uid.to_owned()).collect(),
        sources_ready: true,
    });
}

/// One round, as often as it takes: within a minute each.
async fn collected(node: &TestNode, desired: &[&str], uid: &str) {
    order_everything(node, desired);
    let round = eventually("what is gone is collected", || !has_directory(node, uid));
    let in_time = tokio::time::timeout(Duration::from_secs(60), round).await;
    assert!(in_time.is_ok(), "{uid} is not collected");
}

#[tokio::test(start_paused = true)]
async fn a_hanging_volume_delays_neither_other_pods_nor_garbage_collection() {
    let node = TestNode::new();
    set_hanging(&node, &["u1"]);
    let pod = pod_running("a", "u1", RUN);
    node.create(&pod).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let other = pod_running("b", "u2", &["exit", "1", "0"]);
    node.create(&other).await;
    eventually("another pod starts", || !starts(&node, "u2").is_empty()).await;
    assert!(node.seconds() < 5.0, "{}", node.seconds());

    node.stop(&pod, 1).await;
    eventually("the clean-up begins, and hangs", || {
        node.phase("u1") == Some(WorkerPhase::Terminated)
    })
    .await;
    for left in ["u0", "u3"] {
        leave_directory(&node, left);
        collected(&node, &["u2"], left).await;
    }
    eventually("a third start", || starts(&node, "u2").len() == 3).await;
    let pod_uid = "u2".to_owned();
    node.current_run()
        .garbage
        .order(Order::Containers { pod_uid });
    eventually("dead containers are collected", || {
        let containers = node.runtime.containers().into_iter();
        containers.filter(|it| it.pod_uid == "u2").count() < 3
    })
    .await;

    set_hanging(&node, &[]);
    finished(&node, "u1").await;
    assert!(!has_directory(&node, "u1"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_and_hangs_is_left_behind_and_come_back_to() {
    let node = TestNode::new();
    node.create(&pod_running("a", "u9", RUN)).await;
    running(&node, "u9").await;
    set_hanging(&node, &["u1", "u2", "u3", "u4", "u5"]);
    for uid in ["u1", "u2", "u3", "u4", "u5", "u6"] {
        leave_directory(&node, uid);
    }
    collected(&node, &["u9"], "u6").await;
    leave_directory(&node, "u7");
    collected(&node, &["u9"], "u7").await;
    assert!(has_directory(&node, "u1"));

    set_hanging(&node, &[]);
    for uid in ["u1", "u5"] {
        collected(&node, &["u9"], uid).await;
    }
    assert!(has_directory(&node, "u9"));
}

/// A pod whose containers leave messages when they end, and run until then.
fn pod_of(names: &[&str]) -> Value {
    let mut pod = pod_running("a", "u1", RUN);
    let containers = names.iter().map(|name| {
        json!({
            "name": name, "image": IMAGE, "command": RUN,
            "terminationMessagePath": "/dev/termination-log",
            "livenessProbe": {"exec": {"command": ["true"]}},
        })
    });
    pod["spec"]["containers"] = containers.collect();
    pod
}

fn newest(node: &TestNode, name: &str) -> Option<ContainerView> {
    let containers = node.runtime.containers().into_iter();
    containers.rev().find(|it| it.name == name)
}

async fn id_of(node: &TestNode, name: &str) -> String {
    let runs = || newest(node, name).filter(|it| it.running);
    eventually("the container runs", || runs().is_some()).await;
    runs().unwrap().id
}

/// A node with such a pod that runs, of which the first container has ended and whose
/// volumes hang when it is to be started again.
async fn with_hanging_start(names: &[&str]) -> (TestNode, Value) {
    let node = TestNode::new();
    let pod = pod_of(names);
    node.create(&pod).await;
    for name in names {
        id_of(&node, name).await;
    }
    // The sync that made the volumes ends: it knows where they are.
    tokio::time::sleep(Duration::from_secs(1)).await;
    set_hanging(&node, &["u1"]);
    let first = id_of(&node, names[0]).await;
    node.runtime.crash_container(&first, 1);
    // Its start has begun by then, and hangs.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!newest(&node, names[0]).is_some_and(|it| it.running));
    (node, pod)
}

#[tokio::test(start_paused = true)]
async fn a_hanging_volume_holds_up_no_stop_of_its_pod() {
    let (node, pod) = with_hanging_start(&["a", "b", "c"]).await;
    // What it has left is read when the pod is stopped.
    node.runtime.crash_container(&id_of(&node, "b").await, 1);
    let before = node.seconds();
    node.stop(&pod, 30).await;
    eventually("the pod is stopped", || {
        node.phase("u1") == Some(WorkerPhase::Terminated)
    })
    .await;
    let took = node.seconds() - before;
    assert!(took < 2.0, "{took}");
    let history = node.runtime.history().to_vec().into_iter();
    let terminated = history.filter(|it| it.happening == Happening::Terminated);
    assert!(terminated.map(|it| it.container).eq(["c"]));
}

#[tokio::test(start_paused = true)]
async fn a_message_on_a_disk_that_hangs_holds_up_no_stop_and_is_read_later() {
    let node = TestNode::new();
    let pod = pod_of(&["a", "b"]);
    node.create(&pod).await;
    id_of(&node, "b").await;
    node.host.state().messages_hang = true;
    node.runtime.crash_container(&id_of(&node, "a").await, 1);
    let message = || {
        let containers = node.observation("u1").map(|it| it.containers);
        let mut containers = containers.unwrap_or_default().into_iter();
        let ended = containers.find(|it| it.name == "a" && it.finished_at_unix_nanos != 0);
        ended.map(|it| it.message)
    };
    eventually("the end is told", || {
        message().is_some_and(|it| it.ends_with("it takes too long"))
    })
    .await;
    let before = node.seconds();
    node.stop(&pod, 30).await;
    eventually("all is stopped", || node.running("u1").is_none()).await;
    let took = node.seconds() - before;
    assert!(took < 10.0, "{took}");
    node.host.state().messages_hang = false;
    finished(&node, "u1").await;
    assert_eq!(message().as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_volume_holds_up_no_verdict_of_a_probe_and_is_told_of() {
    let (node, pod) = with_hanging_start(&["a", "b"]).await;
    let id = id_of(&node, "b").await;
    let before = node.seconds();
    let verdict = ProbeVerdict {
        container_name: "b".to_owned(),
        ..not_live(&id)
    };
    let told = node.send(UpdateKind::Sync, &pod, None, vec![verdict]);
    told.await.unwrap();
    eventually("the container is stopped", || {
        newest(&node, "b").is_some_and(|it| !it.running)
    })
    .await;
    let took = node.seconds() - before;
    assert!(took < 15.0, "{took}");
    assert!(node.reasons("u1").contains(&"FailedMount".to_owned()));
    eventually("it is told why none is started", || {
        let error = node.observation("u1").map(|it| it.sync_error);
        error.is_some_and(|error| error == "volumes are still being made: [data]")
    })
    .await;

    set_hanging(&node, &[]);
    id_of(&node, "a").await;
    id_of(&node, "b").await;
}
