//! A state disk that hangs holds up neither the actor nor, for long, a stop.

use std::collections::HashSet;
use std::time::Duration;

use bulkhead_api::v1::WorkerPhase;
use pod::PodSource;
use simulated_runtime::Happening;

use super::graces::{fails_its_probe, stubborn};
use super::{RUN, finished, running};
use crate::testing::{TestNode, eventually, pod_running};

#[tokio::test(start_paused = true)]
async fn a_state_disk_that_hangs_stalls_no_worker_and_keeps_no_container_alive() {
    let node = TestNode::new();
    let stopped = pod_running("a", "u1", RUN);
    node.create(&stopped).await;
    running(&node, "u1").await;
    node.state_disk_hangs(true);
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
    let pool = &node.current_run().pool;
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
    node.state_disk_hangs(true);
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

#[tokio::test(start_paused = true)]
async fn the_grace_does_not_run_while_its_record_is_written() {
    // When the pod is deleted whose probe failed, whether the disk answers again a
    // second later, the pod's grace, and what is between SIGTERM and SIGKILL.
    for (deleted, answers, grace, expected) in [
        (4, true, 60, 5),
        (4, true, 3, 3),
        (4, false, 60, 5),
        (6, true, 60, 5),
        (6, false, 60, 5),
        // That it is shorter now is recorded first.
        (6, false, 3, 5),
    ] {
        let node = TestNode::new();
        let pod = stubborn(5);
        node.create(&pod).await;
        let id = running(&node, "u1").await;
        node.state_disk_hangs(true);
        fails_its_probe(&node, &pod, &id).await;
        tokio::time::sleep(Duration::from_secs(deleted)).await;
        node.stop(&pod, grace).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        node.state_disk_hangs(!answers);
        eventually("it is dead", || node.running("u1").is_none()).await;
        let history = node.runtime.history();
        let at = |wanted: fn(&Happening) -> bool| {
            let mut all = history.iter();
            all.find(|entry| entry.id == id && wanted(&entry.happening))
                .map(|entry| entry.at)
                .unwrap()
        };
        let asked = at(|happening| *happening == Happening::Terminated);
        let ended = at(|happening| matches!(happening, Happening::Exited { .. }));
        let took = ended.since(asked).as_secs_f64().round();
        assert_eq!(took, f64::from(expected), "{deleted} {answers} {grace}");
    }
}
