//! Pods that the node policy forbids.

use anyhow::{Context as _, Result};
use cluster::condition::condition;
use cluster::{Cluster, Grace};
use serde_json::{Value, json};
use test_support::images::TESTAPP;

/// A pod on the node's network, which `baseline` does not allow.
fn on_the_nodes_network(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "hostNetwork": true,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "app", "image": TESTAPP}],
        },
    })
}

#[test]
fn a_pod_that_the_policy_forbids_waits_until_it_is_allowed_or_deleted() -> Result<()> {
    let cluster = Cluster::start_with_policy(Some(String::new()))?;
    let pod = |name: &str| -> Result<Value> {
        let pods = cluster.pods(name)?;
        pods.first().cloned().context("there is no such pod")
    };
    for name in ["deleted", "allowed"] {
        cluster.plane.apply(&on_the_nodes_network(name))?;
        cluster.until("the pod to be refused", || {
            let status = &pod(name)?["status"];
            let waiting = &status["containerStatuses"][0]["state"]["waiting"];
            Ok(status["phase"] == "Pending" && waiting["reason"] == "RefusedByNodePolicy")
        })?;
    }
    cluster.plane.delete("pod", "deleted", Grace::Own)?;
    cluster.until("the refused pod to be gone", || {
        Ok(cluster.pods("deleted")?.is_empty())
    })?;
    for name in ["deleted", "allowed"] {
        let mut events = cluster.plane.events_of(name)?;
        events.retain(|event| event["reason"] == "RefusedByNodePolicy");
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0]["type"], "Warning");
        assert_eq!(events[0]["count"], 1);
        let message = events[0]["message"].as_str().unwrap_or_default();
        assert!(message.contains("hostNetwork = true"), "{message}");
    }
    let bulkhead = &cluster.ground.bulkhead;
    bulkhead.write_policy(&bulkhead.paths().usual_policy())?;
    cluster.until("the other pod to run", || {
        Ok(condition(&pod("allowed")?, "Ready") == "True")
    })
}
