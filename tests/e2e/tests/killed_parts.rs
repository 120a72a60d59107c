//! A killed part is nobody's concern but the supervisor's: containers run on
//! untouched, and what happens meanwhile is made up for.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use test_support::journal;
use test_support::observe::{condition, container_status};
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, PrivateContainerd, images, wait_for,
};
use topology::Process;

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn no_part_killed_alone_touches_a_running_container() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let mut bulkhead = BulkheadInstance::start(&containerd, &BulkheadOptions::default())?;
    bulkhead.write_manifest("web.json", &web(&bulkhead, "web"))?;
    let before = bulkhead.wait_until_pod_ready("web", TIMEOUT)?;
    for process in Process::ALL {
        let old = bulkhead.kill(process)?;
        if process == Process::Supervisor {
            bulkhead.start_again()?;
        }
        wait_for(
            &format!("{process} to be started again"),
            TIMEOUT,
            || match bulkhead
                .pids()
                .map_err(|error| error.to_string())?
                .get(&process)
            {
                Some(new) if *new != old => Ok(()),
                other => Err(format!("pid {other:?} after {old}")),
            },
        )?;
        bulkhead.wait_until_ready()?;
        assert_untouched(&bulkhead, "web", &before).with_context(|| format!("{process}"))?;
    }
    Ok(())
}

#[test]
fn all_parts_killed_at_once_find_their_pods_again() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let mut bulkhead = BulkheadInstance::start(&containerd, &BulkheadOptions::default())?;
    for name in ["stays", "goes"] {
        bulkhead.write_manifest(&format!("{name}.json"), &web(&bulkhead, name))?;
    }
    let before = bulkhead.wait_until_pod_ready("stays", TIMEOUT)?;
    bulkhead.wait_until_pod_ready("goes", TIMEOUT)?;

    bulkhead.kill_all()?;
    bulkhead.remove_manifest("goes.json")?;
    bulkhead.write_manifest("comes.json", &web(&bulkhead, "comes"))?;
    bulkhead.start_again()?;

    bulkhead.wait_until_pod_ready("comes", TIMEOUT)?;
    bulkhead.wait_until_pod_gone("goes", TIMEOUT)?;
    assert_untouched(&bulkhead, "stays", &before)?;
    let journal = bulkhead.paths().shared.join("journal");
    let entries = wait_for("the removed pod to end with grace", TIMEOUT, || {
        let entries = journal::read(&journal).map_err(|error| error.to_string())?;
        let ended = ["SIGTERM", "exit 0"].map(|event| journal::count(&entries, "goes", event));
        if ended == [1, 1] {
            Ok(entries)
        } else {
            Err(format!("{entries:?}"))
        }
    })?;
    assert_eq!(journal::count(&entries, "comes", "started"), 1);
    Ok(())
}

/// A pod that notes its starts, with a readiness probe.
fn web(bulkhead: &BulkheadInstance, name: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 10,
            "containers": [{
                "name": "app",
                "image": images::TESTAPP,
                "args": ["--http", "8080", "--name", name, "--journal", "/shared/journal"],
                "readinessProbe": {
                    "httpGet": { "path": "/healthz", "port": 8080 },
                    "periodSeconds": 1,
                },
                "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }],
            }],
            "volumes": [{ "name": "shared", "hostPath": { "path": bulkhead.paths().shared } }],
        },
    })
    .to_string()
}

/// Checks that the pod is what it was: same container, ready all the time,
/// started once.
fn assert_untouched(bulkhead: &BulkheadInstance, name: &str, before: &Value) -> Result<()> {
    let after = bulkhead.wait_for_pod(name, "to be known again", TIMEOUT, |pod| {
        container_status(pod, "app")
            .map(|_| pod.clone())
            .ok_or("no container".to_owned())
    })?;
    ensure!(
        container_status(&after, "app") == container_status(before, "app"),
        "{after}"
    );
    let ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions
            .into_iter()
            .find(|condition| condition["type"] == "Ready")
    };
    ensure!(condition(&after, "Ready") == Some(true), "{after}");
    ensure!(
        ready(&after).map(|it| it["lastTransitionTime"].clone())
            == ready(before).map(|it| it["lastTransitionTime"].clone()),
        "readiness flipped: {after}"
    );
    let entries = journal::read(&bulkhead.paths().shared.join("journal"))?;
    ensure!(
        journal::count(&entries, name, "started") == 1,
        "{entries:?}"
    );
    ensure!(
        journal::count(&entries, name, "SIGTERM") == 0,
        "{entries:?}"
    );
    Ok(())
}
