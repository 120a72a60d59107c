//! A pod that begins anew under its UID starts whatever its restart policy is, though its
//! former instances have not been collected: the source removed it and has it again, or the
//! node that was shut down has booted.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use cri::RuntimeChanges;
use pod::PodSource;
use pod::metadata::POD_UID_LABEL;
use pod::node_shutdown::{REJECTED, TERMINATED};
use pod_lifecycle::{EvictionRequest, KillRequest, UpdateKind};
use serde_json::{Value, json};
use simulated_runtime::Happening;
use tokio::time::Instant;

use super::{RUN, calls, finished, running, starts};
use crate::garbage::Order;
use crate::pool::Startable;
use crate::testing::{TestNode, eventually, pod_running};

const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// It ends with 0 a second after its SIGTERM, which no policy but Always restarts.
fn pod(policy: &str) -> Value {
    pod_with(policy, &["well-term", "1000"])
}

fn pod_with(policy: &str, command: &[&str]) -> Value {
    let mut pod = pod_running("a", "u1", command);
    pod["spec"]["restartPolicy"] = json!(policy);
    pod
}

async fn evict(node: &TestNode, pod: &Value, reason: &str) {
    let eviction = EvictionRequest {
        reason: reason.to_owned(),
        message: String::new(),
        is_disruption: true,
    };
    let kill = KillRequest::evict(Duration::from_secs(5), eviction);
    let sent = node.send(UpdateKind::Kill, pod, Some(kill), Vec::new());
    sent.await.unwrap();
}

/// The container has its SIGTERM, after which it runs for a second.
async fn is_asked_to_end(node: &TestNode) {
    eventually("it has its SIGTERM", || {
        let history = node.runtime.history();
        history
            .iter()
            .any(|it| it.happening == Happening::Terminated)
    })
    .await;
}

/// The pod's source has delivered, and has the pod no more.
async fn forget(node: &TestNode) {
    let pool = &node.current_run().pool;
    let delivered = PodSource::ALL.into();
    let known = pool.sync_known(HashSet::new(), delivered, None).await;
    assert!(known.unwrap().is_empty());
    assert!(!node.runtime.sandboxes().is_empty(), "not collected yet");
}

