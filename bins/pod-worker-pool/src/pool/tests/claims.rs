//! Pods that claim PersistentVolumes of the node.

use std::collections::BTreeSet;

use local_objects::{LocalObject, ObjectKind, ObjectRef, PersistentVolume};
use pod_lifecycle::UpdateKind;
use serde_json::{Value, json};

use super::{RUN, starts};
use crate::object_table::ObjectList;
use crate::testing::{TestNode, eventually, pod_running};

const GRANT: &str =
    "[[grants]]\npods = [\"default/a\"]\nhostPaths = [{ prefix = \"/srv/data\" }]\n";

fn reference() -> ObjectRef {
    ObjectRef {
        kind: ObjectKind::PersistentVolume,
        namespace: "default".to_owned(),
        name: "data".to_owned(),
    }
}

fn pod() -> Value {
    let mut value = pod_running("a", "u1", RUN);
    value["spec"]["volumes"] =
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    value["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    value
}

/// config-sourcer has no volume, or this one.
fn listed(node: &TestNode, version: Option<&str>) {
    let versions = version.map(|version| (reference(), version.to_owned()));
    node.objects().listed(ObjectList {
        incomplete: String::new(),
        versions: versions.into_iter().collect(),
    });
}

fn fetched(node: &TestNode) {
    let volume = PersistentVolume {
        path: "/srv/data".to_owned(),
        path_type: "Directory".to_owned(),
        is_local: true,
    };
    node.objects().fetched(LocalObject {
        reference: reference(),
        version: "1".to_owned(),
        data: volume.data(),
        binary_keys: BTreeSet::new(),
    });
}

fn last_event(node: &TestNode, reason: &str) -> String {
    let events = node.current_run().events.feed().recent();
    let last = events.iter().rev().find(|it| it.reason == reason);
    last.map(|event| event.message.clone()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_claimed_volume_is_a_path_of_the_node_under_its_policy() {
    let mut node = TestNode::that_watches_its_policy();
    listed(&node, None);
    node.create(&pod()).await;
    eventually("it is missing", || {
        last_event(&node, "FailedMount").contains("is bound to the claim \"data\"")
    })
    .await;
    listed(&node, Some("1"));
    fetched(&node);
    eventually("it is refused", || {
        last_event(&node, "RefusedByNodePolicy").contains("/srv/data")
    })
    .await;
    assert!(starts(&node, "u1").is_empty());
    node.write_policy(GRANT);
    eventually("it starts", || !starts(&node, "u1").is_empty()).await;
    // A pool that knows nothing of the volume yet lets it run on.
    node.kill();
    node.start();
    node.update(UpdateKind::Create, &pod()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(120)).await;
    assert_eq!(starts(&node, "u1").len(), 1);
    assert!(node.running("u1").is_some());
}

/// The pool starts a pod before config-sourcer has told of its volume.
#[tokio::test(start_paused = true)]
async fn a_volume_that_is_found_during_the_first_start_fails_no_mount() {
    let node = TestNode::that_watches_its_policy();
    node.write_policy(GRANT);
    node.create(&pod()).await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let before = node.seconds();
    listed(&node, Some("1"));
    fetched(&node);
    eventually("it starts", || !starts(&node, "u1").is_empty()).await;
    // The policy may have been read after the volume was found.
    assert!(
        node.seconds() - before < 10.0,
        "{}",
        node.seconds() - before
    );
    assert_eq!(last_event(&node, "FailedMount"), "");
}
