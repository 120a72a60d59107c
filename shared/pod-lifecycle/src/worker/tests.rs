//! The pod worker tables of the kubelet, by behaviour.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::termination::EvictionRequest;
use crate::testing::{api_manifest, desired, manifest};

fn at(seconds: i64) -> UnixNanos {
    UnixNanos(seconds * 1_000_000_000)
}

fn pod() -> DesiredPod {
    desired(manifest("a", "u1"))
}

fn changed_pod() -> DesiredPod {
    let mut value = manifest("a", "u1");
    value["spec"]["containers"][0]["image"] = json!("localhost/other:1");
    desired(value)
}

/// Its command is what a running pod keeps.
fn another_pod() -> DesiredPod {
    let mut value = manifest("a", "u1");
    value["spec"]["containers"][0]["command"] = json!(["other"]);
    desired(value)
}

fn deleted_pod(grace: i64) -> DesiredPod {
    let mut value = api_manifest("a", "u1");
    value["metadata"]["deletionTimestamp"] = json!("2026-11-20T10:00:00Z");
    value["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    desired(value)
}

fn ended_pod(phase: &str) -> DesiredPod {
    let mut value = api_manifest("a", "u1");
    value["status"] = json!({"phase": phase});
    desired(value)
}

fn update(kind: UpdateKind, pod: DesiredPod) -> Update {
    Update {
        kind,
        subject: Subject::Desired(pod),
        kill: None,
    }
}

fn kill(pod: DesiredPod, grace: Option<u64>) -> Update {
    Update {
        kind: UpdateKind::Kill,
        subject: Subject::Desired(pod),
        kill: Some(KillRequest {
            grace: grace.map(Duration::from_secs),
            ..KillRequest::default()
        }),
    }
}

fn eviction(pod: DesiredPod) -> Update {
    Update {
        kill: Some(KillRequest {
            eviction: Some(EvictionRequest {
                reason: "Evicted".into(),
                message: "low on memory".into(),
                is_disruption: true,
            }),
            ..KillRequest::default()
        }),
        ..kill(pod, None)
    }
}

fn runtime_only(kind: UpdateKind) -> Update {
    Update {
        kind,
        subject: Subject::RuntimeOnly(pod().identity().clone()),
        kill: None,
    }
}

fn syncing() -> Worker {
    let mut worker = waiting();
    worker.start();
    worker
}

fn waiting() -> Worker {
    Worker::new(at(0), update(UpdateKind::Create, pod())).unwrap()
}

fn terminating() -> Worker {
    let mut worker = syncing();
    worker.update(at(0), kill(pod(), Some(20)));
    worker
}

fn finished() -> Worker {
    let mut worker = terminating();
    worker.terminating_done();
    worker.terminated_done();
    worker
}

#[test]
fn the_first_update_decides_where_a_worker_begins() {
    for (name, update, expected) in [
        (
            "new",
            update(UpdateKind::Create, pod()),
            WorkerPhase::Waiting,
        ),
        (
            "unknown",
            update(UpdateKind::Sync, pod()),
            WorkerPhase::Waiting,
        ),
        (
            "deleted",
            update(UpdateKind::Create, deleted_pod(5)),
            WorkerPhase::Terminating,
        ),
        (
            "failed",
            update(UpdateKind::Create, ended_pod("Failed")),
            WorkerPhase::Terminating,
        ),
        (
            "succeeded",
            update(UpdateKind::Sync, ended_pod("Succeeded")),
            WorkerPhase::Terminating,
        ),
        (
            "running",
            update(UpdateKind::Create, ended_pod("Running")),
            WorkerPhase::Waiting,
        ),
        ("killed", kill(pod(), None), WorkerPhase::Terminating),
        (
            "orphan",
            runtime_only(UpdateKind::Kill),
            WorkerPhase::Terminating,
        ),
    ] {
        let worker = Worker::new(at(0), update).unwrap();
        assert_eq!(worker.phase(), expected, "{name}");
    }
}

#[test]
fn a_pod_that_only_the_runtime_has_may_only_be_killed() {
    for kind in [UpdateKind::Create, UpdateKind::Update, UpdateKind::Sync] {
        let refusal = Refusal::RuntimePodsCanOnlyBeKilled;
        assert_eq!(Worker::new(at(0), runtime_only(kind)), Err(refusal));
        let mut worker = syncing();
        assert_eq!(
            worker.update(at(1), runtime_only(kind)),
            Decision::Ignored(refusal)
        );
        assert_eq!(worker, syncing());
    }
}

#[test]
fn a_pod_that_only_the_runtime_has_is_forgotten_as_soon_as_it_is_stopped() {
    let mut worker = Worker::new(at(0), runtime_only(UpdateKind::Kill)).unwrap();
    assert_eq!(worker.desired(), None);
    assert_eq!(
        worker.update(at(1), runtime_only(UpdateKind::Kill)),
        Decision::Wake
    );
    assert_eq!(worker.terminating_done(), Transition::Forget);
}

#[test]
fn a_runtime_kill_of_a_known_pod_uses_the_spec_that_is_known() {
    let mut worker = syncing();
    assert_eq!(
        worker.update(at(1), runtime_only(UpdateKind::Kill)),
        Decision::Interrupt
    );
    assert_eq!(worker.desired(), Some(&pod()));
    assert_eq!(worker.terminating_done(), Transition::Advanced);
    // An older view of the runtime, arriving late.
    assert_eq!(
        worker.update(at(2), runtime_only(UpdateKind::Kill)),
        Decision::Ignored(Refusal::AlreadyTerminated)
    );
}

#[test]
fn the_newest_desired_pod_wins() {
    let mut worker = syncing();
    assert_eq!(
        worker.update(at(1), update(UpdateKind::Update, changed_pod())),
        Decision::Wake
    );
    assert_eq!(worker.desired(), Some(&changed_pod()));
    let mut waiting = waiting();
    assert_eq!(
        waiting.update(at(1), update(UpdateKind::Update, changed_pod())),
        Decision::Waits
    );
    assert_eq!(waiting.start(), Transition::Advanced);
    assert_eq!(waiting.desired(), Some(&changed_pod()));
}

#[test]
fn a_kill_is_never_overwritten_by_an_update() {
    for kind in [UpdateKind::Update, UpdateKind::Sync, UpdateKind::Kill] {
        let mut worker = terminating();
        assert_eq!(
            worker.update(at(1), update(kind, changed_pod())),
            Decision::Wake
        );
        assert_eq!(worker.phase(), WorkerPhase::Terminating);
        assert_eq!(
            worker.termination().map(|termination| termination.grace),
            Some(Some(Duration::from_secs(20)))
        );
        assert!(!worker.restart_requested());
    }
}

#[test]
fn a_termination_and_a_shorter_grace_cut_the_running_step_short() {
    let mut worker = syncing();
    assert_eq!(
        worker.update(at(0), kill(pod(), Some(20))),
        Decision::Interrupt
    );
    assert_eq!(worker.update(at(1), kill(pod(), Some(30))), Decision::Wake);
    assert_eq!(worker.update(at(1), kill(pod(), Some(20))), Decision::Wake);
    assert_eq!(
        worker.update(at(2), kill(pod(), Some(5))),
        Decision::Interrupt
    );
    assert_eq!(
        worker.update(at(3), update(UpdateKind::Update, deleted_pod(1))),
        Decision::Interrupt
    );
    let termination = worker.termination().unwrap();
    assert_eq!(termination.grace, Some(Duration::from_secs(1)));
}

#[test]
fn deletion_and_a_terminal_phase_terminate_whatever_the_kind_of_update() {
    for (pod, cause) in [
        (deleted_pod(5), TerminationCause::Deleted),
        (ended_pod("Failed"), TerminationCause::EndedAtSource),
        (ended_pod("Succeeded"), TerminationCause::EndedAtSource),
    ] {
        let mut worker = syncing();
        assert_eq!(
            worker.update(at(1), update(UpdateKind::Sync, pod)),
            Decision::Interrupt
        );
        assert_eq!(worker.termination().unwrap().cause, cause);
    }
}

#[test]
fn the_first_cause_stands() {
    let mut worker = syncing();
    worker.update(at(0), eviction(pod()));
    worker.update(at(1), update(UpdateKind::Update, deleted_pod(5)));
    let cause = &worker.termination().unwrap().cause;
    assert_eq!(cause.failure(), Some(("Evicted", "low on memory")));
}

#[test]
fn the_same_pod_created_again_while_it_ends_is_noted_and_starts_nothing() {
    let mut terminated = terminating();
    terminated.terminating_done();
    for mut worker in [terminating(), terminated, finished()] {
        let phase = worker.phase();
        assert_eq!(
            worker.update(at(5), update(UpdateKind::Create, pod())),
            Decision::RestartNoted
        );
        assert_eq!(worker.phase(), phase);
        assert!(worker.restart_requested());
        worker.terminating_done();
        worker.terminated_done();
        assert!(worker.is_finished() && worker.restart_requested());
    }
}

#[test]
fn a_pod_that_ended_for_good_is_not_restarted_by_a_create() {
    let mut evicted = syncing();
    evicted.update(at(0), eviction(pod()));
    let mut completed = syncing();
    completed.sync_ended(at(0), TerminationCause::Completed);
    for mut worker in [evicted, completed] {
        assert_eq!(
            worker.update(at(1), update(UpdateKind::Create, pod())),
            Decision::Wake
        );
        assert!(!worker.restart_requested());
    }
    let mut removed_since = syncing();
    removed_since.sync_ended(at(0), TerminationCause::Completed);
    removed_since.update(at(1), kill(pod(), None));
    removed_since.update(at(2), update(UpdateKind::Create, pod()));
    assert!(removed_since.restart_requested());
    removed_since.update(at(3), kill(pod(), None));
    assert!(!removed_since.restart_requested());
    let mut deleted = terminating();
    deleted.update(at(1), update(UpdateKind::Create, deleted_pod(5)));
    assert!(!deleted.restart_requested());
}

#[test]
fn a_finished_worker_ignores_updates() {
    for update in [
        update(UpdateKind::Update, changed_pod()),
        update(UpdateKind::Sync, pod()),
        kill(pod(), Some(1)),
        runtime_only(UpdateKind::Kill),
    ] {
        let mut worker = finished();
        assert_eq!(
            worker.update(at(1), update),
            Decision::Ignored(Refusal::Finished)
        );
        assert_eq!(worker, finished());
    }
}

#[test]
fn a_sync_that_ends_drives_the_pod_to_its_end() {
    let mut worker = syncing();
    assert_eq!(
        worker.sync_ended(at(1), TerminationCause::Completed),
        Transition::Advanced
    );
    assert_eq!(worker.phase(), WorkerPhase::Terminating);
    assert_eq!(worker.terminating_done(), Transition::Advanced);
    assert_eq!(worker.phase(), WorkerPhase::Terminated);
    assert_eq!(worker.terminated_done(), Transition::Advanced);
    assert_eq!(worker.phase(), WorkerPhase::Finished);
}

#[test]
fn results_of_steps_of_an_earlier_state_change_nothing() {
    let mut worker = terminating();
    assert_eq!(
        worker.sync_ended(at(1), TerminationCause::Completed),
        Transition::None
    );
    assert_eq!(worker.terminated_done(), Transition::None);
    assert_eq!(worker.start(), Transition::None);
    assert_eq!(worker, terminating());
    assert_eq!(syncing().terminating_done(), Transition::None);
}

#[test]
fn a_resumed_termination_learns_its_pod_and_keeps_its_deadline() {
    let termination = Termination::new(TerminationCause::Killed, at(0), Some(&pod()), None);
    let mut worker = Worker::resume(pod().identity().clone(), termination.clone());
    assert_eq!(
        worker.update(at(10), update(UpdateKind::Sync, pod())),
        Decision::Wake
    );
    assert_eq!(worker.desired(), Some(&pod()));
    assert_eq!(worker.termination(), Some(&termination));
    assert_eq!(worker.terminating_done(), Transition::Advanced);
}

/// Something of it runs, as the version that is known.
fn running() -> Worker {
    let mut worker = syncing();
    worker.set_keeps_version(true);
    worker
}

/// The version before with a label of `another_pod`, as it runs.
fn labelled_pod() -> serde_json::Value {
    let mut value = manifest("a", "u1");
    value["metadata"]["labels"] = json!({"new": "1"});
    value
}

#[test]
fn of_a_version_that_changes_what_a_running_pod_keeps_the_spec_is_left() {
    let mut newest = labelled_pod();
    newest["spec"]["containers"][0]["command"] = json!(["other"]);
    let newest = desired(newest);
    for kind in [UpdateKind::Create, UpdateKind::Update, UpdateKind::Sync] {
        let mut worker = running();
        for _ in 0..2 {
            let decision = worker.update(at(1), update(kind, newest.clone()));
            assert_eq!(decision, Decision::Wake);
            let known = worker.desired().unwrap();
            assert_eq!(known.left(), ["spec.containers[0].command"]);
            let labelled = desired(labelled_pod());
            assert_eq!(known.decode().unwrap(), labelled.decode().unwrap());
        }
        // What may change does; and the source may have the version again that runs.
        for taken in [changed_pod(), pod()] {
            worker.update(at(2), update(kind, taken.clone()));
            assert_eq!(worker.desired(), Some(&taken));
        }
    }
    // Where nothing runs, the newest version is started.
    let mut worker = syncing();
    worker.update(at(1), update(UpdateKind::Update, newest.clone()));
    assert_eq!(worker.desired(), Some(&newest));
}

#[test]
fn a_deletion_that_comes_with_a_change_is_a_deletion() {
    let mut value = api_manifest("a", "u1");
    value["spec"]["containers"][0]["command"] = json!(["other"]);
    value["metadata"]["deletionTimestamp"] = json!("2026-11-20T10:00:00Z");
    value["metadata"]["deletionGracePeriodSeconds"] = json!(7);
    let mut worker = running();
    worker.update(at(1), update(UpdateKind::Update, desired(value.clone())));
    let termination = worker.termination().unwrap();
    assert_eq!(termination.cause, TerminationCause::Deleted);
    assert_eq!(termination.grace, Some(Duration::from_secs(7)));
    let is_as_it_was_started = |worker: &Worker| {
        let ending = worker.desired().unwrap().decode().unwrap();
        ending.spec == pod().decode().unwrap().spec
    };
    assert!(is_as_it_was_started(&worker));
    // And one that shortens it.
    value["metadata"]["deletionGracePeriodSeconds"] = json!(3);
    worker.update(at(2), update(UpdateKind::Update, desired(value)));
    let termination = worker.termination().unwrap();
    assert_eq!(termination.grace, Some(Duration::from_secs(3)));
    assert!(is_as_it_was_started(&worker));
}

#[test]
fn a_pod_that_has_ended_stays_so_however_it_is_changed() {
    let causes = [
        TerminationCause::Completed,
        TerminationCause::DeadlineExceeded,
        TerminationCause::EndedAtSource,
    ];
    let mut ended: Vec<Worker> = Vec::new();
    for cause in causes {
        let mut worker = running();
        worker.sync_ended(at(0), cause);
        ended.push(worker);
    }
    let mut evicted = running();
    evicted.update(at(0), eviction(pod()));
    ended.push(evicted);
    for worker in ended {
        for steps in 0..=2 {
            let mut worker = worker.clone();
            if steps > 0 {
                worker.terminating_done();
            }
            if steps > 1 {
                worker.terminated_done();
            }
            for kind in [UpdateKind::Update, UpdateKind::Create] {
                worker.update(at(1), update(kind, another_pod()));
                assert!(!worker.restart_requested());
            }
            // Its source takes it back, and has it again.
            worker.update(at(2), kill(another_pod(), None));
            worker.update(at(3), update(UpdateKind::Create, another_pod()));
            assert!(worker.restart_requested());
        }
    }
}

#[test]
fn a_pod_that_waits_for_its_name_may_change() {
    let mut worker = waiting();
    let decision = worker.update(at(1), update(UpdateKind::Update, another_pod()));
    assert_eq!(decision, Decision::Waits);
    assert_eq!(worker.desired(), Some(&another_pod()));
}
