//! Calls as the user of a process, and the pods that are attacked.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use serde_json::{Value, json};
use test_support::images::BUSYBOX;
use test_support::observe::container_id;
use test_support::wait_for;
use topology::{Identities, Process};

/// What is printed when `caller` calls `server`.
pub(crate) fn call(
    ground: &Ground,
    caller: Process,
    server: Process,
    words: &[&str],
) -> Result<String> {
    let identities = Identities::from_base(ground.bulkhead.uid_base())?;
    let uid = identities.uid(caller).to_string();
    let paths = ground.bulkhead.paths();
    let socket = paths
        .run
        .join(server.socket_file_name())
        .display()
        .to_string();
    let program = paths.bin.join("call-as");
    if !program.exists() {
        fs::copy(env!("CARGO_BIN_EXE_call-as"), &program)?;
    }
    let program = program.display().to_string();
    let user = ["--reuid", &uid, "--regid", &uid, "--clear-groups"];
    let arguments = [&user[..], &[&program, &socket], words].concat();
    ground.node().output("setpriv", &arguments)
}

/// As sync-loop: has the pool bring a pod to this version. It asks again where the real
/// sync-loop's own update of the pod came meanwhile.
pub(crate) fn update(ground: &Ground, kind: &str, pod: &Known, hash: &str) -> Result<String> {
    let words = ["update", kind, &pod.uid, "default", &pod.name, hash];
    wait_for("no other update of the pod", TIMEOUT, || {
        match call(ground, Process::SyncLoop, Process::PodWorkerPool, &words) {
            Ok(answer) if answer.contains("a newer update of this pod came") => Err(answer),
            Ok(answer) => Ok(Ok(answer)),
            Err(error) => Ok(Err(error)),
        }
    })?
}

/// The hash of each pod that sources have, by UID, as sync-loop is told.
pub(crate) fn hashes(ground: &Ground) -> Result<BTreeMap<String, String>> {
    let pods = call(ground, Process::SyncLoop, Process::ConfigSourcer, &["pods"])?;
    let lines = pods.lines().filter_map(|line| line.split_once(' '));
    Ok(lines
        .map(|(uid, hash)| (uid.to_owned(), hash.to_owned()))
        .collect())
}

/// A pod that runs.
pub(crate) struct Known {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) hash: String,
    pub(crate) container: String,
}

impl Known {
    pub(crate) fn of(ground: &Ground, name: &str) -> Result<Known> {
        let pod = ground.ready(name)?;
        let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
        let hashes = hashes(ground)?;
        let hash = hashes.get(uid).context("no hash")?;
        Ok(Known {
            uid: uid.to_owned(),
            name: ground.full_name(name),
            hash: hash.clone(),
            container: container_id(&pod, "app")
                .context("no container")?
                .to_owned(),
        })
    }
}

/// A pod whose container `app` can be probed or not.
pub(crate) fn sleeper(probe: Option<Value>) -> Value {
    let mut container = json!({
        "name": "app", "image": BUSYBOX, "command": ["sleep", "1000000"],
    });
    if let Some(probe) = probe {
        container["livenessProbe"] = probe;
    }
    json!({ "containers": [container] })
}

pub(crate) fn ids(ground: &Ground, name: &str) -> Result<Vec<String>> {
    let containers = ground.containers(name)?.into_iter();
    Ok(containers.map(|container| container.id).collect())
}
