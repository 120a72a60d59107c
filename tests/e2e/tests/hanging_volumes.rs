//! A volume on a file system that hangs holds up nothing else of its pod.

use std::fs;

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::{TIMEOUT, address, spec};
use e2e::hanging::Hanging;
use e2e::workload::container;
use serde_json::json;
use test_support::observe::container_status;
use test_support::{http, wait_for};

#[test]
fn a_container_that_is_due_on_a_hanging_volume_keeps_no_other_from_its_stop() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let directory = ground.bulkhead.paths().shared.join("hanging");
    fs::create_dir(&directory)?;
    let app = |name: &str, port: &str| container(name, name, &["--http", port]);
    let mut due = app("due", "8080");
    let mounts = due["volumeMounts"].as_array_mut().context("no mounts")?;
    mounts.push(json!({ "name": "v", "mountPath": "/v" }));
    let mut spec = spec(&ground, &[due, app("ended", "8081"), app("runs", "8082")]);
    let volumes = spec["volumes"].as_array_mut().context("no volumes")?;
    volumes.push(json!({ "name": "v", "hostPath": { "path": directory, "type": "Directory" } }));
    ground.apply("pod", spec)?;
    let pod = ground.ready("pod")?;

    let hanging = Hanging::over(ground.containerd.node(), &directory)?;
    let exit = |port| http::request(ground.node(), "POST", address(&pod, port)?, "/exit?code=1");
    exit(8080)?;
    ground.event("pod", "FailedMount", "volumes are still being made: [")?;
    // What this one has left in its termination message is read while the other hangs.
    exit(8081)?;
    let what = "the end of a container to be told";
    ground.bulkhead.wait_for_pod("pod", what, TIMEOUT, |pod| {
        let status = container_status(pod, "ended").ok_or("no status")?;
        match status["state"]["running"].is_null() {
            true => Ok(()),
            false => Err(status.to_string()),
        }
    })?;
    ground.take_away("pod")?;
    ground.note("runs", "SIGTERM", 1)?;
    wait_for("all containers to end", TIMEOUT, || {
        match ground.running("pod").map_err(|error| error.to_string())? {
            0 => Ok(()),
            some => Err(format!("{some} run")),
        }
    })?;
    assert_eq!(ground.noted("due", "started")?, 1);

    // It is not gone before its volumes are.
    assert!(ground.pod("pod").is_ok());
    drop(hanging);
    ground.gone("pod")
}
