//! Mounts that containers make, and those below mounts that containers have read-only.

use std::fs;

use anyhow::{Context as _, Result};
use cri::RuntimeReads as _;
use e2e::Ground;
use e2e::ground::TIMEOUT;
use e2e::volumes::{
    config_error, mounts_below, pod_directory, shell, wait_until_removed, with_volume,
};
use serde_json::{Value, json};
use test_support::{not_tried, wait_until};
use topology::Process;

/// A node that lets pods have privileged containers, beside the usual.
fn ground() -> Result<Ground> {
    let ground = Ground::start(json!({}))?;
    let usual = ground.bulkhead.paths().usual_policy();
    let grant = "[[grants]]\npods = [\"*/*\"]\nprivileged = true\n";
    ground.bulkhead.write_policy(&format!("{usual}\n{grant}"))?;
    Ok(ground)
}

/// A privileged container with these mounts, each of which passes its mounts on.
fn mounter(mounts: &Value) -> Value {
    let mut container = shell("shell", mounts);
    container["securityContext"] = json!({ "privileged": true });
    for mount in container["volumeMounts"].as_array_mut().expect("a list") {
        mount["mountPropagation"] = json!("Bidirectional");
    }
    container
}

#[test]
fn what_a_container_mounts_is_seen_on_the_node_and_goes_with_the_pod() -> Result<()> {
    let mut ground = ground()?;
    let shared = ground.bulkhead.paths().shared.join("volume");
    for directory in ["disk", "new", "part/new"] {
        fs::create_dir_all(shared.join(directory))?;
    }
    ground
        .node()
        .mount_small_disk(&shared.join("disk"), 1 << 20)?;
    let before = mounts_below(&ground, &shared)?;
    let mounts = json!([
        { "name": "node", "mountPath": "/node" },
        { "name": "node", "mountPath": "/part", "subPath": "part" },
        { "name": "own", "mountPath": "/own" },
    ]);
    let spec = json!({
        "containers": [mounter(&mounts), shell("other", &json!([
            { "name": "node", "mountPath": "/node", "mountPropagation": "HostToContainer" },
        ]))],
        "volumes": [
            { "name": "node", "hostPath": { "path": shared, "type": "Directory" } },
            { "name": "own", "emptyDir": {} },
        ],
    });
    ground.apply("mounter", spec)?;
    let pod = ground.ready("mounter")?;
    let directory = pod_directory(&ground, &pod)?;
    // What is mounted on the node already is there once.
    assert_eq!(mounts_below(&ground, &shared)?, before);
    let run =
        |ground: &Ground, script: &str| ground.exec("mounter", "shell", &["sh", "-c", script]);
    run(&ground, "grep -q ' /node/disk ' /proc/mounts")?;
    for volume in ["node", "part", "own"] {
        run(
            &ground,
            &format!(
                "mkdir -p /{volume}/new && mount -t tmpfs none /{volume}/new && \
             echo from-pod > /{volume}/new/file"
            ),
        )?;
    }
    let own = directory.join("volumes/kubernetes.io~empty-dir/own");
    for path in [&shared, &shared.join("part"), &own] {
        let file = path.join("new/file");
        let content = ground.node().run(|| fs::read_to_string(&file))?;
        let content = content.with_context(|| file.display().to_string())?;
        assert_eq!(content, "from-pod\n");
    }
    let seen = ground.exec("mounter", "other", &["cat", "/node/new/file"])?;
    assert_eq!(seen, "from-pod\n");

    // What it unmounts goes on the node, too; after a restart of the pool as before.
    ground.bulkhead.kill(Process::PodWorkerPool)?;
    run(&ground, "umount /node/new; umount /part/new")?;
    wait_until("the mounts to go", TIMEOUT, || {
        mounts_below(&ground, &shared).is_ok_and(|now| now == before)
    })?;
    ground.remove("mounter")?;
    wait_until_removed(&directory)?;
    assert_eq!(mounts_below(&ground, &directory)?, Vec::<String>::new());
    assert_eq!(mounts_below(&ground, &shared)?, before);
    Ok(())
}

/// As far as the runtime can: before containerd 2.0 it cannot.
#[test]
fn mounts_below_are_read_only_where_the_runtime_can() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let client = ground.containerd.client();
    let status = ground.containerd.block_on(client.status(false))?;
    let can = status.runtime_handlers.iter().any(|handler| {
        let features = handler.features.as_ref();
        let can = features.is_some_and(|features| features.recursive_read_only_mounts);
        handler.name.is_empty() && can
    });
    let shared = ground.bulkhead.paths().shared.join("volume");
    fs::create_dir_all(shared.join("disk"))?;
    ground
        .node()
        .mount_small_disk(&shared.join("disk"), 1 << 20)?;
    let volume = json!({ "hostPath": { "path": shared, "type": "Directory" } });
    let with = |mode: &str| {
        let mount = json!({ "readOnly": true, "recursiveReadOnly": mode });
        with_volume(&volume, &mount)
    };
    ground.apply("maybe", with("IfPossible"))?;
    ground.apply("enabled", with("Enabled"))?;
    ground.ready("maybe")?;
    let write = ["touch", "/v/disk/file"];
    assert_eq!(ground.exec("maybe", "shell", &write).is_err(), can);
    if can {
        ground.ready("enabled")?;
        assert!(ground.exec("enabled", "shell", &write).is_err());
        return Ok(());
    }
    not_tried("mounts that are read-only with those below them: this runtime has none");
    let words = "failed to resolve recursive read-only mode: volume \"v\" requested recursive \
                 read-only mode, but it is not supported by the runtime";
    let message = config_error(&ground, "enabled", "shell")?;
    assert!(message.contains(words), "{message}");
    Ok(())
}
