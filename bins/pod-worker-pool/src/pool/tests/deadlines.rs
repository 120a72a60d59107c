//! `activeDeadlineSeconds` counts from a pod's first sync, whatever keeps it from
//! having a sandbox, and whoever dies meanwhile.

use std::collections::HashSet;
use std::time::Duration;

use bulkhead_api::v1::WorkerPhase;
use pod::PodSource;
use serde_json::{Value, json};
use simulated_runtime::Faults;

use super::{RUN, finished, running, starts};
use crate::testing::{TestNode, eventually, pod_running};

const NETWORK_DOWN: Faults = Faults {
    network_down: true,
    ..Faults::NONE
};

fn pod_with_deadline() -> Value {
    let mut pod = pod_running("a", "u1", RUN);
    pod["spec"]["activeDeadlineSeconds"] = json!(60);
    pod
}

/// When the pod failed for its deadline.
async fn failed_at(node: &TestNode) -> f64 {
    eventually("the pod fails", || {
        let observation = node.observation("u1").unwrap_or_default();
        observation.failed_reason == "DeadlineExceeded"
    })
    .await;
    node.seconds()
}

#[tokio::test(start_paused = true)]
async fn the_deadline_runs_while_no_sandbox_can_be_made() {
    let mut node = TestNode::new();
    node.runtime.set_faults(NETWORK_DOWN);
    let pod = pod_with_deadline();
    node.create(&pod).await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        node.kill();
        node.start();
        node.create(&pod).await;
    }
    let failed_at = failed_at(&node).await;
    assert!((60.0..63.0).contains(&failed_at), "{failed_at}");
    finished(&node, "u1").await;
    assert!(node.runtime.sandboxes().is_empty());

    // It has failed once and for all, while its source has it.
    node.runtime.set_faults(Faults::NONE);
    node.kill();
    node.start();
    node.create(&pod).await;
    finished(&node, "u1").await;
    let observation = node.observation("u1").unwrap();
    assert_eq!(observation.failed_reason, "DeadlineExceeded");
    assert_eq!(starts(&node, "u1"), [0_u64; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_hangs_does_not_outlast_the_deadline() {
    let node = TestNode::new();
    node.host.state().hanging = ["u1".to_owned()].into();
    node.create(&pod_with_deadline()).await;
    let failed_at = failed_at(&node).await;
    assert!((60.0..61.0).contains(&failed_at), "{failed_at}");
    eventually("nothing runs", || {
        node.phase("u1") == Some(WorkerPhase::Terminated)
    })
    .await;
    node.host.state().hanging.clear();
    finished(&node, "u1").await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_comes_late_does_not_put_the_deadline_off() {
    let mut node = TestNode::new();
    node.runtime.set_faults(NETWORK_DOWN);
    let pod = pod_with_deadline();
    node.create(&pod).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    node.runtime.set_faults(Faults::NONE);
    running(&node, "u1").await;
    node.kill();
    node.start();
    node.create(&pod).await;
    let failed_at = failed_at(&node).await;
    assert!((60.0..61.0).contains(&failed_at), "{failed_at}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_its_source_takes_back_and_has_again_begins_anew() {
    // Before and after its deadline.
    for seconds in [50, 70] {
        let mut node = TestNode::new();
        let pod = pod_with_deadline();
        node.create(&pod).await;
        running(&node, "u1").await;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        if seconds < 60 {
            node.stop(&pod, 1).await;
        }
        finished(&node, "u1").await;
        let pool = &node.current_run().pool;
        let delivered = PodSource::ALL.into();
        pool.sync_known(HashSet::new(), delivered, None)
            .await
            .unwrap();
        assert_eq!(node.runtime.sandboxes().len(), 1, "not collected yet");
        let again = node.seconds();
        node.create(&pod).await;
        running(&node, "u1").await;
        node.kill();
        node.start();
        node.create(&pod).await;
        let failed_at = failed_at(&node).await - again;
        assert!((60.0..61.0).contains(&failed_at), "{failed_at}");
    }
}
