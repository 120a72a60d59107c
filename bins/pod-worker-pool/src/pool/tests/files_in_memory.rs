//! What the files of all pods may take in memory.

use std::collections::BTreeSet;

use local_objects::{LocalObject, ObjectKind, ObjectRef};
use serde_json::{Value, json};

use super::{RUN, running};
use crate::object_table::ObjectList;
use crate::testing::{TestNode, eventually, pod_running};

/// So many files of 1 MiB has each pod: three of these pods have room, four have not.
const FILES: usize = 15;

fn pod(uid: &str, kind: ObjectKind) -> Value {
    let item = |index| json!({"key": "k", "path": format!("f{index}")});
    let items: Vec<Value> = (0..FILES).map(item).collect();
    let mut value = pod_running(uid, uid, RUN);
    value["spec"]["volumes"] = match kind {
        ObjectKind::Secret => json!([{"name": "v", "secret": {"secretName": "s", "items": items}}]),
        _ => json!([{"name": "v", "configMap": {"name": "s", "items": items}}]),
    };
    value["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    value
}

/// A node on which three pods run, each with its files of an object of this kind.
async fn with_three_pods(kind: ObjectKind) -> TestNode {
    let node = TestNode::new();
    let reference = ObjectRef {
        kind,
        namespace: "default".to_owned(),
        name: "s".to_owned(),
    };
    node.objects().listed(ObjectList {
        incomplete: String::new(),
        versions: [(reference.clone(), "1".to_owned())].into(),
    });
    node.create(&pod("u1", kind)).await;
    let first = serde_json::from_value(pod("u1", kind)).unwrap();
    assert!(node.objects().known(&first).has_unknown());
    node.objects().fetched(LocalObject {
        reference,
        version: "1".to_owned(),
        data: [("k".to_owned(), vec![b'x'; 1 << 20].into())].into(),
        binary_keys: BTreeSet::new(),
    });
    running(&node, "u1").await;
    for uid in ["u2", "u3"] {
        node.create(&pod(uid, kind)).await;
        running(&node, uid).await;
    }
    node
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_files_find_no_room_in_memory_says_so_and_starts_when_another_has_gone() {
    let node = with_three_pods(ObjectKind::Secret).await;
    node.create(&pod("u4", ObjectKind::Secret)).await;
    let of_others = format!("those of other pods {}", (3 * FILES) << 20);
    eventually("the pod's owner is told", || {
        let events = node.events("u4");
        let mut refused = events.iter().filter(|it| it.reason == "FailedMount");
        refused.any(|it| it.message.contains(&of_others))
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert!(node.running("u4").is_none());
    node.stop(&pod("u2", ObjectKind::Secret), 1).await;
    running(&node, "u4").await;
}

/// These are on the node's disk.
#[tokio::test(start_paused = true)]
async fn files_of_config_maps_take_no_memory() {
    let node = with_three_pods(ObjectKind::ConfigMap).await;
    node.create(&pod("u4", ObjectKind::ConfigMap)).await;
    running(&node, "u4").await;
    assert!(!node.reasons("u4").contains(&"FailedMount".to_owned()));
}
