//! ConfigMaps and Secrets of pods: waited for, seen, and followed.

use std::collections::BTreeSet;

use local_objects::{LocalObject, ObjectKind, ObjectRef};
use pod_lifecycle::UpdateKind;
use serde_json::{Value, json};

use super::{RUN, starts};
use crate::object_table::ObjectList;
use crate::testing::{TestNode, eventually, pod_running};

fn reference() -> ObjectRef {
    ObjectRef {
        kind: ObjectKind::Secret,
        namespace: "default".to_owned(),
        name: "s".to_owned(),
    }
}

/// config-sourcer has this Secret, or none.
fn listed(node: &TestNode, value: Option<&str>) {
    let versions = value.map(|value| (reference(), value.to_owned()));
    node.objects().listed(ObjectList {
        incomplete: String::new(),
        versions: versions.into_iter().collect(),
    });
}

/// The pool asks for its content, and gets it.
fn fetched(node: &TestNode, value: &str) {
    let pod = serde_json::from_value(pod()).unwrap();
    let known = node.objects().known(&pod);
    assert!(known.has_unknown(), "nobody asks for {value}");
    node.objects().fetched(LocalObject {
        reference: reference(),
        version: value.to_owned(),
        data: [("k".to_owned(), value.as_bytes().to_vec().into())].into(),
        binary_keys: BTreeSet::new(),
    });
}

/// The first step of a pod has told what the pod refers to: nothing else is held.
async fn looked_at() {
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
}

/// A pod with the Secret in a volume.
fn pod() -> Value {
    let mut value = pod_running("a", "u1", RUN);
    value["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
    value["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    value
}

/// What is in the volume.
fn content(node: &TestNode) -> Option<String> {
    let state = node.host.state();
    let files = state.files.get(&("u1".to_owned(), "v".to_owned()))?;
    let bytes = files.files.get("k")?.content.as_slice();
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

fn message(node: &TestNode) -> String {
    let events = node.current_run().events.feed().recent();
    let last = events.iter().rev().find(|it| it.reason == "FailedMount");
    last.map(|event| event.message.clone()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_its_secret_says_so_and_starts_as_soon_as_it_is_there() {
    let node = TestNode::new();
    node.create(&pod()).await;
    eventually("nobody knows", || message(&node).contains("not known yet")).await;
    listed(&node, None);
    eventually("it is missing", || {
        message(&node).ends_with("secret \"s\" not found")
    })
    .await;
    assert!(starts(&node, "u1").is_empty());
    let before = node.seconds();
    listed(&node, Some("one"));
    fetched(&node, "one");
    eventually("it starts", || !starts(&node, "u1").is_empty()).await;
    assert!(
        node.seconds() - before < 2.0,
        "it is not waited for a retry"
    );
    assert_eq!(content(&node).as_deref(), Some("one"));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_changes_reaches_the_volume_and_starts_nothing() {
    let mut node = TestNode::new();
    listed(&node, Some("one"));
    node.create(&pod()).await;
    looked_at().await;
    fetched(&node, "one");
    eventually("it starts", || !starts(&node, "u1").is_empty()).await;
    listed(&node, Some("two"));
    fetched(&node, "two");
    eventually("it follows", || content(&node).as_deref() == Some("two")).await;
    // One that is gone stays as it was; so it does for a pool that knows of none.
    listed(&node, None);
    node.kill();
    node.start();
    node.update(UpdateKind::Create, &pod()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(120)).await;
    assert_eq!(content(&node).as_deref(), Some("two"));
    listed(&node, Some("three"));
    fetched(&node, "three");
    eventually("it follows again", || {
        content(&node).as_deref() == Some("three")
    })
    .await;
    assert_eq!(starts(&node, "u1").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_gone_keeps_no_container_from_being_restarted() {
    let node = TestNode::new();
    listed(&node, Some("one"));
    let mut pod = pod();
    pod["spec"]["containers"][0]["command"] = json!(["exit", "1", "5000"]);
    node.create(&pod).await;
    looked_at().await;
    fetched(&node, "one");
    eventually("it starts", || !starts(&node, "u1").is_empty()).await;
    listed(&node, None);
    eventually("it is restarted", || starts(&node, "u1").len() == 3).await;
    assert_eq!(content(&node).as_deref(), Some("one"));
    assert!(node.seconds() < 60.0, "{}", message(&node));
}

/// A file system that hangs during a refresh is not in the way of the pod's end.
#[tokio::test(start_paused = true)]
async fn a_refresh_that_hangs_holds_up_no_stop() {
    let node = TestNode::new();
    listed(&node, Some("one"));
    node.create(&pod()).await;
    looked_at().await;
    fetched(&node, "one");
    eventually("it starts", || !starts(&node, "u1").is_empty()).await;
    node.host.state().hanging.insert("u1".to_owned());
    listed(&node, Some("two"));
    fetched(&node, "two");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let before = node.seconds();
    node.stop(&pod(), 1).await;
    eventually("it is stopped", || node.running("u1").is_none()).await;
    assert!(node.seconds() - before < 4.0, "{}", node.seconds() - before);
}