/// That the pod is started once more, without a back-off, and runs on when the pool is
/// restarted.
async fn begins_anew(node: &mut TestNode, pod: &Value, what: &str) {
    let before = starts(node, "u1").len();
    let given = Instant::now();
    node.create(pod).await;
    eventually(what, || starts(node, "u1").len() > before).await;
    let waited = given.elapsed();
    assert!(waited < Duration::from_secs(5), "{what}: {waited:?}");
    let id = running(node, "u1").await;
    node.kill();
    node.start();
    node.create(pod).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(running(node, "u1").await, id, "{what}");
    assert_eq!(starts(node, "u1").len(), before + 1, "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_taken_back_and_given_again_is_started() {
    for policy in POLICIES {
        // Whether the pool dies before it has forgotten the pod.
        for dies in [false, true] {
            let mut node = TestNode::new();
            let pod = pod(policy);
            node.create(&pod).await;
            running(&node, "u1").await;
            for _ in 0..2 {
                node.stop(&pod, 5).await;
                finished(&node, "u1").await;
                match dies {
                    false => forget(&node).await,
                    true => {
                        node.kill();
                        node.start();
                    }
                }
                begins_anew(&mut node, &pod, policy).await;
            }
        }
    }
}

/// A disk hangs with the logs, which go before their container does.
#[tokio::test(start_paused = true)]
async fn so_is_one_whose_containers_could_not_be_collected_meanwhile() {
    for policy in POLICIES {
        let mut node = TestNode::new();
        let pod = pod(policy);
        node.create(&pod).await;
        running(&node, "u1").await;
        node.stop(&pod, 5).await;
        finished(&node, "u1").await;
        forget(&node).await;
        node.host.state().messages_hang = true;
        node.current_run().garbage.order(Order::Everything {
            desired: HashSet::new(),
            sources_ready: true,
        });
        let line = || node.current_run().status_lines().join("");
        eventually("the round has ended", || line().contains("logs: ")).await;
        node.host.state().messages_hang = false;
        assert!(!node.runtime.containers().is_empty());
        begins_anew(&mut node, &pod, policy).await;
    }
}

/// The pod is started as a kubelet would, who notes nothing of ours.
async fn started_by_a_kubelet(node: &TestNode) -> String {
    let is_ours = |key: &String| key.starts_with("bulkhead");
    let sandbox = node.runtime.sandboxes().remove(0);
    let container = node.runtime.newest((POD_UID_LABEL, "u1"), "c").unwrap();
    let mut sandbox = sandbox.config.as_ref().clone();
    sandbox.metadata.as_mut().unwrap().attempt += 10;
    sandbox.annotations.retain(|key, _| !is_ours(key));
    let mut config = container.config.as_ref().clone();
    assert!(config.annotations.keys().any(is_ours));
    config.annotations.retain(|key, _| !is_ours(key));
    let runtime: &dyn RuntimeChanges = &node.runtime;
    let within = runtime.run_pod_sandbox(sandbox.clone(), "").await.unwrap();
    let made = runtime.create_container(&within, config, sandbox).await;
    let id = made.unwrap();
    runtime.start_container(&id).await.unwrap();
    id
}

/// A node goes over to a kubelet and back.
#[tokio::test(start_paused = true)]
async fn what_a_kubelet_made_of_the_pod_meanwhile_is_adopted() {
    for is_collected in [false, true] {
        let mut node = TestNode::new();
        let pod = pod_with("OnFailure", &["exit", "0", "60000"]);
        node.create(&pod).await;
        running(&node, "u1").await;
        node.stop(&pod, 5).await;
        finished(&node, "u1").await;
        forget(&node).await;
        let former = node.runtime.sandboxes();
        let id = started_by_a_kubelet(&node).await;
        for sandbox in former.iter().filter(|_| is_collected) {
            let runtime: &dyn RuntimeChanges = &node.runtime;
            runtime.remove_pod_sandbox(&sandbox.id).await.unwrap();
        }
        for _ in 0..2 {
            node.kill();
            node.start();
            node.create(&pod).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(running(&node, "u1").await, id);
        }
        // It ends for good where it ends by itself.
        finished(&node, "u1").await;
        assert_eq!(starts(&node, "u1").len(), 2);
        assert!(node.observation("u1").unwrap().terminal);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_stop_was_cut_off_begins_anew_too() {
    for policy in POLICIES {
        let mut node = TestNode::new();
        let pod = pod(policy);
        node.create(&pod).await;
        running(&node, "u1").await;
        node.stop(&pod, 5).await;
        is_asked_to_end(&node).await;
        node.kill();
        eventually("it ends", || node.running("u1").is_none()).await;
        node.start();
        node.create(&pod).await;
        finished(&node, "u1").await;
        forget(&node).await;
        begins_anew(&mut node, &pod, policy).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_had_ended_is_started_when_it_is_given_again_and_not_before() {
    for policy in ["OnFailure", "Never"] {
        let mut node = TestNode::new();
        let pod = pod_with(policy, &["exit", "0", "2000"]);
        node.create(&pod).await;
        finished(&node, "u1").await;
        for _ in 0..2 {
            node.kill();
            node.start();
            node.create(&pod).await;
            finished(&node, "u1").await;
        }
        assert_eq!(starts(&node, "u1").len(), 1, "{policy}");
        forget(&node).await;
        node.create(&pod).await;
        eventually(policy, || starts(&node, "u1").len() == 2).await;
        finished(&node, "u1").await;
        assert!(node.observation("u1").unwrap().terminal);
    }
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_that_is_given_again_is_started() {
    for policy in POLICIES {
        let mut node = TestNode::new();
        let pod = pod(policy);
        node.create(&pod).await;
        running(&node, "u1").await;
        evict(&node, &pod, "Evicted").await;
        finished(&node, "u1").await;
        node.kill();
        node.start();
        node.create(&pod).await;
        finished(&node, "u1").await;
        assert_eq!(starts(&node, "u1").len(), 1, "{policy}");
        forget(&node).await;
        begins_anew(&mut node, &pod, policy).await;
    }
}

/// The node boots, and its pool starts.
fn boot(node: &mut TestNode) {
    node.kill();
    node.boots();
    node.start();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_with_the_node_is_started_with_its_next_boot() {
    // The second as one that had begun just before the node let none start.
    for (policy, reason) in POLICIES
        .map(|it| [(it, TERMINATED), (it, REJECTED)])
        .concat()
    {
        // Whether the node goes down during the stop, or after it.
        for has_ended in [false, true] {
            let mut node = TestNode::new();
            let pod = pod(policy);
            node.create(&pod).await;
            running(&node, "u1").await;
            evict(&node, &pod, reason).await;
            match has_ended {
                false => is_asked_to_end(&node).await,
                true => finished(&node, "u1").await,
            }
            node.kill();
            eventually("it ends", || node.running("u1").is_none()).await;
            node.start();
            node.create(&pod).await;
            finished(&node, "u1").await;
            assert_eq!(starts(&node, "u1").len(), 1, "{policy}");
            boot(&mut node);
            begins_anew(&mut node, &pod, policy).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_with_the_node_has_its_whole_deadline_after_the_boot() {
    for reason in [TERMINATED, REJECTED] {
        let mut node = TestNode::new();
        let mut pod = pod("Never");
        pod["spec"]["activeDeadlineSeconds"] = json!(60);
        node.create(&pod).await;
        running(&node, "u1").await;
        tokio::time::sleep(Duration::from_secs(40)).await;
        evict(&node, &pod, reason).await;
        finished(&node, "u1").await;
        boot(&mut node);
        begins_anew(&mut node, &pod, reason).await;
    }
}

/// When pod-worker-pool is restarted while the node shuts down, all that does not run is
/// rejected, before anybody looks whether it had ended.
#[tokio::test(start_paused = true)]
async fn a_pod_that_had_ended_stays_so_though_a_shutdown_rejects_it() {
    let job = |policy| pod_with(policy, &["exit", "0", "2000"]);
    let mut with_deadline = pod_with("Always", RUN);
    with_deadline["spec"]["activeDeadlineSeconds"] = json!(60);
    let not_startable = pod_with("Never", &["cannot-start", "context canceled"]);
    for (pod, failed_reason) in [
        (job("Never"), ""),
        (job("OnFailure"), ""),
        (with_deadline, "DeadlineExceeded"),
        (not_startable, ""),
    ] {
        let mut node = TestNode::new();
        node.create(&pod).await;
        finished(&node, "u1").await;
        let made = calls(&node, "CreateContainer");
        for _ in 0..2 {
            node.kill();
            node.start();
            let none = Startable::Only(BTreeSet::new());
            node.current_run().pool.set_startable(none).await.unwrap();
            node.create(&pod).await;
            finished(&node, "u1").await;
            assert_eq!(node.observation("u1").unwrap().failed_reason, REJECTED);
        }
        boot(&mut node);
        node.create(&pod).await;
        finished(&node, "u1").await;
        assert_eq!(calls(&node, "CreateContainer"), made, "{pod}");
        assert_eq!(node.observation("u1").unwrap().failed_reason, failed_reason);
        // Its source takes it back and has it again.
        forget(&node).await;
        node.create(&pod).await;
        eventually("it begins anew", || calls(&node, "CreateContainer") > made).await;
    }
}
