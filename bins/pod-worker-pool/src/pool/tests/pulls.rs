//! Pulls that never end, or end late: nothing but the container that needs the image
//! waits for them.

use std::time::Duration;

use bulkhead_api::v1::RuntimeState;
use pod_lifecycle::UpdateKind;
use serde_json::{Value, json};
use simulated_runtime::{Faults, Happening};

use super::{RUN, calls, finished, starts};
use crate::testing::{IMAGE, TestNode, eventually, pod_running};

const SLOW: &str = "localhost/slow:1";

/// A node on which pulls of `SLOW` never end.
fn node() -> TestNode {
    let node = TestNode::new();
    node.runtime.add_image(SLOW, false);
    node.runtime.set_pull_hangs(SLOW, true);
    node
}

/// A pod with a container `d` whose image has to be pulled, and after it the usual `c`.
fn pod_with_slow_pull(command: &[&str]) -> Value {
    let mut pod = pod_running("a", "u1", command);
    pod["spec"]["containers"] = json!([
        {"name": "d", "image": SLOW, "command": RUN},
        {"name": "c", "image": IMAGE, "command": command},
    ]);
    pod
}

fn pulls(node: &TestNode) -> u64 {
    calls(node, "PullImage")
}

fn runs(node: &TestNode, name: &str) -> bool {
    let containers = node.runtime.containers().into_iter();
    containers.filter(|it| it.running).any(|it| it.name == name)
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_image_is_there_runs_while_its_siblings_pull_hangs() {
    let node = node();
    node.create(&pod_with_slow_pull(RUN)).await;
    eventually("it runs", || runs(&node, "c")).await;
    assert!(node.seconds() < 1.0, "{}", node.seconds());
    eventually("it is told of", || {
        let observation = node.observation("u1").unwrap_or_default();
        let mut containers = observation.containers.iter();
        containers.any(|it| it.name == "c" && it.state() == RuntimeState::Running)
    })
    .await;
    let waiting = node.observation("u1").unwrap().waiting;
    let waiting: Vec<_> = waiting.iter().map(|it| (&*it.name, &*it.reason)).collect();
    assert_eq!(waiting, [("d", "ContainerCreating")]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!runs(&node, "d"));

    node.runtime.set_pull_hangs(SLOW, false);
    let begun = node.seconds();
    eventually("the other one runs too", || runs(&node, "d")).await;
    assert!(node.seconds() - begun < 1.0, "nobody waits for a resync");
    assert_eq!(pulls(&node), 1);
}

#[tokio::test(start_paused = true)]
async fn a_container_is_restarted_while_its_siblings_pull_hangs() {
    let node = node();
    node.create(&pod_with_slow_pull(&["exit", "1", "0"])).await;
    eventually("three starts", || starts(&node, "u1").len() == 3).await;
    assert_eq!(starts(&node, "u1"), [0, 0, 10]);
    assert_eq!(pulls(&node), 1, "no step begins the pull anew");
}

#[tokio::test(start_paused = true)]
async fn a_pull_outlives_the_sandbox_that_it_began_with() {
    let node = node();
    node.create(&pod_with_slow_pull(RUN)).await;
    eventually("it runs", || runs(&node, "c")).await;
    let sandbox = node.runtime.sandboxes().remove(0).id;
    let runtime: &dyn cri::RuntimeChanges = &node.runtime;
    tokio::time::sleep(Duration::from_secs(2)).await;
    runtime.stop_pod_sandbox(&sandbox).await.unwrap();
    node.update(UpdateKind::Sync, &pod_with_slow_pull(RUN))
        .await
        .unwrap();
    eventually("there is another sandbox", || {
        node.runtime.sandboxes().len() == 2
    })
    .await;
    node.runtime.set_pull_hangs(SLOW, false);
    eventually("all run", || runs(&node, "c") && runs(&node, "d")).await;
    assert_eq!(pulls(&node), 1);
}

#[tokio::test(start_paused = true)]
async fn an_image_is_pulled_once_while_no_sandbox_can_be_made() {
    let node = TestNode::new();
    let faults = Faults {
        sandboxes_fail: true,
        ..Faults::NONE
    };
    node.runtime.set_faults(faults);
    let mut pod = pod_running("a", "u1", RUN);
    pod["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
    node.create(&pod).await;
    eventually("it is tried again and again", || {
        calls(&node, "RunPodSandbox") >= 5
    })
    .await;
    assert_eq!(pulls(&node), 1);
    node.runtime.set_faults(Faults::NONE);
    eventually("it runs", || runs(&node, "c")).await;
    assert_eq!(pulls(&node), 1);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_gets_another_image_does_not_wait_for_the_old_one() {
    let node = node();
    node.create(&pod_with_slow_pull(RUN)).await;
    eventually("it runs", || runs(&node, "c")).await;
    let mut pod = pod_with_slow_pull(RUN);
    pod["spec"]["containers"][0]["image"] = json!(IMAGE);
    node.update(UpdateKind::Update, &pod).await.unwrap();
    let begun = node.seconds();
    eventually("all run", || runs(&node, "d")).await;
    assert!(node.seconds() - begun < 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_pull_hangs_is_stopped_at_once() {
    let node = node();
    let pod = pod_with_slow_pull(RUN);
    node.create(&pod).await;
    eventually("it runs", || runs(&node, "c")).await;
    let begun = node.seconds();
    node.stop(&pod, 30).await;
    finished(&node, "u1").await;
    assert!(node.seconds() - begun < 5.0);
    node.runtime.set_pull_hangs(SLOW, false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!runs(&node, "d"));
}

#[tokio::test(start_paused = true)]
async fn containers_wait_for_init_containers_whose_pull_is_slow() {
    let node = node();
    let mut pod = pod_running("a", "u1", RUN);
    let exits = ["exit", "0", "0"];
    pod["spec"]["initContainers"] = json!([{"name": "i", "image": SLOW, "command": exits}]);
    node.create(&pod).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(starts(&node, "u1"), Vec::<u64>::new());
    node.runtime.set_pull_hangs(SLOW, false);
    eventually("all of it has run", || runs(&node, "c")).await;
    let history = node.runtime.history().to_vec().into_iter();
    let started: Vec<String> = history
        .filter(|it| it.happening == Happening::Started && !it.container.is_empty())
        .map(|it| it.container)
        .collect();
    assert_eq!(started, ["i", "c"]);
}
