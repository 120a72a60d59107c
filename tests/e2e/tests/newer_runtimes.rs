//! What only newer runtimes have: a container gets it, or waits and says why.

use anyhow::{Result, ensure};
use cri::{Ability, RuntimeErrorKind, RuntimeReads as _};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use e2e::volumes::{config_error, shell, with_volume};
use serde_json::{Value, json};
use test_support::images::BUSYBOX;
use test_support::observe::container_status;
use test_support::{ContainerdOptions, PrivateContainerd, not_tried};
use topology::Process;

/// As far as the runtime can: before containerd 2.3 it cannot.
#[test]
fn a_container_with_a_stop_signal_waits_for_a_runtime_that_has_it() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let client = ground.containerd.client();
    let runtime = ground.containerd.block_on(client.version())?;
    let mut container = shell("shell", &json!([]));
    container["lifecycle"] = json!({ "stopSignal": "SIGUSR1" });
    let spec = json!({ "os": { "name": "linux" }, "containers": [container] });
    ground.apply("signalled", spec)?;
    if Ability::StopSignal.is_of(&runtime) {
        ground.ready("signalled")?;
        ground.remove("signalled")?;
        return Ok(());
    }
    not_tried("stop signals of containers: this runtime has none");
    let message = config_error(&ground, "signalled", "shell")?;
    let words = format!(
        "spec.containers[0].lifecycle.stopSignal: it is not supported by the runtime, {} {}",
        runtime.runtime_name, runtime.runtime_version
    );
    assert!(message.contains(&words), "{message}");
    Ok(())
}

/// As far as the runtime can: before containerd 2.1 it cannot.
#[test]
fn an_image_is_mounted_where_the_runtime_can_and_told_of_where_not() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let client = ground.containerd.client();
    let runtime = ground.containerd.block_on(client.version())?;
    let volume = json!({ "image": { "reference": BUSYBOX, "pullPolicy": "Never" } });
    ground.apply("files", with_volume(&volume, &json!({})))?;
    if Ability::ImageVolumes.is_of(&runtime) {
        ground.ready("files")?;
        ground.exec("files", "shell", &["ls", "/v/bin/sh"])?;
        let write = ["touch", "/v/file"];
        assert!(ground.exec("files", "shell", &write).is_err());
        return Ok(());
    }
    not_tried("volumes of images: this runtime has none");
    let message = config_error(&ground, "files", "shell")?;
    let words = format!(
        "spec.containers[0].volumeMounts[0]: it is not supported by the runtime, {} {}",
        runtime.runtime_name, runtime.runtime_version
    );
    assert!(message.contains(&words), "{message}");
    Ok(())
}

/// A pod with users of its own: one container that runs as root of the pod, one as 1000.
fn pod_with_users() -> Value {
    let mut root = shell("root", &json!([]));
    let mounts = json!([
        { "name": "data", "mountPath": "/data" },
        { "name": "labels", "mountPath": "/labels" }
    ]);
    root["volumeMounts"] = mounts.clone();
    root["securityContext"] = json!({ "procMount": "Unmasked" });
    let mut other = shell("other", &mounts);
    other["volumeMounts"] = mounts;
    other["securityContext"] = json!({ "runAsUser": 1000, "runAsGroup": 1000 });
    let labels = json!({ "defaultMode": 288, "items": [
        { "path": "name", "fieldRef": { "fieldPath": "metadata.name" } }
    ] });
    json!({
        "hostUsers": false,
        "securityContext": { "fsGroup": 2000 },
        "containers": [root, other],
        "volumes": [
            { "name": "data", "emptyDir": {} },
            { "name": "labels", "downwardAPI": labels }
        ]
    })
}

/// As far as the runtime can: before containerd 2.0 with runc 1.2 it cannot.
#[test]
fn a_pod_has_users_of_its_own_where_the_runtime_can_and_is_not_made_where_not() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let client = ground.containerd.client();
    let runtime = ground.containerd.block_on(client.version())?;
    let status = ground.containerd.block_on(client.status(false))?;
    let mut handlers = status.runtime_handlers.iter();
    let default = handlers.find(|handler| handler.name.is_empty());
    let features = default.and_then(|handler| handler.features);
    ground.apply("mapped", pod_with_users())?;
    if !features.unwrap_or_default().user_namespaces {
        not_tried("users of a pod's own: this runtime has none");
        let words = format!(
            "Failed to create pod sandbox: can't set `spec.hostUsers: false`: the runtime, {} {}",
            runtime.runtime_name, runtime.runtime_version
        );
        ground.event("mapped", "FailedCreatePodSandBox", &words)?;
        return Ok(());
    }
    ground.ready("mapped")?;
    let exec = |container: &str, command: &str| said(&ground, container, command);
    for map in ["uid_map", "gid_map"] {
        assert_eq!(
            exec("root", &format!("cat /proc/self/{map}"))?,
            "0 65536 65536"
        );
        assert_eq!(
            exec("other", &format!("cat /proc/self/{map}"))?,
            "0 65536 65536"
        );
    }
    // Owners in volumes are those of any other pod.
    assert_eq!(
        exec("root", "stat -c %u:%g /data /labels/..data/name /etc/hosts")?,
        "0:2000 0:2000 0:0"
    );
    exec("root", "touch /data/root")?;
    assert_eq!(
        exec(
            "other",
            "touch /data/other && stat -c %u:%g /data/root /data/other"
        )?,
        "0:2000 1000:2000"
    );
    // Others than root and the pod's group may not read that file.
    assert!(exec("other", "cat /labels/name")?.starts_with("mapped"));
    // A pool that was restarted finds the ids of the sandbox that runs.
    let before = ground.sandboxes("mapped")?;
    ground.bulkhead.kill(Process::PodWorkerPool)?;
    // The command ends with its container.
    drop(said(&ground, "root", "kill 1"));
    let what = "to have its container started again";
    ground
        .bulkhead
        .wait_for_pod("mapped", what, TIMEOUT, |pod| {
            let status = container_status(pod, "root").ok_or("no status")?;
            match status["restartCount"].as_u64() {
                Some(1) if status["state"]["running"].is_object() => Ok(()),
                _ => Err(status.to_string()),
            }
        })?;
    assert_eq!(ground.sandboxes("mapped")?, before);
    let map = said(&ground, "root", "cat /proc/self/uid_map")?;
    assert_eq!(map, "0 65536 65536");
    ground.remove("mapped")?;
    Ok(())
}

/// What a command of a shell prints in a container of the pod, with single spaces.
fn said(ground: &Ground, container: &str, command: &str) -> Result<String> {
    let told = ground.exec("mapped", container, &["sh", "-c", command])?;
    Ok(told.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// As far as the runtime can: before containerd 2.0 it does not tell, and what is configured
/// counts.
#[test]
fn a_runtime_that_tells_its_cgroup_driver_comes_before_the_configuration() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let told = containerd.block_on(containerd.client().runtime_config());
    drop(containerd);
    if let Err(error) = told {
        assert_eq!(error.kind, RuntimeErrorKind::Unimplemented);
        not_tried("the runtime's cgroup driver against the configured one: this one tells none");
        return Ok(());
    }
    // That of the test makes cgroups itself, and a node without systemd can have no other.
    let ground = Ground::start(json!({ "cgroupDriver": "systemd" }))?;
    let pod = json!({ "containers": [shell("shell", &json!([]))] });
    ground.apply("pod", pod)?;
    ground.ready("pod")?;
    let status = ground.printed(&["status"])?;
    let words = "cgroup driver cgroupfs, as the runtime says, and not systemd as configured";
    ensure!(status.contains(words), "{status}");
    Ok(())
}
