//! Rounds that take long.

use std::collections::HashSet;
use std::time::Duration;

use simulated_runtime::Faults;

use super::Order;
use crate::testing::{TestNode, eventually, pod_running};

fn order_everything(node: &TestNode) {
    node.life().garbage.order(Order::Everything {
        desired: HashSet::new(),
        sources_ready: true,
    });
}

fn has_logs(node: &TestNode, uid: &str) -> bool {
    let state = node.host.state.lock().unwrap();
    state.logs.keys().any(|pod| pod.uid() == uid)
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_during_a_round_keeps_its_logs() {
    let mut node = TestNode::new();
    let back = pod_running("a", "u1", &["run"]);
    let gone = pod_running("b", "u2", &["run"]);
    for (pod, uid) in [(&back, "u1"), (&gone, "u2")] {
        node.create(pod).await;
        eventually("it runs", || node.running(uid).is_some()).await;
        node.stop(pod, 1).await;
        eventually("it is stopped", || node.running(uid).is_none()).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    node.kill();
    node.start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.runtime.set_faults(Faults {
        sandbox_stop_delay: Duration::from_secs(100),
        ..Faults::NONE
    });
    let stops = || node.runtime.calls().get("StopPodSandbox").copied();
    let before = stops();
    order_everything(&node);
    eventually("the round waits for the runtime", || stops() > before).await;
    node.runtime.set_faults(Faults::NONE);
    assert!(has_logs(&node, "u1") && has_logs(&node, "u2"));
    node.create(&back).await;
    eventually("it runs again", || node.running("u1").is_some()).await;
    assert!(has_logs(&node, "u2"), "the round waits still");
    eventually("the round goes on", || !has_logs(&node, "u2")).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(has_logs(&node, "u1"), "a running pod without logs");
}
