//! Many pods at once: each runs exactly once, and all are gone afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use cri::{RuntimeError, RuntimeReads as _, v1};
use e2e::Ground;
use serde_json::{Value, json};
use test_support::images::TESTAPP;
use test_support::observe::{condition, container_status};
use test_support::{journal, wait_for};

/// Far more than start at a time.
const PODS: usize = 30;

/// On two busy processors.
const BURST_TIMEOUT: Duration = Duration::from_secs(180);

#[test]
fn thirty_pods_at_once_run_once_each_and_leave_nothing() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let names: Vec<String> = (0..PODS).map(|index| format!("pod-{index}")).collect();
    for name in &names {
        ground.apply(name, spec(&ground, name))?;
    }
    all_are_ready(&ground)?;
    once(&ground, &names, "started")?;
    let pods = ground.bulkhead.pods()?;
    for pod in &pods {
        let status = container_status(pod, "app").map(|status| &status["restartCount"]);
        assert_eq!(status, Some(&json!(0)), "{pod}");
    }
    let addresses = pods.iter().map(|pod| pod["status"]["podIP"].to_string());
    let different: BTreeSet<String> = addresses.collect();
    assert_eq!(different.len(), PODS, "each has an address of its own");

    for name in &names {
        ground.bulkhead.remove_manifest(&format!("{name}.json"))?;
    }
    all_are_gone(&ground)?;
    for event in ["started", "SIGTERM", "exit 0"] {
        once(&ground, &names, event)?;
    }
    ground.collect_garbage_soon()?;
    nothing_is_left(&ground)
}

fn spec(ground: &Ground, name: &str) -> Value {
    let shared = &ground.bulkhead.paths().shared;
    json!({
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
    })
}

fn all_are_ready(ground: &Ground) -> Result<()> {
    wait_for("all pods to be ready", BURST_TIMEOUT, || {
        let pods = ground.bulkhead.pods();
        let pods = pods.map_err(|error| format!("{error:#}"))?;
        let ready = pods
            .iter()
            .filter(|pod| condition(pod, "Ready") == Some(true));
        match ready.count() {
            PODS => Ok(()),
            count => Err(format!("{count} of {} are", pods.len())),
        }
    })?;
    Ok(())
}

fn all_are_gone(ground: &Ground) -> Result<()> {
    wait_for("all pods to be gone", BURST_TIMEOUT, || {
        let pods = ground.bulkhead.pods();
        match pods.map_err(|error| format!("{error:#}"))?.len() {
            0 => Ok(()),
            left => Err(format!("{left} are left")),
        }
    })?;
    Ok(())
}

/// That each of them noted an event exactly once.
fn once(ground: &Ground, names: &[String], event: &str) -> Result<()> {
    let entries = journal::read(&ground.bulkhead.paths().shared.join("all"))?;
    let counts: BTreeMap<&String, usize> = names
        .iter()
        .map(|name| (name, journal::count(&entries, name, event)))
        .filter(|(_, count)| *count != 1)
        .collect();
    ensure!(counts.is_empty(), "not once {event}: {counts:?}");
    Ok(())
}

fn nothing_is_left(ground: &Ground) -> Result<()> {
    let directories = ground.bulkhead.paths().root.join("pods");
    let client = ground.containerd.client();
    let what = "containers, sandboxes and directories to be gone";
    wait_for(what, BURST_TIMEOUT, || {
        let listed = ground.containerd.block_on(async {
            let containers = client.list_containers(v1::ContainerFilter::default());
            let sandboxes = client.list_pod_sandboxes(v1::PodSandboxFilter::default());
            Ok::<_, RuntimeError>((containers.await?.len(), sandboxes.await?.len()))
        });
        let (containers, sandboxes) = listed.map_err(|error| error.to_string())?;
        let directories = fs::read_dir(&directories).map_err(|error| error.to_string())?;
        match (containers, sandboxes, directories.count()) {
            (0, 0, 0) => Ok(()),
            left => Err(format!("{left:?} are left")),
        }
    })?;
    Ok(())
}
