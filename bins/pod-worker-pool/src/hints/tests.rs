//! Which events make workers look, and how often.

use std::time::Duration;

use crate::testing::{TestNode, eventually, pod_running};

/// Each sync asks for the pod's sandboxes once.
fn syncs(node: &TestNode) -> u64 {
    let calls = node.runtime.calls();
    calls.get("ListPodSandbox").copied().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_container_that_runs_out_of_memory_all_the_time_is_looked_at_now_and_then() {
    let node = TestNode::new();
    node.create(&pod_running("a", "u1", &["run"])).await;
    eventually("it runs", || node.running("u1").is_some()).await;
    let id = node.running("u1").unwrap().id;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = syncs(&node);
    for _ in 0..1000 {
        node.runtime.run_out_of_memory(&id);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let made = syncs(&node) - before;
    assert!((1..=2).contains(&made), "{made}");
    // Its end is no such event.
    let begun = node.seconds();
    node.runtime.crash_container(&id, 137);
    eventually("another one runs", || {
        node.running("u1")
            .is_some_and(|container| container.id != id)
    })
    .await;
    let took = node.seconds() - begun;
    assert!(took < 0.5, "{took}");
}
