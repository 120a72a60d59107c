//! Pods from an API server that ask for what this node does not offer, and those that end
//! there.

use bulkhead_api::v1::service_change::Change;
use bulkhead_api::v1::{Service, ServiceChange, ServicePort, WorkerPhase};
use local_objects::{ServiceReader, Services};
use pod::{PodDocument, PodSource};
use pod_lifecycle::plan::NOT_OFFERED_REASON;
use pod_lifecycle::{DesiredPod, Subject, Update, UpdateKind};
use serde_json::{Value, json};

use super::{RUN, running};
use crate::pool::UpdateExtras;
use crate::testing::{TestNode, eventually, pod_running};

async fn create(node: &TestNode, pod: &Value) {
    send(node, UpdateKind::Create, pod).await;
}

async fn send(node: &TestNode, kind: UpdateKind, pod: &Value) {
    let json = pod.to_string().into_bytes();
    let (document, _) = PodDocument::from_json(json, PodSource::Api).unwrap();
    let update = Update {
        kind,
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
    for (field, value, said) in [
        (
            "resources",
            json!({"limits": {"example.com/gpu": "1"}}),
            "example.com/gpu",
        ),
        ("volumes", json!([{"name": "v", "nfs": {}}]), "nfs"),
        ("runtimeClassName", json!("vm"), "vm"),
    ] {
        let node = TestNode::new();
        let mut pod = pod_running("a", "u1", RUN);
        let part = match field {
            "resources" => &mut pod["spec"]["containers"][0],
            _ => &mut pod["spec"],
        };
        part[field] = value;
        create(&node, &pod).await;
        create(&node, &pod_running("b", "u2", RUN)).await;
        running(&node, "u2").await;
        eventually("it is said", || !node.events("u1").is_empty()).await;

        let events = node.events("u1");
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0].reason, NOT_OFFERED_REASON);
        assert!(events[0].message.contains(said), "{events:?}");
        let waiting = &node.observation("u1").unwrap().waiting[0];
        assert_eq!(waiting.reason, NOT_OFFERED_REASON);
        assert!(node.running("u1").is_none());
        // It can be deleted as any other.
        node.stop(&pod, 1).await;
        let ended = Some(WorkerPhase::Finished);
        eventually("it ends", || node.phase("u1") == ended).await;
    }
}

fn services(cluster_ip: &str) -> Services {
    let service = Service {
        uid: "s".to_owned(),
        namespace: "default".to_owned(),
        name: "kubernetes".to_owned(),
        cluster_ip: cluster_ip.to_owned(),
        ports: vec![ServicePort::default()],
    };
    let mut reader = ServiceReader::default();
    for change in [
        Change::SnapshotBegin(bulkhead_api::v1::SnapshotBegin {}),
        Change::Service(service),
        Change::SnapshotEnd(bulkhead_api::v1::SnapshotEnd {}),
    ] {
        reader.take(ServiceChange {
            change: Some(change),
        });
    }
    reader.services().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn containers_are_told_of_services_when_they_are_made() {
    let node = TestNode::new();
    node.services().set(services("10.0.0.1"));
    create(&node, &pod_running("a", "u1", RUN)).await;
    running(&node, "u1").await;
    let container = node.running("u1").unwrap();
    let mut variables = container.config.envs.iter();
    let host = variables.find(|it| it.key == "KUBERNETES_SERVICE_HOST");
    assert_eq!(host.unwrap().value, b"10.0.0.1");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_or_is_deleted_before_it_ran_is_never_started() {
    let node = TestNode::new();
    let mut ended = pod_running("a", "u1", RUN);
    ended["status"] = json!({"phase": "Succeeded"});
    let mut deleted = pod_running("b", "u2", RUN);
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    deleted["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    send(&node, UpdateKind::Update, &ended).await;
    create(&node, &deleted).await;
    for uid in ["u1", "u2"] {
        let finished = Some(WorkerPhase::Finished);
        eventually("it ends", || node.phase(uid) == finished).await;
        let observation = node.observation(uid).unwrap();
        assert!(observation.is_observed);
        assert!(observation.sandboxes.is_empty() && observation.containers.is_empty());
        assert_eq!(node.reasons(uid), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_of_a_pod_that_its_source_calls_ended_is_stopped() {
    let node = TestNode::new();
    let mut pod = pod_running("a", "u1", RUN);
    create(&node, &pod).await;
    running(&node, "u1").await;
    pod["status"] = json!({"phase": "Failed"});
    send(&node, UpdateKind::Update, &pod).await;
    let finished = Some(WorkerPhase::Finished);
    eventually("it ends", || node.phase("u1") == finished).await;
    assert!(node.running("u1").is_none());
}
