//! What containers are told of Services, the API server of the runtime, and that of the Node.

use anyhow::{Context as _, Result};
use cluster::Cluster;
use cluster::workload::deployment;
use serde_json::json;
use test_support::images::BUSYBOX;
use topology::Process;

#[test]
fn containers_are_told_of_services_and_the_node_of_its_runtime() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.plane.apply(&json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "my-db", "namespace": "default"},
        "spec": {"selector": {"app": "db"}, "ports": [{"name": "sql", "port": 5432}]},
    }))?;
    let service = cluster.plane.get("service", "my-db")?;
    let ip = service["spec"]["clusterIP"]
        .as_str()
        .context("no address")?;
    let script = format!(
        "test -n \"$KUBERNETES_SERVICE_HOST\" && test \"$KUBERNETES_SERVICE_PORT_HTTPS\" = 443 \
         && test \"$MY_DB_SERVICE_HOST:$MY_DB_SERVICE_PORT_SQL\" = {ip}:5432 \
         && test \"$MY_DB_PORT\" = tcp://{ip}:5432"
    );
    let mut web = deployment("web", 1);
    web["spec"]["template"]["spec"]["initContainers"] =
        json!([{"name": "check", "image": BUSYBOX, "command": ["/bin/sh", "-c", script]}]);
    cluster.plane.apply(&web)?;
    cluster.until_ready("web", 1)?;
    let name = cluster.node_name();
    cluster.until("the Node to tell of its runtime", || {
        let status = &cluster.plane.get("node", name)?["status"];
        let images = status["images"].as_array().is_some_and(|it| !it.is_empty());
        let handlers = status["runtimeHandlers"].is_array() == status["features"].is_object();
        Ok(images && handlers)
    })?;
    the_runtime_knows_the_networks_of_pods(&mut cluster)
}

fn the_runtime_knows_the_networks_of_pods(cluster: &mut Cluster) -> Result<()> {
    let networks = json!({"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}});
    cluster.plane.patch_node(cluster.node_name(), &networks)?;
    until_told(cluster, 1)?;
    cluster.ground.containerd.kill()?;
    cluster.ground.containerd.start_again()?;
    until_told(cluster, 2)?;
    cluster.ground.bulkhead.kill(Process::PodWorkerPool)?;
    until_told(cluster, 3)
}

/// Waits until containerd was told at least so often; here it has no use for it, and says so.
fn until_told(cluster: &Cluster, times: usize) -> Result<()> {
    cluster.until("containerd to be told of the networks of pods", || {
        let log = cluster.ground.containerd.log();
        let told = log.matches("No cni config template is specified");
        Ok(told.count() >= times)
    })
}
