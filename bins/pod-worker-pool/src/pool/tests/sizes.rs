//! Pods that are too large together.

use serde_json::Value;

use super::*;
use crate::pool::PoolError;

fn large(number: usize, bytes: usize) -> Value {
    let (name, uid) = (format!("n{number}"), format!("u{number}"));
    let mut pod = pod_running(&name, &uid, RUN);
    pod["metadata"]["annotations"] = json!({"a": "x".repeat(bytes)});
    pod
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_too_large_together_are_refused_and_those_that_run_can_be_stopped() {
    let node = TestNode::new();
    let mut created = 0;
    let refused = loop {
        let pod = large(created, 1_000_000);
        match node.update(UpdateKind::Create, &pod).await {
            Ok(_) => created += 1,
            Err(error) => break error,
        }
        assert!(created < 600, "600 pods of 1 MB came in");
    };
    assert_eq!(refused, PoolError::TooLarge);
    assert_eq!(created, 33, "32 MiB");
    // A small one has room, and a large one may become smaller, but not larger.
    node.create(&large(100, 10)).await;
    let grown = node.update(UpdateKind::Update, &large(0, 1_040_000)).await;
    grown.unwrap();
    let grown = node.update(UpdateKind::Update, &large(100, 900_000)).await;
    assert_eq!(grown, Err(PoolError::TooLarge));
    node.update(UpdateKind::Update, &large(1, 900_000))
        .await
        .unwrap();
    node.stop(&large(2, 1_000_000), 1).await;
    finished(&node, "u2").await;
}
