//! Pods that go: gates, grace, times, and terminations that nobody forgets.

use super::*;

#[test]
fn a_removed_pod_is_killed_with_its_own_grace_from_now() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.wait(Duration::from_secs(5));
    let actions = harness.remove(&plain("a"));
    let (requested_at, pod) = kill(&actions);
    assert_eq!(requested_at, harness.now.wall);
    assert!(
        matches!(pod, UpdatedPod::Desired(_)),
        "the worker may need the spec"
    );
}

#[test]
fn a_pod_that_never_ran_here_is_killed_too() {
    // It may run since before the restart; nobody knows yet.
    let mut harness = Harness::new();
    harness.configure(&["file"]);
    harness.snapshot(PodSource::File, true, &[plain("a")]);
    let actions = harness.remove(&plain("a"));
    assert_eq!(sent(&actions), ["KILL a"]);
}

#[test]
fn a_source_that_is_not_ready_removes_only_what_it_has_seen_go() {
    let mut harness = Harness::running();
    for name in ["a", "b", "c"] {
        harness.add_running(&plain(name));
    }
    harness.configure(&["file"]);
    let shown = [plain("b"), plain("c")];
    assert_eq!(
        sent(&harness.snapshot(PodSource::File, false, &shown)),
        [""; 0]
    );
    assert_eq!(sent(&harness.remove(&plain("b"))), ["KILL b"]);
    let actions = harness.change(&[plain("c")], &[plain("d")]);
    assert_eq!(sent(&actions), ["KILL c", "CREATE d"]);
    // Once it is ready, what is missing is gone.
    assert_eq!(
        sent(&harness.snapshot(PodSource::File, true, &[plain("d")])),
        ["KILL a"]
    );
}

#[test]
fn a_source_can_only_remove_its_own_pods() {
    let mut harness = Harness::running();
    harness.configure(&["file", "http"]);
    harness.snapshot(PodSource::Http, true, &[]);
    harness.snapshot(PodSource::File, true, &[plain("a")]);
    assert_eq!(
        sent(&harness.remove_in(PodSource::Http, &plain("a"))),
        [""; 0]
    );
    assert_eq!(sent(&harness.snapshot(PodSource::Http, true, &[])), [""; 0]);
}

#[test]
fn a_source_that_is_no_longer_configured_takes_its_pods_along() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    assert_eq!(sent(&harness.configure(&["http"])), ["KILL a"]);
}

#[test]
fn a_kill_that_the_pool_does_not_know_of_is_sent_again_with_its_first_time() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    let actions = harness.remove(&plain("a"));
    let (first, _) = kill(&actions);
    harness.acknowledge(&actions, WorkerPhase::Terminating);
    harness.wait(Duration::from_secs(10));
    let actions = harness.housekeeping(&[worker("a", WorkerPhase::Syncing)], &[]);
    let (again, _) = kill(&actions);
    assert_eq!(again, first);
    harness.acknowledge(&actions, WorkerPhase::Terminating);
    // It is known now, so nothing more is sent.
    let actions = harness.housekeeping(&[worker("a", WorkerPhase::Terminating)], &[]);
    assert_eq!(sent(&actions), [""; 0]);
}

#[test]
fn an_answer_that_is_older_than_the_kill_does_not_count() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.tick_housekeeping();
    let actions = harness.remove(&plain("a"));
    harness.acknowledge(&actions, WorkerPhase::Terminating);
    let actions = harness.answer(&[worker("a", WorkerPhase::Syncing)], &[]);
    assert_eq!(sent(&actions), [""; 0]);
    let actions = harness.answer(&[], &[]);
    assert_eq!(sent(&actions), [""; 0]);
    assert!(
        harness.sync_loop.workers.departed("a").is_some(),
        "not forgotten either"
    );
}

#[test]
fn a_departed_pod_is_forgotten_when_nothing_is_left_of_it() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    let actions = harness.remove(&plain("a"));
    harness.acknowledge(&actions, WorkerPhase::Terminating);
    let running = [runtime_pod("a", "file", true)];
    harness.housekeeping(&[worker("a", WorkerPhase::Terminating)], &running);
    assert!(harness.sync_loop.workers.departed("a").is_some());
    // No worker but something runs: it is killed again.
    assert_eq!(sent(&harness.housekeeping(&[], &running)), ["KILL a"]);
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    let actions = harness.remove(&plain("a"));
    harness.acknowledge(&actions, WorkerPhase::Terminating);
    harness.housekeeping(&[worker("a", WorkerPhase::Finished)], &[]);
    assert!(harness.sync_loop.workers.departed("a").is_none());
}

#[test]
fn a_new_run_of_the_pool_is_told_of_every_termination() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.add_running(&plain("b"));
    let actions = harness.remove(&plain("a"));
    let (first, _) = kill(&actions);
    harness.acknowledge(&actions, WorkerPhase::Terminating);
    harness.wait(Duration::from_secs(3));
    harness.boot_id = "pool-2".into();
    let actions = harness.housekeeping(&[], &[]);
    assert_eq!(sent(&actions), ["CREATE b", "KILL a"]);
    assert_eq!(kill(&actions).0, first);
}

#[test]
fn a_deletion_mark_travels_in_an_update() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    let mut marked = plain("a");
    marked["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    let actions = harness.deliver(&marked);
    assert_eq!(sent(&actions), ["UPDATE a"]);
    assert_eq!(
        harness.decision("a"),
        "sent UPDATE to its worker: marked for deletion in source file"
    );
    let UpdatedPod::Desired(document) = &updates(&actions)[0].pod else {
        panic!("no pod")
    };
    assert!(
        std::str::from_utf8(document.json())
            .unwrap()
            .contains("deletionTimestamp")
    );
}
