//! Images that are pulled by Secrets of their pods.

use std::collections::BTreeSet;

use local_objects::{LocalObject, ObjectKind, ObjectRef};
use serde_json::{Value, json};

use super::{RUN, starts};
use crate::object_table::ObjectList;
use crate::testing::{TestNode, eventually, pod_running};

const PRIVATE: &str = "a.io/team/web:1";

fn reference() -> ObjectRef {
    ObjectRef {
        kind: ObjectKind::Secret,
        namespace: "default".to_owned(),
        name: "registry".to_owned(),
    }
}

/// A pod with an image that only who has the password gets.
fn pod(node: &TestNode) -> Value {
    node.runtime.add_image(PRIVATE, false);
    node.runtime.set_pull_password(PRIVATE, "hunter2");
    let mut value = pod_running("a", "u1", RUN);
    value["spec"]["imagePullSecrets"] = json!([{"name": "registry"}]);
    value["spec"]["containers"][0]["image"] = json!(PRIVATE);
    value
}

/// config-sourcer has the Secret.
fn has_secret(node: &TestNode, value: &Value) {
    let config = json!({"auths": {"a.io": {"username": "joe", "password": "hunter2"}}});
    node.objects().listed(ObjectList {
        incomplete: String::new(),
        versions: [(reference(), "1".to_owned())].into(),
    });
    let pod = serde_json::from_value(value.clone()).unwrap();
    assert!(node.objects().known(&pod).has_unknown());
    node.objects().fetched(LocalObject {
        reference: reference(),
        version: "1".to_owned(),
        data: [(
            ".dockerconfigjson".to_owned(),
            config.to_string().into_bytes().into(),
        )]
        .into(),
        binary_keys: BTreeSet::new(),
    });
}

fn passwords(node: &TestNode) -> Vec<Option<String>> {
    let auths = node.runtime.pull_auths().into_iter();
    auths.map(|auth| auth.map(|it| it.password)).collect()
}

#[tokio::test(start_paused = true)]
async fn an_image_is_pulled_by_the_secret_of_its_pod() {
    let node = TestNode::new();
    let pod = pod(&node);
    node.create(&pod).await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    has_secret(&node, &pod);
    eventually("it starts", || !starts(&node, "u1").is_empty()).await;
    assert_eq!(passwords(&node), [Some("hunter2".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_not_there_is_told_and_taken_as_soon_as_it_is() {
    let node = TestNode::new();
    let pod = pod(&node);
    node.objects().listed(ObjectList::default());
    node.create(&pod).await;
    let told = |reason: &str| {
        let events = node.current_run().events.feed().recent();
        let event = events.iter().find(|event| event.reason == reason).cloned();
        event.map(|event| event.message)
    };
    let reason = "FailedToRetrieveImagePullSecret";
    eventually("it is told", || told(reason).is_some()).await;
    assert_eq!(
        told(reason).unwrap(),
        "Unable to retrieve some image pull secrets (registry); attempting to pull the image may \
         not succeed."
    );
    eventually("nobody is let in", || !passwords(&node).is_empty()).await;
    assert_eq!(passwords(&node), [None]);
    has_secret(&node, &pod);
    eventually("it starts", || !starts(&node, "u1").is_empty()).await;
    assert_eq!(passwords(&node).last(), Some(&Some("hunter2".to_owned())));
    let events = format!("{:?}", node.current_run().events.feed().recent());
    assert!(!events.contains("hunter2"), "{events}");
}
