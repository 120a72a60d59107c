//! Processes of the node and the API server are killed, and no container notices.

use anyhow::{Context as _, Result, ensure};
use cluster::Cluster;
use cluster::workload::{deployment, pod, template};
use serde_json::{Value, json};
use test_support::images::BUSYBOX;
use test_support::observe::container_id;
use topology::Process;

/// The status of each pod: its containers' starts, and when each condition changed last.
fn statuses(cluster: &Cluster) -> Result<Vec<Value>> {
    let pods = cluster.until_ready("web", 3)?;
    Ok(pods.iter().map(|pod| pod["status"].clone()).collect())
}

#[test]
fn no_pod_notices_that_processes_or_the_api_server_are_killed() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.plane.apply(&deployment("web", 3))?;
    let before = statuses(&cluster)?;
    let all = Process::ON_EVERY_NODE.into_iter();
    let all = all.filter(|process| *process != Process::Supervisor);
    for process in all.chain([Process::ApiGateway]) {
        cluster.ground.bulkhead.kill(process)?;
        cluster.ground.bulkhead.wait_until_ready()?;
        // The process has taken up its work again.
        cluster.plane.apply(&deployment("other", 1))?;
        cluster.until_ready("other", 1)?;
        cluster.plane.apply(&deployment("other", 0))?;
        cluster.until_ready("other", 0)?;
        ensure!(statuses(&cluster)? == before, "{process} was killed");
    }
    let ending = "until [ -e /tmp/end ]; do sleep 0.1; done; exit 3";
    let mut ends = template("ends", &["sh", "-c", ending]);
    ends["spec"]["containers"][0]["image"] = json!(BUSYBOX);
    ends["spec"]["restartPolicy"] = json!("Never");
    cluster.plane.apply(&pod("ends", &ends))?;
    let running = cluster.until_ready("ends", 1)?;
    let id = container_id(&running[0], "app").context("it has no container")?;
    cluster.plane.kill_api_server()?;
    // What happens while the API server is away arrives.
    cluster.ground.containerd.exec(id, &["touch", "/tmp/end"])?;
    cluster.ground.bulkhead.kill(Process::StatusSyncer)?;
    cluster.plane.start_api_server()?;
    cluster.until("the end of a pod to be reported", || {
        let pod = cluster.plane.get("pod", "ends")?;
        let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        Ok(pod["status"]["phase"] == "Failed" && terminated["exitCode"] == 3)
    })?;
    ensure!(statuses(&cluster)? == before, "the API server was killed");
    cluster.plane.apply(&deployment("web", 0))?;
    cluster.until_ready("web", 0).map(drop)
}
