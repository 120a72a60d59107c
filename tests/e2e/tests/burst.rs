//! Many pods at once: each runs exactly once, and all are gone afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use cri::{ContainerRuntime as _, v1};
use e2e::Ground;
use serde_json::json;
use test_support::images::TESTAPP;
use test_support::observe::{condition, container_status};
use test_support::{journal, wait_for};

/// Half of what a node may have, and far more than start at a time.
const PODS: usize = 50;

/// On two busy processors.
const BURST_TIMEOUT: Duration = Duration::from_secs(180);

#[test]
fn fifty_pods_at_once_run_once_each_and_leave_nothing() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let shared = &ground.bulkhead.paths().shared;
    let names: Vec<String> = (0..PODS).map(|index| format!("pod-{index}")).collect();
    for name in &names {
        let spec = json!({
            "containers": [{
                "name": "app",
                "image": TESTAPP,
                "args": ["--name", name, "--journal", "/journal/all"],
                "volumeMounts": [
                    { "name": "journal", "mountPath": "/journal" },
                    { "name": "own", "mountPath": "/own" },
                ],
            }],
            "volumes": [
                { "name": "journal", "hostPath": { "path": shared, "type": "Directory" } },
                { "name": "own", "emptyDir": {} },
            ],
        });
        ground.apply(name, spec)?;
    }
    wait_for("all pods to be ready", BURST_TIMEOUT, || {
        let pods = ground
            .bulkhead
            .pods()
            .map_err(|error| format!("{error:#}"))?;
        let ready = pods
            .iter()
            .filter(|pod| condition(pod, "Ready") == Some(true));
        match ready.count() {
            PODS => Ok(()),
            count => Err(format!("{count} of {} are", pods.len())),
        }
    })?;
    let once = |event: &str| -> Result<()> {
        let entries = journal::read(&shared.join("all"))?;
        let counts: BTreeMap<&String, usize> = names
            .iter()
            .map(|name| (name, journal::count(&entries, name, event)))
            .filter(|(_, count)| *count != 1)
            .collect();
        anyhow::ensure!(counts.is_empty(), "not once {event}: {counts:?}");
        Ok(())
    };
    once("started")?;
    let pods = ground.bulkhead.pods()?;
    for pod in &pods {
        let status = container_status(pod, "app").map(|status| &status["restartCount"]);
        assert_eq!(status, Some(&json!(0)), "{pod}");
    }
    // Each has an address of its own.
    let addresses = pods.iter().map(|pod| pod["status"]["podIP"].to_string());
    assert_eq!(
        addresses.collect::<std::collections::BTreeSet<_>>().len(),
        PODS
    );

    for name in &names {
        ground.bulkhead.remove_manifest(&format!("{name}.json"))?;
    }
    wait_for("all pods to be gone", BURST_TIMEOUT, || {
        let pods = ground
            .bulkhead
            .pods()
            .map_err(|error| format!("{error:#}"))?;
        if pods.is_empty() {
            Ok(())
        } else {
            Err(format!("{} are left", pods.len()))
        }
    })?;
    once("started")?;
    once("SIGTERM")?;
    once("exit 0")?;
    ground.collect_garbage_soon()?;
    let directories = ground.bulkhead.paths().root.join("pods");
    wait_for(
        "containers, sandboxes and directories to be gone",
        BURST_TIMEOUT,
        || {
            let client = ground.containerd.client();
            let containers = client.list_containers(v1::ContainerFilter::default());
            let sandboxes = client.list_pod_sandboxes(v1::PodSandboxFilter::default());
            let containers = ground
                .containerd
                .block_on(containers)
                .map_err(|e| e.to_string())?;
            let sandboxes = ground
                .containerd
                .block_on(sandboxes)
                .map_err(|e| e.to_string())?;
            let directories = std::fs::read_dir(&directories).map_err(|e| e.to_string())?;
            match (containers.len(), sandboxes.len(), directories.count()) {
                (0, 0, 0) => Ok(()),
                left => Err(format!("{left:?} are left")),
            }
        },
    )?;
    Ok(())
}
