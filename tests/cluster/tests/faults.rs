//! Processes of the node are killed, or the API server is away, and no container notices.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cluster::condition::condition;
use cluster::workload::{deployment, pod, template};
use cluster::{Cluster, ControlPlane};
use serde_json::{Value, json};
use test_support::images::BUSYBOX;
use test_support::wait_for;
use topology::Process;

/// How long a real API server is away. The double is away until all has happened that is to
/// happen meanwhile.
const OUTAGE: Duration = Duration::from_secs(300);

/// Waits for a file, then fails.
const ENDING: &str = "until [ -e /tmp/go ]; do sleep 0.1; done; exit 3";

/// The status of each pod: its containers' starts, and when each condition changed last.
fn statuses(cluster: &Cluster) -> Result<Vec<Value>> {
    let pods = cluster.until_ready("web", 3)?;
    Ok(pods.iter().map(|pod| pod["status"].clone()).collect())
}

#[test]
fn no_pod_notices_that_processes_are_killed() -> Result<()> {
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
    cluster.plane.apply(&deployment("web", 0))?;
    cluster.until_ready("web", 0).map(drop)
}

/// Creates a pod with one container of these words, and perhaps one before it.
fn create(cluster: &Cluster, name: &str, policy: &str, init: Option<&str>) -> Result<()> {
    let shell = |name: &str, words: &str| json!({"name": name, "image": BUSYBOX, "args": ["sh", "-c", words]});
    let mut template = template(name, &[]);
    let spec = &mut template["spec"];
    spec["restartPolicy"] = json!(policy);
    spec["containers"] = json!([shell("app", ENDING)]);
    if let Some(words) = init {
        spec["initContainers"] = json!([shell("init", words)]);
    }
    cluster.plane.apply(&pod(name, &template))?;
    cluster.until(&format!("a container of {name}"), || {
        Ok(running(cluster, name)?.is_some())
    })
}

/// The container of a pod that runs.
fn running(cluster: &Cluster, pod: &str) -> Result<Option<String>> {
    let mut containers = cluster.containers(pod)?.into_iter();
    Ok(containers.find_map(|(id, is_running)| is_running.then_some(id)))
}

/// Creates the file that the container of a pod waits for, and waits until it has ended; with
/// `another` until another one runs.
fn end(cluster: &Cluster, pod: &str, another: bool) -> Result<()> {
    let first = running(cluster, pod)?.context("none runs")?;
    let containerd = &cluster.ground.containerd;
    containerd.exec(&first, &["touch", "/tmp/go"])?;
    cluster.until(&format!("the container of {pod} to end"), || {
        let now = running(cluster, pod)?;
        Ok(now.is_some() == another && now.as_ref() != Some(&first))
    })
}

#[test]
fn what_happens_while_the_api_server_is_away_arrives_and_no_pod_notices() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.plane.apply(&deployment("web", 3))?;
    let before = statuses(&cluster)?;
    create(&cluster, "ends", "Never", None)?;
    create(&cluster, "crashes", "Always", None)?;
    let starting = "until [ -e /tmp/go ]; do sleep 0.1; done";
    create(&cluster, "starts", "Always", Some(starting))?;

    cluster.plane.kill_api_server()?;
    let begin = Instant::now();
    end(&cluster, "ends", false)?;
    end(&cluster, "crashes", true)?;
    end(&cluster, "starts", true)?;
    let spec = cluster.ground.app("static", &["--http", "8080"]);
    cluster.ground.apply("static", spec)?;
    cluster.ground.ready("static")?;
    cluster.ground.bulkhead.kill(Process::StatusSyncer)?;
    cluster.ground.bulkhead.wait_until_ready()?;
    if ControlPlane::assets().is_some() {
        wait_for("the end of the outage", OUTAGE * 2, || {
            let left = OUTAGE.saturating_sub(begin.elapsed());
            left.is_zero().then_some(()).ok_or(format!("{left:?}"))
        })?;
    }
    cluster.plane.start_api_server()?;

    cluster.until("the end of a pod to be reported", || {
        let pod = cluster.plane.get("pod", "ends")?;
        let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        Ok(pod["status"]["phase"] == "Failed" && terminated["exitCode"] == 3)
    })?;
    cluster.until("a crash to be reported", || {
        let pod = cluster.plane.get("pod", "crashes")?;
        let container = &pod["status"]["containerStatuses"][0];
        Ok(container["restartCount"] == 1
            && container["lastState"]["terminated"]["exitCode"] == 3
            && container["ready"] == true)
    })?;
    for name in ["starts".to_owned(), cluster.ground.full_name("static")] {
        cluster.until(&format!("{name} to be reported as ready"), || {
            let pod = cluster.plane.get("pod", &name)?;
            Ok(condition(&pod, "Ready") == "True")
        })?;
    }
    ensure!(statuses(&cluster)? == before, "the API server was away");
    Ok(())
}
