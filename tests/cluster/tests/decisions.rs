//! What the API server says of pods and of the Node decides what runs.

use anyhow::{Result, ensure};
use cluster::condition::condition;
use cluster::workload::{pod, web_template};
use cluster::{Cluster, Grace};
use serde_json::{Value, json};

const GATE: &str = "example.com/gate";

/// A pod that is bound to the node without the scheduler.
fn bound(name: &str, node: &str, spec: &Value) -> Value {
    let mut pod = pod(name, &web_template(name));
    pod["spec"]["nodeName"] = json!(node);
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

#[test]
fn a_pod_that_ended_or_was_deleted_before_the_node_came_is_not_run() -> Result<()> {
    let cluster = Cluster::start_after(|plane, node| {
        for name in ["ended", "deleted", "both"] {
            plane.apply(&bound(name, node, &json!({})))?;
        }
        for name in ["deleted", "both"] {
            plane.delete("pod", name, Grace::Own)?;
        }
        for (name, phase) in [("ended", "Succeeded"), ("both", "Failed")] {
            plane.patch_status(name, &json!({"phase": phase}))?;
        }
        Ok(())
    })?;
    cluster.until("deleted pods to be gone", || {
        let gone = ["deleted", "both"].map(|name| cluster.pods(name));
        Ok(gone
            .into_iter()
            .collect::<Result<Vec<_>>>()?
            .concat()
            .is_empty())
    })?;
    // The garbage collector may have taken it while there was no Node.
    for ended in cluster.pods("ended")? {
        ensure!(ended["status"]["phase"] == "Succeeded", "{ended}");
    }
    for name in ["ended", "deleted", "both"] {
        ensure!(cluster.containers(name)?.is_empty(), "{name} ran");
        let events = cluster.plane.events_of(name)?;
        let ran = events.iter().any(|event| event["reason"] == "Pulled");
        ensure!(!ran, "{name} ran: {events:?}");
    }
    Ok(())
}

#[test]
fn labels_of_the_node_and_conditions_of_others_decide() -> Result<()> {
    let cluster = Cluster::start()?;
    let (plane, node) = (&cluster.plane, cluster.node_name());
    plane.apply(&bound(
        "elsewhere",
        node,
        &json!({"nodeSelector": {"zone": "z1"}}),
    ))?;
    cluster.until("a pod of another zone to be refused", || {
        let pod = plane.get("pod", "elsewhere")?;
        Ok(pod["status"]["phase"] == "Failed" && pod["status"]["reason"] == "NodeAffinity")
    })?;
    plane.patch_node(node, &json!({"metadata": {"labels": {"zone": "z1"}}}))?;
    cluster.until("the label to be known here", || {
        plane.delete("pod", "here", Grace::None)?;
        plane.apply(&bound(
            "here",
            node,
            &json!({"nodeSelector": {"zone": "z1"}}),
        ))?;
        cluster.until("it to be judged", || {
            let pod = plane.get("pod", "here")?;
            Ok(pod["status"]["phase"] != "Pending")
        })?;
        Ok(plane.get("pod", "here")?["status"]["phase"] == "Running")
    })?;

    let gates = json!({"readinessGates": [{"conditionType": GATE}]});
    plane.apply(&bound("gated", node, &gates))?;
    let ready = |expected: &str, reason: &Value| {
        cluster.until(&format!("Ready to be {expected}"), || {
            let pod = plane.get("pod", "gated")?;
            let conditions = pod["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let of_ready = conditions.find(|it| it["type"] == "Ready");
            let has_reason = of_ready.is_some_and(|it| it["reason"] == *reason);
            Ok(condition(&pod, "Ready") == expected && has_reason)
        })
    };
    let not_ready = json!("ReadinessGatesNotReady");
    ready("False", &not_ready)?;
    for (status, expected, reason) in [
        ("True", "True", &Value::Null),
        ("False", "False", &not_ready),
    ] {
        let conditions = json!([{"type": GATE, "status": status}]);
        plane.patch_status("gated", &json!({"conditions": conditions}))?;
        ready(expected, reason)?;
    }
    Ok(())
}
