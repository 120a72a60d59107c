//! What only newer runtimes have: a container gets it, or waits and says why.

use anyhow::Result;
use cri::{Ability, ContainerRuntime as _};
use e2e::Ground;
use e2e::volumes::{config_error, shell, with_volume};
use serde_json::json;
use test_support::images::BUSYBOX;

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
    let message = config_error(&ground, "files", "shell")?;
    let words = format!(
        "spec.containers[0].volumeMounts[0]: it is not supported by the runtime, {} {}",
        runtime.runtime_name, runtime.runtime_version
    );
    assert!(message.contains(&words), "{message}");
    Ok(())
}
