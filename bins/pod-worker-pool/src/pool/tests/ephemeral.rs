//! Ephemeral containers: added to a pod that runs, started once, stopped with it.

use std::time::Duration;

use bulkhead_api::v1::RuntimeState;
use pod_lifecycle::UpdateKind;
use serde_json::{Value, json};
use simulated_runtime::Happening;

use super::{finished, running};
use crate::testing::{IMAGE, TestNode, eventually, pod_running};

fn add(pod: &mut Value, name: &str, command: &[&str], target: &str) {
    let spec = pod["spec"].as_object_mut().unwrap();
    let listed = spec.entry("ephemeralContainers").or_insert(json!([]));
    listed.as_array_mut().unwrap().push(json!({
        "name": name, "image": IMAGE, "command": command, "targetContainerName": target,
    }));
}

fn starts(node: &TestNode, name: &str) -> usize {
    let history = node.runtime.history().to_vec().into_iter();
    let started = history.filter(|it| it.happening == Happening::Started);
    started.filter(|it| it.container == name).count()
}

async fn ended(node: &TestNode, name: &str) {
    eventually("it has ended", || {
        let seen = node.observation("u1").unwrap_or_default();
        let mut seen = seen.containers.iter();
        seen.any(|it| it.name == name && it.state() == RuntimeState::Exited)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_added_starts_once_over_kills_and_changes_nothing_else() {
    let mut node = TestNode::new();
    let mut pod = pod_running("a", "u1", &["run"]);
    node.create(&pod).await;
    let id = running(&node, "u1").await;
    add(&mut pod, "e", &["exit", "3", "500"], "c");
    node.update(UpdateKind::Update, &pod).await.unwrap();
    ended(&node, "e").await;
    node.kill();
    node.start();
    node.create(&pod).await;
    ended(&node, "e").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((starts(&node, "e"), starts(&node, "c")), (1, 1));
    assert_eq!(running(&node, "u1").await, id);
    // A further one, which the end of the pod ends too.
    add(&mut pod, "f", &["run"], "");
    node.update(UpdateKind::Update, &pod).await.unwrap();
    eventually("the further one runs", || starts(&node, "f") == 1).await;
    node.stop(&pod, 5).await;
    finished(&node, "u1").await;
    assert!(node.running("u1").is_none());
    assert!(node.runtime.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_waits_for_the_container_whose_processes_it_is_to_see() {
    let node = TestNode::new();
    let mut pod = pod_running("a", "u1", &["run"]);
    let init = json!({"name": "i", "image": IMAGE, "command": ["exit", "0", "20000"]});
    pod["spec"]["initContainers"] = json!([init]);
    add(&mut pod, "e", &["run"], "c");
    add(&mut pod, "f", &["run"], "");
    node.create(&pod).await;
    eventually("why it waits is told", || {
        let seen = node.observation("u1").unwrap_or_default();
        let waiting = seen.waiting.iter().find(|it| it.name == "e");
        waiting.is_some_and(|it| it.message == "unable to find target container \"c\"")
    })
    .await;
    eventually("the others start", || {
        starts(&node, "f") == 1 && starts(&node, "i") == 1
    })
    .await;
    eventually("it starts", || starts(&node, "e") == 1).await;
    assert_eq!(starts(&node, "c"), 1);
}
