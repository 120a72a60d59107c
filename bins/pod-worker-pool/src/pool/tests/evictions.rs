//! A pod that was evicted stays so for as long as its source has it.

use std::collections::HashSet;
use std::time::Duration;

use bulkhead_api::v1::WorkerPhase;
use pod::PodSource;
use pod::node_shutdown::REJECTED;
use pod_lifecycle::{EvictionRequest, KillRequest, UpdateKind};
use serde_json::Value;
use simulated_runtime::Faults;

use super::{RUN, finished, running, starts};
use crate::pool::Startable;
use crate::testing::{TestNode, eventually, pod_running};

async fn evict(node: &TestNode, pod: &Value) {
    let kill = KillRequest {
        grace: Some(Duration::from_secs(5)),
        eviction: Some(EvictionRequest {
            reason: "Evicted".to_owned(),
            message: "the disk is full".to_owned(),
            is_disruption: true,
        }),
        ..KillRequest::default()
    };
    let sent = node.send(UpdateKind::Kill, pod, Some(kill), Vec::new());
    sent.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_cannot_be_recorded_is_not_over() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", RUN);
    node.create(&pod).await;
    running(&node, "u1").await;
    node.records_can_be_written(false);
    evict(&node, &pod).await;
    eventually("it is stopped all the same", || {
        node.running("u1").is_none()
    })
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let observation = node.observation("u1").unwrap();
    assert_eq!(observation.phase(), WorkerPhase::Terminated);
    let error = observation.sync_error;
    assert!(error.starts_with("cannot record the end"), "{error}");

    node.records_can_be_written(true);
    finished(&node, "u1").await;
    node.kill();
    node.start();
    node.create(&pod).await;
    finished(&node, "u1").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(starts(&node, "u1").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_the_node_shuts_down_nothing_of_a_new_pod_is_made() {
    let mut node = TestNode::new();
    let pool = node.current_run().pool.clone();
    node.create(&pod_running("a", "u1", RUN)).await;
    running(&node, "u1").await;

    let first = ["u1".to_owned()].into();
    pool.set_startable(Startable::Only(first)).await.unwrap();
    node.create(&pod_running("b", "u2", RUN)).await;
    finished(&node, "u2").await;
    assert_eq!(node.observation("u2").unwrap().failed_reason, REJECTED);
    assert_eq!(node.runtime.sandboxes().len(), 1);
    let id = node.running("u1").unwrap().id;

    // The next process does not know yet whether it goes on: what runs does so.
    node.kill();
    node.start();
    let pool = node.current_run().pool.clone();
    pool.set_startable(Startable::Unknown).await.unwrap();
    node.create(&pod_running("a", "u1", RUN)).await;
    node.create(&pod_running("c", "u3", RUN)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    // That both wait says nothing of them.
    assert!(node.observation("u1").is_none() && node.observation("u3").is_none());
    assert_eq!(node.runtime.sandboxes().len(), 1);
    assert_eq!(node.running("u1").unwrap().id, id);
    pool.set_startable(Startable::All).await.unwrap();
    running(&node, "u3").await;
    assert_eq!(node.running("u1").unwrap().id, id);
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_is_not_started_by_another_run() {
    // Seconds after which the pool dies: during the stop and after it.
    for after in [2, 20] {
        let mut node = TestNode::new();
        let pod = pod_running("a", "u1", &["ignore-term"]);
        node.create(&pod).await;
        running(&node, "u1").await;
        evict(&node, &pod).await;
        tokio::time::sleep(Duration::from_secs(after)).await;
        for _ in 0..2 {
            node.kill();
            node.start();
            // Nobody tells the new run anything until all is stopped.
            eventually("it is stopped", || node.running("u1").is_none()).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
            node.create(&pod).await;
            finished(&node, "u1").await;
            let observation = node.observation("u1").unwrap();
            assert_eq!(observation.failed_reason, "Evicted");
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(starts(&node, "u1").len(), 1, "{after}");
            assert_eq!(node.phase("u1"), Some(WorkerPhase::Finished));
        }
        // Its source took it back, and has it again later.
        let (desired, delivered) = (HashSet::new(), PodSource::ALL.into());
        let pool = &node.current_run().pool;
        pool.sync_known(desired, delivered, None).await.unwrap();
        node.create(&pod).await;
        running(&node, "u1").await;
    }
}

/// The next process of the pool would start the pod again if it did not know of the eviction.
#[tokio::test(start_paused = true)]
async fn an_eviction_is_recorded_though_the_runtime_does_not_answer() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", RUN);
    node.create(&pod).await;
    running(&node, "u1").await;
    node.runtime.set_faults(Faults {
        unavailable: true,
        ..Faults::NONE
    });
    evict(&node, &pod).await;
    eventually("the eviction is recorded", || node.is_recorded("Evicted")).await;
    node.kill();
    node.runtime.set_faults(Faults::NONE);
    node.start();
    node.create(&pod).await;
    finished(&node, "u1").await;
    assert_eq!(node.observation("u1").unwrap().failed_reason, "Evicted");
    assert_eq!(starts(&node, "u1").len(), 1);
}
