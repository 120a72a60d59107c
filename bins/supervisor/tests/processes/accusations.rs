//! What a server says of its callers: what is shown, and who is restarted for it.

use bulkhead_api::v1;
use topology::Process;

use crate::node::{Node, all_ready, came_back, row};

/// A node whose pod-worker-pool says what it is given.
async fn node() -> Node {
    let mut node = Node::prepare();
    let path = node.path("message");
    node.behave(
        Process::PodWorkerPool,
        &format!("pass on {}", path.display()),
    );
    node.start().await;
    node.wait_for(all_ready).await;
    node
}

/// Has pod-worker-pool say what it has refused, and waits until it is shown so often.
async fn refuse(
    node: &Node,
    (uid, pid): (u32, u32),
    kind: &str,
    total: u64,
) -> v1::SupervisorStatus {
    let (new, path) = (node.path("message.new"), node.path("message"));
    std::fs::write(&new, format!("X_BULKHEAD_REFUSED={uid} {pid} {kind} 1")).unwrap();
    std::fs::rename(new, path).unwrap();
    let is_shown = |status: &v1::SupervisorStatus| {
        let mut all = status.refused.iter();
        all.any(|one| one.uid == uid && one.kind == kind && one.count == total)
    };
    node.wait_for(is_shown).await
}

#[tokio::test]
async fn who_was_cut_off_twice_is_restarted_and_a_server_that_goes_on_is_not_believed() {
    let node = node().await;
    let mut status = node.wait_for(all_ready).await;
    let untouched = row(&status, Process::Prober).pid;
    let uid = row(&status, Process::Pleg).uid;
    let mut total = 0;
    for restart in 0..3 {
        let pid = row(&status, Process::Pleg).pid;
        // Neither another process of that user counts, nor what cuts nobody off.
        for (whom, kind) in [
            ((uid, 1), "foreign-service"),
            ((uid, pid), "foreign-service"),
        ] {
            total += 1;
            status = refuse(&node, whom, kind, total).await;
        }
        refuse(&node, (uid, pid), "too-many-calls", restart + 1).await;
        assert_eq!(row(&status, Process::Pleg).pid, pid, "the first is shown");
        total += 1;
        refuse(&node, (uid, pid), "foreign-service", total).await;
        status = node
            .wait_for(|status| came_back(status, Process::Pleg, pid))
            .await;
        let ending = row(&status, Process::Pleg).last_ending.clone().unwrap();
        assert_eq!(
            ending.reason,
            "sent what it may not, again after it was cut off for it: killed by SIGKILL"
        );
    }
    let refused = &status.refused[0];
    assert_eq!(
        (refused.server.as_str(), refused.caller.as_str()),
        ("pod-worker-pool", "pleg")
    );
    let pid = row(&status, Process::Pleg).pid;
    for _ in 0..5 {
        total += 1;
        status = refuse(&node, (uid, pid), "foreign-service", total).await;
    }
    assert_eq!(row(&status, Process::Pleg).pid, pid, "not believed");
    let told = |text: &String| text.contains("pod-worker-pool has had pleg restarted 3 times");
    assert!(status.degradations.iter().any(told), "{status:?}");
    assert_eq!(row(&status, Process::Prober).pid, untouched);
}

#[tokio::test]
async fn who_may_not_call_a_server_cannot_be_accused_by_it() {
    let node = node().await;
    let status = node.wait_for(all_ready).await;
    let sourcer = row(&status, Process::ConfigSourcer).clone();
    let (new, path) = (node.path("message.new"), node.path("message"));
    for kind in ["foreign-service", "foreign-service", "malformed-message"] {
        let text = format!(
            "X_BULKHEAD_REFUSED={} {} {kind} 9",
            sourcer.uid, sourcer.pid
        );
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &path).unwrap();
        node.until(|| !path.exists()).await;
    }
    // What came before this was heard.
    let status = refuse(&node, (sourcer.uid, sourcer.pid), "connection", 1).await;
    assert_eq!(status.refused.len(), 1, "{status:?}");
    assert_eq!(row(&status, Process::ConfigSourcer).pid, sourcer.pid);
}
