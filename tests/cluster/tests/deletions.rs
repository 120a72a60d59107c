//! What is taken away: pods, and the Node.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cluster::condition::condition;
use cluster::workload::{deployment, pod, template};
use cluster::{Cluster, Grace};
use serde_json::json;
use test_support::images::BUSYBOX;

/// Of a pod that does not end by itself.
const GRACE: Duration = Duration::from_secs(4);

#[test]
fn a_deleted_pod_has_its_grace_and_goes() -> Result<()> {
    let cluster = Cluster::start()?;
    let plane = &cluster.plane;
    let mut stubborn = template("stubborn", &[]);
    stubborn["spec"]["terminationGracePeriodSeconds"] = json!(GRACE.as_secs());
    let container = &mut stubborn["spec"]["containers"][0];
    container["image"] = json!(BUSYBOX);
    container["args"] = json!(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]);
    // The pod's own grace, a shorter one, none.
    for (name, grace) in [
        ("own", Grace::Own),
        ("shorter", Grace::Seconds(1)),
        ("none", Grace::None),
    ] {
        plane.apply(&pod(name, &stubborn))?;
        cluster.until_ready("stubborn", 1)?;
        let begin = Instant::now();
        plane.delete("pod", name, grace)?;
        cluster.until_ready("stubborn", 0)?;
        let took = begin.elapsed();
        match name {
            "own" => ensure!(took >= GRACE, "{name} went after {took:?}"),
            _ => ensure!(took < GRACE, "{name} went after {took:?}"),
        }
        cluster.until("its containers to have stopped", || {
            let mut containers = cluster.containers(name)?.into_iter();
            Ok(containers.all(|(_, is_running)| !is_running))
        })?;
    }
    Ok(())
}

#[test]
fn a_pod_that_asks_for_what_is_not_supported_waits_and_can_be_deleted() -> Result<()> {
    let cluster = Cluster::start()?;
    let mut lacking = template("lacking", &[]);
    let volume = json!({"name": "v", "nfs": {"server": "192.0.2.1", "path": "/"}});
    lacking["spec"]["volumes"] = json!([volume]);
    cluster.plane.apply(&pod("lacking", &lacking))?;
    cluster.until("the pod to wait", || {
        let pod = cluster.plane.get("pod", "lacking")?;
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        let events = cluster.plane.events_of("lacking")?;
        let mut said = events.iter().filter_map(|event| event["message"].as_str());
        Ok(waiting["reason"] == "ResourcesNotOffered" && said.any(|it| it.contains("nfs")))
    })?;
    cluster.plane.delete("pod", "lacking", Grace::Own)?;
    cluster.until_ready("lacking", 0).map(drop)
}

#[test]
fn a_node_is_drained_deleted_and_registered_again() -> Result<()> {
    let cluster = Cluster::start()?;
    let (plane, node) = (&cluster.plane, cluster.node_name());
    plane.apply(&deployment("web", 3))?;
    cluster.until_ready("web", 3)?;
    plane.drain(node)?;
    cluster.until("evicted pods to be gone", || {
        let pods = cluster.pods("web")?;
        Ok(pods.iter().all(|pod| pod["spec"]["nodeName"].is_null()))
    })?;
    plane.delete("node", node, Grace::Own)?;
    cluster.until("the Node to be ready again", || {
        let node = plane.get("node", node)?;
        Ok(condition(&node, "Ready") == "True")
    })?;
    cluster.until_ready("web", 3).map(drop)
}
