//! What controllers make of pods.

use anyhow::{Result, ensure};
use cluster::condition::condition;
use cluster::node::TIMEOUT;
use cluster::workload::{controller, deployment, template, web_template};
use cluster::{Cluster, Grace};
use serde_json::{Value, json};
use test_support::images::BUSYBOX;
use test_support::wait_for;

#[test]
fn pods_of_controllers_run_are_ready_and_go() -> Result<()> {
    let cluster = Cluster::start()?;
    let plane = &cluster.plane;
    for replicas in [0, 1, 20] {
        plane.apply(&deployment("web", replicas))?;
        cluster.until_ready("web", replicas.try_into()?)?;
    }
    // Of another version, one after the other.
    let mut newer = deployment("web", 20);
    newer["spec"]["template"]["metadata"]["annotations"] = json!({"version": "2"});
    plane.apply(&newer)?;
    wait_for(
        "20 pods of the other version to be ready",
        2 * TIMEOUT,
        || {
            let pods = cluster.pods("web").map_err(|error| format!("{error:#}"))?;
            let is_new = |pod: &&Value| pod["metadata"]["annotations"]["version"] == "2";
            let new = pods.iter().filter(is_new);
            let ready = new.filter(|pod| condition(pod, "Ready") == "True").count();
            match (pods.len(), ready) {
                (20, 20) => Ok(()),
                (all, ready) => Err(format!("{ready} of {all}")),
            }
        },
    )?;
    plane.apply(&deployment("web", 0))?;
    cluster.until_ready("web", 0)?;

    let daemons = controller("DaemonSet", "daemon", &web_template("daemon"), None);
    plane.apply(&daemons)?;
    cluster.until_ready("daemon", 1)?;
    plane.delete("daemonset", "daemon", Grace::Own)?;
    cluster.until_ready("daemon", 0).map(drop)
}

#[test]
fn a_job_runs_to_completion() -> Result<()> {
    let cluster = Cluster::start()?;
    let mut template = template("job", &[]);
    template["spec"]["restartPolicy"] = json!("Never");
    let container = &mut template["spec"]["containers"][0];
    container["image"] = json!(BUSYBOX);
    container["args"] = json!(["sh", "-c", "echo done > /dev/termination-log"]);
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {"completions": 3, "parallelism": 2, "template": template},
    });
    cluster.plane.apply(&job)?;
    cluster.until("the Job to complete", || {
        let job = cluster.plane.get("job", "job")?;
        Ok(condition(&job, "Complete") == "True")
    })?;
    let pods = cluster.pods("job")?;
    ensure!(pods.len() == 3, "each ran once: {pods:?}");
    for pod in &pods {
        let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(terminated["message"], "done\n", "{pod}");
        assert_eq!(terminated["exitCode"], 0);
        assert_eq!(pod["status"]["phase"], "Succeeded");
    }
    cluster.plane.delete("job", "job", Grace::Own)?;
    cluster.until_ready("job", 0).map(drop)
}
