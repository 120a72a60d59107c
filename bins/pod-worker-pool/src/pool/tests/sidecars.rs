//! Sidecars: their order at the start and at the end of a pod.

use std::time::Duration;

use bulkhead_api::v1;
use pod::metadata::POD_UID_LABEL;
use pod_lifecycle::UpdateKind;
use serde_json::{Value, json};
use simulated_runtime::{Entry, Faults, Happening};
use tokio::time::Instant;

use super::calls;
use crate::testing::{IMAGE, TestNode, eventually, pod_running};

fn container(name: &str, command: &[&str]) -> Value {
    json!({"name": name, "image": IMAGE, "command": command})
}

fn sidecar(name: &str, command: &[&str]) -> Value {
    let mut sidecar = container(name, command);
    sidecar["restartPolicy"] = json!("Always");
    sidecar
}

/// A pod with two sidecars, an init container between them, and a main container.
fn pod(sidecar_command: &[&str], main: &[&str]) -> Value {
    let mut pod = pod_running("a", "u1", main);
    pod["spec"]["initContainers"] = json!([
        sidecar("s1", sidecar_command),
        container("i", &["exit", "0", "100"]),
        sidecar("s2", sidecar_command),
    ]);
    pod
}

fn of(node: &TestNode, is_it: impl Fn(&Happening) -> bool) -> Vec<Entry> {
    let history = node.runtime.history().to_vec().into_iter();
    let history = history.filter(|entry| !entry.container.is_empty());
    history.filter(|entry| is_it(&entry.happening)).collect()
}

fn names(entries: &[Entry]) -> Vec<&str> {
    entries
        .iter()
        .map(|entry| entry.container.as_str())
        .collect()
}

async fn main_runs(node: &TestNode) {
    eventually("the main container runs", || {
        let started = of(node, |it| *it == Happening::Started);
        names(&started).contains(&"c")
    })
    .await;
}

