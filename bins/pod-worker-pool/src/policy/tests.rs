//! The policy and a pool that works by it, on a node in memory.

use bulkhead_api::v1;
use pod_lifecycle::UpdateKind;
use serde_json::{Value, json};

use crate::testing::{TestNode, eventually, pod_running};

use super::*;

const GRANT: &str = "[[grants]]\npods = [\"default/a\"]\nhostNetwork = true\n";

fn on_the_nodes_network(name: &str, uid: &str) -> Value {
    let mut pod = pod_running(name, uid, &["run"]);
    pod["spec"]["hostNetwork"] = json!(true);
    pod
}

fn report(node: &TestNode) -> v1::PolicyReport {
    node.current_run().policy.report()
}

fn waiting_reason(node: &TestNode, uid: &str) -> String {
    let observation = node.observation(uid).unwrap_or_default();
    let waiting = observation.waiting.first().cloned().unwrap_or_default();
    waiting.reason
}

/// They are written down twice, so that no mistake in making requests passes the gate. A
/// path that only one of them has would refuse every pod, or show what was to be hidden.
#[test]
fn the_gate_and_the_requests_agree_on_what_containers_do_not_see_or_change() {
    let sorted = |paths: &[&'static str]| -> BTreeSet<&str> { paths.iter().copied().collect() };
    let (wanted, made) = (runtime_gate::MASKED, cri_requests::MASKED_PATHS);
    assert_eq!(sorted(&wanted), sorted(&made));
    let (wanted, made) = (runtime_gate::READ_ONLY, cri_requests::READONLY_PATHS);
    assert_eq!(sorted(&wanted), sorted(&made));
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_waits_until_the_policy_allows_it() {
    let node = TestNode::that_watches_its_policy();
    node.create(&on_the_nodes_network("a", "u1")).await;
    node.create(&pod_running("b", "u2", &["run"])).await;
    eventually("the other pod runs", || node.running("u2").is_some()).await;
    eventually("it waits", || waiting_reason(&node, "u1") == REFUSED_REASON).await;
    assert!(node.running("u1").is_none());
    assert_eq!(node.phase("u1"), Some(v1::WorkerPhase::Syncing));
    let refused = report(&node);
    assert_eq!(
        (refused.refused_pods, refused.origin.as_str()),
        (1, "no file")
    );
    let message = &refused.findings[0].message;
    assert!(message.contains("spec.hostNetwork"), "{message}");
    assert!(message.contains("hostNetwork = true"), "{message}");
    assert!(
        node.current_run()
            .policy
            .status_line()
            .contains("refuses 1 pod")
    );
    node.write_policy(GRANT);
    eventually("it runs", || node.running("u1").is_some()).await;
    assert_eq!(report(&node).refused_pods, 0);
    let told = node.reasons("u1");
    assert_eq!(
        told.iter()
            .filter(|reason| *reason == REFUSED_REASON)
            .count(),
        1,
        "{told:?}"
    );
    // Nobody asked for it again.
    assert!(node.seconds() < 60.0);
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_that_a_new_policy_refuses_runs_on_and_gets_nothing_new() {
    let node = TestNode::that_watches_its_policy();
    node.write_policy(GRANT);
    node.create(&on_the_nodes_network("a", "u1")).await;
    eventually("it runs", || node.running("u1").is_some()).await;
    let first = node.running("u1").unwrap().id;
    node.write_policy("# nothing is granted any more\n");
    eventually("it is refused", || report(&node).refused_pods == 1).await;
    assert_eq!(node.running("u1").unwrap().id, first);
    node.runtime.crash_container(&first, 1);
    let same = on_the_nodes_network("a", "u1");
    node.update(UpdateKind::Sync, &same).await.unwrap();
    eventually("it waits", || waiting_reason(&node, "u1") == REFUSED_REASON).await;
    assert!(node.running("u1").is_none());
    node.write_policy(GRANT);
    eventually("it runs again", || node.running("u1").is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_says_so_ends_what_runs_and_not_what_waits() {
    let node = TestNode::that_watches_its_policy();
    node.write_policy(GRANT);
    node.create(&on_the_nodes_network("a", "u1")).await;
    eventually("it runs", || node.running("u1").is_some()).await;
    node.write_policy("runningPods = \"end\"\n");
    eventually("it is ended", || {
        node.phase("u1") == Some(v1::WorkerPhase::Finished)
    })
    .await;
    let ended = node.observation("u1").unwrap();
    assert_eq!(ended.failed_reason, REFUSED_REASON);
    assert!(ended.failed_message.contains("spec.hostNetwork"));
    node.create(&on_the_nodes_network("b", "u2")).await;
    eventually("the other waits", || {
        waiting_reason(&node, "u2") == REFUSED_REASON
    })
    .await;
    assert_eq!(node.phase("u2"), Some(v1::WorkerPhase::Syncing));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_audits_reports_and_allows() {
    let node = TestNode::that_watches_its_policy();
    node.write_policy("mode = \"audit\"\n");
    node.create(&on_the_nodes_network("a", "u1")).await;
    eventually("it runs", || node.running("u1").is_some()).await;
    let audited = report(&node);
    assert_eq!((audited.refused_pods, audited.audited_pods), (0, 1));
    assert_eq!(audited.mode, "audit");
    assert!(
        node.current_run()
            .policy
            .status_line()
            .starts_with("degraded")
    );
    assert!(node.reasons("u1").contains(&REFUSED_REASON.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_broken_file_keeps_the_last_good_policy_over_a_restart_too() {
    let mut node = TestNode::that_watches_its_policy();
    node.write_policy(GRANT);
    eventually("it is read", || report(&node).origin == "file").await;
    node.write_policy("[[grants]]\npods = 7\n");
    eventually("it is shown", || !report(&node).problem.is_empty()).await;
    assert!(
        report(&node).problem.starts_with("line 2"),
        "{:?}",
        report(&node)
    );
    assert!(node.current_run().policy.status_line().contains("line 2"));
    node.create(&on_the_nodes_network("a", "u1")).await;
    eventually("it runs", || node.running("u1").is_some()).await;
    node.kill();
    node.start();
    assert_eq!(report(&node).origin, "last good file");
    assert!(report(&node).problem.starts_with("line 2"));
    node.create(&on_the_nodes_network("a", "u1")).await;
    let first = node.running("u1").unwrap().id;
    node.runtime.crash_container(&first, 1);
    eventually("it runs again", || node.running("u1").is_some()).await;
    assert_eq!(report(&node).refused_pods, 0);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_taken_back_does_not_come_back_where_the_disk_refuses_to_keep_that() {
    let mut node = TestNode::that_watches_its_policy();
    node.write_policy(GRANT);
    let kept = node.state.path().join("state/pod-worker-pool/policy.json");
    let read = || std::fs::read_to_string(&kept).unwrap_or_default();
    eventually("it is kept", || read().contains("hostNetwork")).await;
    let in_the_way = kept.with_extension("json.new").join("x");
    std::fs::create_dir_all(in_the_way).unwrap();
    node.write_policy("# nothing is granted any more\n");
    let status_line = || node.current_run().policy.status_line();
    eventually("it is not", || status_line().contains("cannot be saved")).await;
    node.write_policy("mode = 7\n");
    node.kill();
    node.start();
    assert_eq!(report(&node).origin, "nothing");
}

#[tokio::test(start_paused = true)]
async fn a_first_file_that_is_broken_changes_nothing_over_restarts_too() {
    let mut node = TestNode::that_watches_its_policy();
    for _ in 0..2 {
        node.create(&pod_running("a", "u1", &["run"])).await;
        eventually("it runs", || node.running("u1").is_some()).await;
        node.kill();
        node.write_policy("mode = 7\n");
        node.start();
        let problem = report(&node).problem;
        assert!(problem.ends_with("baseline stays in force, as without a file"));
    }
    node.create(&pod_running("b", "u2", &["run"])).await;
    eventually("so does a new one", || node.running("u2").is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_was_never_good_lets_nothing_new_start() {
    let mut node = TestNode::that_watches_its_policy();
    node.create(&pod_running("a", "u1", &["run"])).await;
    eventually("it runs", || node.running("u1").is_some()).await;
    node.kill();
    node.write_policy("mode = 7\n");
    // As where the disk with what the process before knew is lost.
    let known = node.state.path().join("state/pod-worker-pool/policy.json");
    std::fs::remove_file(known).unwrap();
    node.start();
    assert_eq!(report(&node).origin, "nothing");
    node.create(&pod_running("a", "u1", &["run"])).await;
    node.create(&pod_running("b", "u2", &["run"])).await;
    eventually("the new one waits", || {
        waiting_reason(&node, "u2") == REFUSED_REASON
    })
    .await;
    assert!(node.running("u1").is_some() && node.running("u2").is_none());
    node.write_policy("");
    eventually("it runs", || node.running("u2").is_some()).await;
}
