//! What only newer runtimes have: a container gets it, or waits and says why.

use anyhow::Result;
use cri::{Ability, ContainerRuntime as _};
use e2e::Ground;
use e2e::volumes::{config_error, shell};
use serde_json::json;

/// As far as the runtime can: before containerd 2.3 it cannot.
#[test]
fn a_stop_signal_is_used_where_the_runtime_has_it_and_told_of_where_not() -> Result<()> {
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