async fn all_stopped(node: &TestNode) {
    eventually("all is stopped", || {
        node.running("u1").is_none() && node.runtime.sandboxes().iter().all(|it| !it.ready)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn sidecars_start_in_order_and_stop_in_reverse_after_the_main_container() {
    let node = TestNode::new();
    let pod = pod(&["slow-term", "1000"], &["slow-term", "3000"]);
    node.create(&pod).await;
    main_runs(&node).await;
    let started = of(&node, |it| *it == Happening::Started);
    assert_eq!(names(&started), ["s1", "i", "s2", "c"]);
    let begun = Instant::now();
    node.stop(&pod, 30).await;
    all_stopped(&node).await;
    let ended: Vec<Entry> = of(&node, |it| matches!(it, Happening::Exited { .. }));
    assert_eq!(names(&ended), ["i", "c", "s2", "s1"]);
    let terminated = of(&node, |it| *it == Happening::Terminated);
    assert_eq!(names(&terminated), ["c", "s2", "s1"]);
    for (ended, terminated) in ended[1..3].iter().zip(&terminated[1..]) {
        assert!(
            ended.at <= terminated.at,
            "each waits for the one before it"
        );
    }
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert!(node.runtime.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn sidecars_are_not_waited_for_beyond_the_grace_and_get_two_seconds_each() {
    let node = TestNode::new();
    let pod = pod(&["ignore-term"], &["ignore-term"]);
    node.create(&pod).await;
    main_runs(&node).await;
    let begun = Instant::now();
    node.stop(&pod, 10).await;
    all_stopped(&node).await;
    // All share the one grace.
    assert_eq!(begun.elapsed().as_secs(), 12);
}

/// The start may end while the pod is looked at, after the runtime has listed the main
/// container as created.
#[tokio::test(start_paused = true)]
async fn a_main_container_that_is_being_started_is_stopped_before_its_sidecars() {
    let starts = |node: &TestNode| node.runtime.calls().get("StartContainer").copied();
    for after in (0..200).step_by(4) {
        let node = TestNode::with_seed(after);
        // Lists take long enough for a start to end meanwhile.
        node.runtime.set_faults(Faults {
            slowness: 10.0,
            ..Faults::NONE
        });
        let pod = pod(&["slow-term", "1000"], &["slow-term", "3000"]);
        node.create(&pod).await;
        eventually("the main container is started", || starts(&node) == Some(4)).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        node.stop(&pod, 30).await;
        all_stopped(&node).await;
        let terminated = of(&node, |it| *it == Happening::Terminated);
        assert_eq!(names(&terminated), ["c", "s2", "s1"], "after {after} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn the_order_of_stops_survives_the_pool_and_the_pods_manifest() {
    for after in [10, 500, 2900, 3500, 4500] {
        let mut node = TestNode::with_seed(after);
        let pod = pod(&["slow-term", "1000"], &["slow-term", "3000"]);
        node.create(&pod).await;
        main_runs(&node).await;
        let begun = Instant::now();
        node.stop(&pod, 30).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        node.kill();
        node.start();
        if after == 10 {
            // Perhaps nothing was recorded yet.
            node.stop(&pod, 30).await;
        }
        all_stopped(&node).await;
        let ended = of(&node, |it| matches!(it, Happening::Exited { .. }));
        assert_eq!(names(&ended), ["i", "c", "s2", "s1"], "{after}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_starts_again_and_ends_with_the_main_container() {
    let node = TestNode::new();
    let mut pod = pod(&["exit", "0", "2000"], &["exit", "0", "9000"]);
    pod["spec"]["restartPolicy"] = json!("Never");
    node.create(&pod).await;
    eventually("the pod has ended", || {
        node.observation("u1").is_some_and(|seen| seen.terminal)
    })
    .await;
    all_stopped(&node).await;
    let started = of(&node, |it| *it == Happening::Started);
    let count = |name: &str| names(&started).iter().filter(|it| **it == name).count();
    assert!(
        count("s1") >= 2 && count("s2") >= 2,
        "{:?}",
        names(&started)
    );
    assert_eq!((count("c"), count("i")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_follows_a_sidecar_waits_for_its_startup_probe() {
    let node = TestNode::new();
    let mut pod = pod(&["run"], &["run"]);
    pod["spec"]["initContainers"][0]["startupProbe"] = json!({"exec": {"command": ["x"]}});
    node.create(&pod).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let started = of(&node, |it| *it == Happening::Started);
    assert_eq!(names(&started), ["s1"]);
    let id = started[0].id.clone();
    let target = node.current_run().pool.publisher().targets().get(&id);
    assert!(target.is_some_and(|target| target.running && !target.startup_json.is_empty()));
    let verdict = v1::ProbeVerdict {
        pod_uid: "u1".into(),
        container_name: "s1".into(),
        container_id: id,
        kind: v1::ProbeKind::Startup.into(),
        result: v1::ProbeResult::Success.into(),
        message: String::new(),
    };
    let told = node.send(UpdateKind::Sync, &pod, None, vec![verdict]);
    told.await.unwrap();
    main_runs(&node).await;
}

/// A node on which the main container of a pod was made and never started, since the pool was
/// killed; its id.
async fn main_is_only_created(pod: &Value) -> (TestNode, String) {
    let mut node = TestNode::new();
    node.create(pod).await;
    eventually("all before it are started", || {
        calls(&node, "StartContainer") == 3
    })
    .await;
    node.runtime.set_faults(Faults {
        container_delay: Duration::from_secs(1),
        ..Faults::NONE
    });
    eventually("it is made", || calls(&node, "CreateContainer") == 4).await;
    node.kill();
    node.runtime.set_faults(Faults::NONE);
    let newest = || node.runtime.newest((POD_UID_LABEL, "u1"), "c");
    eventually("it shows", || newest().is_some()).await;
    let created = newest().unwrap();
    assert!(!created.running);
    (node, created.id)
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_removed_keeps_neither_sidecars_nor_the_sandbox_from_ending() {
    let pod = pod(&["slow-term", "1000"], &["run"]);
    let (mut node, created) = main_is_only_created(&pod).await;
    node.runtime
        .set_call_fails("RemoveContainer", &created, true);
    node.start();
    node.stop(&pod, 30).await;
    all_stopped(&node).await;
    let terminated = of(&node, |it| *it == Happening::Terminated);
    assert_eq!(names(&terminated), ["s2", "s1"]);
    eventually("the pod has ended", || {
        node.phase("u1") == Some(v1::WorkerPhase::Finished)
    })
    .await;
}
