//! What only newer runtimes have: asked of them, and of no others.

use serde_json::{Value, json};

use super::RUN;
use crate::testing::{TestNode, eventually, pod_running};

fn pod() -> Value {
    let mut value = pod_running("a", "u1", RUN);
    value["spec"]["os"] = json!({"name": "linux"});
    value["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": "SIGUSR1"});
    value
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_has_stop_signals_is_asked_for_one() {
    let node = TestNode::new();
    node.runtime.set_version("containerd", "v2.3.0");
    node.create(&pod()).await;
    eventually("it runs", || node.running("u1").is_some()).await;
    assert_eq!(node.running("u1").unwrap().config.stop_signal, 29);
}

#[tokio::test(start_paused = true)]
async fn a_stop_signal_waits_for_a_runtime_that_has_it() {
    let node = TestNode::new();
    node.runtime.set_version("containerd", "1.7.24~ds1");
    node.create(&pod()).await;
    let waiting = || {
        let observation = node.observation("u1")?;
        let waiting = observation.waiting.first()?;
        Some((waiting.reason.clone(), waiting.message.clone()))
    };
    let is_told = || waiting().is_some_and(|(reason, _)| reason == "CreateContainerConfigError");
    eventually("the reason is told", is_told).await;
    let (_, message) = waiting().unwrap();
    let expected = "lifecycle.stopSignal: it is not supported by the runtime, containerd 1.7.24";
    assert!(message.contains(expected), "{message}");
    assert!(node.running("u1").is_none());
    // The runtime is upgraded.
    node.runtime.set_version("containerd", "v2.3.0");
    eventually("it runs", || node.running("u1").is_some()).await;
}
