//! Pods with volumes, and where their volumes are on the node.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use test_support::images::BUSYBOX;
use test_support::observe::container_status;
use test_support::wait_until;

use crate::Ground;
use crate::ground::TIMEOUT;

/// A container that runs until it is told to end, with these mounts.
#[must_use]
pub fn shell(name: &str, mounts: &Value) -> Value {
    json!({
        "name": name,
        "image": BUSYBOX,
        "command": ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1 & wait; done"],
        "volumeMounts": mounts,
    })
}

/// A pod with one volume, mounted at `/v` with these fields more.
#[must_use]
pub fn with_volume(source: &Value, mount: &Value) -> Value {
    let (mut volume, mut mount) = (source.clone(), mount.clone());
    volume["name"] = json!("v");
    mount["name"] = json!("v");
    mount["mountPath"] = json!("/v");
    json!({ "containers": [shell("shell", &json!([mount]))], "volumes": [volume] })
}

/// Waits until a container cannot be made for what its pod says, and returns the message.
///
/// # Errors
/// When it waits for nothing like that.
pub fn config_error(ground: &Ground, pod: &str, container: &str) -> Result<String> {
    let what = "to wait with CreateContainerConfigError";
    let message = ground.bulkhead.wait_for_pod(pod, what, TIMEOUT, |pod| {
        let status = container_status(pod, container).ok_or("no status")?;
        let waiting = &status["state"]["waiting"];
        let is_so = waiting["reason"] == "CreateContainerConfigError";
        let message = waiting["message"].as_str().unwrap_or_default();
        is_so
            .then(|| message.to_owned())
            .ok_or_else(|| status.to_string())
    });
    Ok(message?)
}

/// The pod's own directory on the node.
///
/// # Errors
/// When there is none.
pub fn pod_directory(ground: &Ground, pod: &Value) -> Result<PathBuf> {
    let uid = pod["metadata"]["uid"]
        .as_str()
        .context("a pod without uid")?;
    let directory = ground.bulkhead.paths().root.join("pods").join(uid);
    anyhow::ensure!(
        directory.is_dir(),
        "{} is no directory",
        directory.display()
    );
    Ok(directory)
}

/// Waits until a directory is gone.
///
/// # Errors
/// When it stays.
pub fn wait_until_removed(directory: &Path) -> Result<()> {
    let what = format!("{} to be removed", directory.display());
    Ok(wait_until(&what, TIMEOUT, || !directory.exists())?)
}

/// Mount points of the node below a directory.
///
/// # Errors
/// When the table cannot be read.
pub fn mounts_below(ground: &Ground, directory: &Path) -> Result<Vec<String>> {
    let table = ground
        .node()
        .run(|| fs::read_to_string("/proc/thread-self/mountinfo"))??;
    let directory = directory.to_string_lossy();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let below = points.filter(|point| point.starts_with(&*directory));
    Ok(below.map(str::to_owned).collect())
}
