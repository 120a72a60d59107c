//! A state disk that hangs holds up neither the actor nor, for long, a stop.

use std::collections::HashSet;

use bulkhead_api::v1::WorkerPhase;
use pod::PodSource;

use super::{RUN, finished, running};
use crate::testing::{TestNode, eventually, pod_running};

#[tokio::test(start_paused = true)]
async fn a_state_disk_that_hangs_stalls_no_worker_and_keeps_no_container_alive() {
    let mut node = TestNode::new();
    let stopped = pod_running("a", "u1", RUN);
    node.create(&stopped).await;
    running(&node, "u1").await;
    node.state_disk_hangs();
    let before = node.seconds();
    node.stop(&stopped, 1).await;
    node.create(&pod_running("b", "u2", RUN)).await;
    running(&node, "u2").await;
    let took = node.seconds() - before;
    assert!(took < 3.0, "another pod starts meanwhile: {took}");
    finished(&node, "u1").await;
    let took = node.seconds() - before;
    assert!(took < 20.0, "each record is waited for a little: {took}");

    let asked = node.seconds();
    let pool = &node.life().pool;
    let (desired, delivered) = (HashSet::new(), PodSource::ALL.into());
    let known = pool.sync_known(desired, delivered, None).await.unwrap();
    let took = node.seconds() - asked;
    assert!(
        took.abs() < f64::EPSILON,
        "the actor waits for no disk: {took}"
    );
    let known = known.iter().filter_map(|worker| worker.pod.as_ref());
    let known: Vec<&str> = known.map(|pod| pod.uid.as_str()).collect();
    assert_eq!(known, ["u2"], "it is forgotten at once");
}

#[tokio::test(start_paused = true)]
async fn a_termination_whose_record_was_lost_is_asked_for_again() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", &["ignore-term"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    node.state_disk_hangs();
    node.stop(&pod, 20).await;
    eventually("it is being stopped", || {
        node.phase("u1") == Some(WorkerPhase::Terminating)
    })
    .await;
    node.kill();
    node.start();
    node.create(&pod).await;
    running(&node, "u1").await;
    node.stop(&pod, 2).await;
    finished(&node, "u1").await;
    assert!(node.runtime.violations().is_empty());
}
