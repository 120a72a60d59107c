//! Starts that a killed pool asked for, and that its connection carries out
//! under the next one: what they start is asked to end like anything else.

use std::time::Duration;

use serde_json::{Value, json};
use simulated_runtime::{Faults, Happening};

use super::{calls, finished, running};
use crate::testing::{TestNode, eventually, pod_running};

/// A start that ends just before a removal that was asked for while it went on.
const START_BEFORE_REMOVAL: Faults = Faults {
    start_delay: Duration::from_millis(300),
    container_removal_delay: Duration::from_millis(400),
    ..Faults::NONE
};

/// A node whose pool was killed while it started the pod's container, and is back.
async fn killed_during_a_start(pod: &Value) -> TestNode {
    let mut node = TestNode::new();
    node.runtime.set_faults(START_BEFORE_REMOVAL);
    node.create(pod).await;
    eventually("it is asked for", || calls(&node, "StartContainer") == 1).await;
    node.kill();
    node.start();
    node
}

/// What happened to the first instance since it was created.
fn first_instance(node: &TestNode) -> Vec<Happening> {
    let history = node.runtime.history();
    let is_container = |id: &str| {
        let mut all = history.iter();
        all.any(|it| it.id == id && !it.container.is_empty())
    };
    let first = history.iter().find(|it| is_container(&it.id)).unwrap();
    let of_first = history.iter().filter(|it| it.id == first.id).skip(1);
    of_first.map(|it| it.happening.clone()).collect()
}

/// That it was started, asked to end, and ended by itself.
fn was_asked(node: &TestNode) {
    let happenings = first_instance(node);
    let [
        Happening::Started,
        Happening::Terminated,
        Happening::Exited { killed: false, .. },
        ..,
    ] = happenings.as_slice()
    else {
        panic!("{happenings:?}");
    };
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_run_is_starting_is_asked_to_end_with_its_pod() {
    let pod = pod_running("a", "u1", &["run"]);
    let node = killed_during_a_start(&pod).await;
    node.stop(&pod, 30).await;
    finished(&node, "u1").await;
    was_asked(&node);
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_run_is_starting_is_asked_to_end_when_its_spec_changed() {
    let mut pod = pod_running("a", "u1", &["run"]);
    let node = killed_during_a_start(&pod).await;
    pod["spec"]["containers"][0]["image"] = json!("localhost/other:1");
    node.runtime.add_image("localhost/other:1", true);
    node.create(&pod).await;
    eventually("the old one ends", || first_instance(&node).len() > 2).await;
    was_asked(&node);
    running(&node, "u1").await;
}

/// Nothing is starting it, as when the pool died just before it asked.
#[tokio::test(start_paused = true)]
async fn what_nobody_starts_holds_its_pod_for_a_few_seconds_at_most() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", &["run"]);
    node.create(&pod).await;
    eventually("it is created", || calls(&node, "CreateContainer") == 1).await;
    node.kill();
    eventually("it is there", || node.runtime.containers().len() == 1).await;
    node.start();
    let begun = node.seconds();
    node.stop(&pod, 30).await;
    finished(&node, "u1").await;
    assert_eq!(calls(&node, "StartContainer"), 0);
    let took = node.seconds() - begun;
    assert!((4.0..7.0).contains(&took), "{took}");
}
