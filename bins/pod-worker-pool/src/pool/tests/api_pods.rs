//! Pods from an API server that ask for what this node does not offer.

use bulkhead_api::v1::WorkerPhase;
use pod::{PodDocument, PodSource};
use pod_lifecycle::plan::NOT_OFFERED_REASON;
use pod_lifecycle::{DesiredPod, Subject, Update, UpdateKind};
use serde_json::{Value, json};

use super::{RUN, running};
use crate::pool::UpdateExtras;
use crate::testing::{TestNode, eventually, pod_running};

async fn create(node: &TestNode, pod: &Value) {
    let json = pod.to_string().into_bytes();
    let (document, _) = PodDocument::from_json(json, PodSource::Api).unwrap();
    let update = Update {
        kind: UpdateKind::Create,
        subject: Subject::Desired(DesiredPod::new(document).unwrap()),
        kill: None,
    };
    let updated = node
        .current_run()
        .pool
        .update(update, UpdateExtras::default());
    updated.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_for_what_the_node_does_not_offer_waits_with_an_event() {
    let node = TestNode::new();
    let mut pod = pod_running("a", "u1", RUN);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"example.com/gpu": "1"}});
    create(&node, &pod).await;
    create(&node, &pod_running("b", "u2", RUN)).await;
    running(&node, "u2").await;
    eventually("it is said", || !node.events("u1").is_empty()).await;

    let events = node.events("u1");
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].reason, NOT_OFFERED_REASON);
    assert!(events[0].message.contains("example.com/gpu"), "{events:?}");
    let waiting = &node.observation("u1").unwrap().waiting[0];
    assert_eq!(waiting.reason, NOT_OFFERED_REASON);
    assert!(node.running("u1").is_none());
    // It can be deleted as any other.
    node.stop(&pod, 1).await;
    let ended = Some(WorkerPhase::Finished);
    eventually("it ends", || node.phase("u1") == ended).await;
}
