//! A volume on a file system that hangs is the trouble of its pod alone.

use std::collections::BTreeSet;
use std::time::Duration;

use bulkhead_api::v1::WorkerPhase;

use super::{RUN, finished, running, starts};
use crate::garbage::Order;
use crate::testing::{TestNode, eventually, pod_running};

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
    node.life().garbage.order(Order::Everything {
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
    node.life().garbage.order(Order::Containers { pod_uid });
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
