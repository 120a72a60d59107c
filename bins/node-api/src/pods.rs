//! The pods of the node, and those that run.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Response;
use ipc::CallError;
use serde_json::{Value, json};

use crate::answer::{self, Body};
use crate::node::Node;

/// Answers `/pods`: what is desired, with the statuses that were computed.
pub(crate) async fn pods(node: &Arc<Node>) -> Response<Body> {
    match listed(node).await {
        Ok(pods) => list(pods),
        Err(error) => answer::refusal(&error),
    }
}

async fn listed(node: &Arc<Node>) -> Result<Vec<Value>, CallError> {
    let (desired, statuses) = (node.desired_pods().await?, node.statuses(None).await?);
    let mut statuses: BTreeMap<String, Vec<u8>> = statuses
        .into_iter()
        .map(|pod| (pod.reference.unwrap_or_default().uid, pod.status))
        .collect();
    let pods = desired.into_iter().filter_map(|desired| {
        let pod = desired.pod?;
        let mut json: Value = serde_json::from_slice(&pod.json).ok()?;
        let uid = pod.reference.unwrap_or_default().uid;
        let status = statuses.remove(&uid).unwrap_or(pod.status);
        json["status"] = serde_json::from_slice(&status).unwrap_or_else(|_| json!({}));
        Some(json)
    });
    Ok(pods.collect())
}

/// Answers `/runningpods`: names and containers alone.
pub(crate) async fn running_pods(node: &Arc<Node>) -> Response<Body> {
    let report = match node.usage().await {
        Ok(report) => report,
        Err(error) => return answer::refusal(&error),
    };
    let pods = report.pods.into_iter().map(|pod| {
        let reference = pod.pod.unwrap_or_default();
        let containers = pod.containers.iter();
        let containers: Vec<Value> = containers
            .map(|container| json!({"name": container.name, "image": "", "resources": {}}))
            .collect();
        json!({
            "metadata": {
                "name": reference.name,
                "namespace": reference.namespace,
                "uid": reference.uid,
                "creationTimestamp": null,
            },
            "spec": {"containers": containers},
            "status": {},
        })
    });
    list(pods.collect())
}

fn list(items: Vec<Value>) -> Response<Body> {
    let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items});
    answer::json(list.to_string())
}
