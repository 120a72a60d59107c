//! What makes a pod be looked at: lifecycle events, probes, ticks.

use super::*;
use v1::{PodLifecycleEventType as Kind, ProbeKind, ProbeResult};

fn verdict(uid: &str, kind: ProbeKind, result: ProbeResult) -> v1::ProbeVerdict {
    v1::ProbeVerdict {
        pod_uid: uid.into(),
        container_name: "c".into(),
        container_id: "id".into(),
        kind: kind.into(),
        result: result.into(),
        message: "why".into(),
    }
}

#[test]
fn lifecycle_events_sync_their_pod_except_removals() {
    for (kind, expected) in [
        (Kind::ContainerStarted, vec!["SYNC a"]),
        (Kind::ContainerDied, vec!["SYNC a", "clean-up a"]),
        (Kind::ContainerRemoved, vec![]),
        (Kind::ContainerChanged, vec!["SYNC a"]),
        (Kind::PodSync, vec!["SYNC a"]),
        (Kind::Unspecified, vec![]),
    ] {
        let mut harness = Harness::running();
        harness.add_running(&plain("a"));
        assert_eq!(briefs(&harness.lifecycle("a", kind)), expected, "{kind:?}");
        assert_eq!(
            briefs(&harness.lifecycle("stranger", kind)),
            [""; 0],
            "{kind:?}"
        );
    }
}

#[test]
fn a_try_that_fails_is_an_event_of_its_pod_and_nothing_else() {
    use v1::ProbeTryOutcome::{Error, Failure, Unspecified, Warning};
    for (uid, outcome, expected) in [
        ("a", Failure, vec!["event Unhealthy "]),
        ("a", Error, vec!["event Unhealthy "]),
        ("a", Warning, vec!["event ProbeWarning "]),
        ("a", Unspecified, vec![]),
        ("stranger", Failure, vec![]),
    ] {
        let mut harness = Harness::running();
        harness.add_running(&plain("a"));
        let attempt = v1::ProbeTry {
            pod_uid: uid.into(),
            container_name: "c".into(),
            outcome: outcome.into(),
            message: "m".repeat(9000),
            unix_nanos: 7,
        };
        let actions = harness.handle(Event::ProbeResult(ProbeMessage::Attempt(attempt)));
        assert_eq!(briefs(&actions), expected, "{uid} {outcome:?}");
        if let Some(Action::ReportEvent(event)) = actions.first() {
            assert_eq!(event.pod.as_ref().unwrap().uid, "a");
            assert_eq!((event.container.as_str(), event.unix_nanos), ("c", 7));
            assert_eq!(
                (event.message.len(), event.reporter.as_str()),
                (1024, "prober")
            );
        }
    }
}

#[test]
fn dead_containers_of_a_pod_that_is_going_are_cleaned_up() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.remove(&plain("a"));
    assert_eq!(
        briefs(&harness.lifecycle("a", Kind::ContainerDied)),
        ["clean-up a"]
    );
}

#[test]
fn a_new_stream_of_lifecycle_events_rings_for_all_its_pods() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.add_running(&plain("b"));
    let snapshot = v1::PlegSnapshot {
        health: Some(v1::PlegHealth {
            healthy: true,
            ..v1::PlegHealth::default()
        }),
        pod_uids: vec!["b".into(), "stranger".into()],
    };
    let actions = harness.handle(Event::Lifecycle(LifecycleMessage::Snapshot(snapshot)));
    assert_eq!(sent(&actions), ["SYNC b"]);
    assert!(harness.sync_loop.summary().pleg.healthy);
}

#[test]
fn an_unhealthy_pleg_is_shown_and_stops_nothing() {
    let mut harness = Harness::running();
    let health = v1::PlegHealth {
        healthy: false,
        reason: "slow".into(),
        ..v1::PlegHealth::default()
    };
    harness.handle(Event::Lifecycle(LifecycleMessage::Health(health)));
    assert_eq!(harness.sync_loop.summary().pleg.reason, "slow");
    assert_eq!(sent(&harness.deliver(&plain("a"))), ["CREATE a"]);
    assert_eq!(
        sent(&harness.lifecycle("a", Kind::ContainerStarted)),
        ["SYNC a"]
    );
}

#[test]
fn probes_sync_when_they_say_something_new() {
    for (kind, result, expected) in [
        (
            ProbeKind::Liveness,
            ProbeResult::Failure,
            vec!["verdicts 1", "SYNC a"],
        ),
        (
            ProbeKind::Liveness,
            ProbeResult::Success,
            vec!["verdicts 1"],
        ),
        (
            ProbeKind::Readiness,
            ProbeResult::Failure,
            vec!["verdicts 1", "SYNC a"],
        ),
        (
            ProbeKind::Readiness,
            ProbeResult::Success,
            vec!["verdicts 1", "SYNC a"],
        ),
        (
            ProbeKind::Startup,
            ProbeResult::Failure,
            vec!["verdicts 1", "SYNC a"],
        ),
        (
            ProbeKind::Startup,
            ProbeResult::Success,
            vec!["verdicts 1", "SYNC a"],
        ),
    ] {
        let mut harness = Harness::running();
        harness.add_running(&plain("a"));
        let actions = harness.verdict(verdict("a", kind, result));
        assert_eq!(briefs(&actions), expected, "{kind:?} {result:?}");
        let actions = harness.verdict(verdict("a", kind, result));
        assert_eq!(briefs(&actions), [""; 0], "{kind:?} {result:?} again");
    }
}

#[test]
fn all_verdicts_travel_with_every_update_until_the_prober_removes_them() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.verdict(verdict("a", ProbeKind::Startup, ProbeResult::Success));
    let failure = verdict("a", ProbeKind::Liveness, ProbeResult::Failure);
    let actions = harness.verdict(failure);
    let kinds = |actions: &[Action]| -> Vec<ProbeKind> {
        updates(actions)[0]
            .verdicts
            .iter()
            .map(v1::ProbeVerdict::kind)
            .collect()
    };
    assert_eq!(kinds(&actions), [ProbeKind::Startup, ProbeKind::Liveness]);
    harness.handle(Event::ProbeResult(ProbeMessage::Removed(
        v1::ProbeVerdictRemoved {
            container_id: "id".into(),
            kind: ProbeKind::Liveness.into(),
        },
    )));
    let actions = harness.lifecycle("a", Kind::ContainerStarted);
    assert_eq!(kinds(&actions), [ProbeKind::Startup]);
}

#[test]
fn status_syncer_hears_all_verdicts_again_after_its_restart() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.verdict(verdict("a", ProbeKind::Startup, ProbeResult::Success));
    harness.verdict(verdict("a", ProbeKind::Readiness, ProbeResult::Success));
    assert_eq!(
        briefs(&harness.handle(Event::StatusSyncerRestarted)),
        ["verdicts 2", "collect-garbage", "known-pods"]
    );
}

#[test]
fn verdicts_of_pods_that_are_gone_are_forgotten() {
    let mut harness = Harness::running();
    harness.verdict(verdict("a", ProbeKind::Startup, ProbeResult::Success));
    harness.housekeeping(&[worker("a", WorkerPhase::Syncing)], &[]);
    assert_eq!(harness.sync_loop.verdicts.all().len(), 1);
    harness.housekeeping(&[], &[]);
    assert_eq!(harness.sync_loop.verdicts.all().len(), 0);
}

#[test]
fn each_pod_is_synced_again_within_one_and_a_half_times_the_sync_frequency() {
    let mut harness = Harness::running();
    for index in 0..20 {
        harness.add_running(&plain(&format!("u{index}")));
    }
    harness.wait(Duration::from_millis(59_999));
    assert_eq!(sent(&harness.handle(Event::SyncTick)), [""; 0]);
    let mut synced = 0;
    for _ in 0..31 {
        let actions = harness.handle(Event::SyncTick);
        assert!(sent(&actions).len() < 20, "not all at once");
        synced += sent(&actions).len();
        harness.wait(Duration::from_secs(1));
    }
    assert_eq!(synced, 20);
}

#[test]
fn whatever_is_sent_puts_the_resync_off() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.wait(Duration::from_secs(55));
    harness.lifecycle("a", Kind::ContainerStarted);
    harness.wait(Duration::from_secs(55));
    assert_eq!(sent(&harness.handle(Event::SyncTick)), [""; 0]);
}

#[test]
fn a_finished_pod_is_not_resynced() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.housekeeping(&[worker("a", WorkerPhase::Finished)], &[]);
    harness.wait(Duration::from_secs(100));
    assert_eq!(sent(&harness.handle(Event::SyncTick)), [""; 0]);
    assert_eq!(harness.sync_loop.summary().work_queue_length, 1);
}

#[test]
fn a_pod_that_ends_to_begin_anew_is_not_synced() {
    for begins_anew in [false, true] {
        let mut harness = Harness::running();
        harness.add_running(&plain("a"));
        let ending = v1::WorkerState {
            restart_requested: begins_anew,
            ..worker("a", WorkerPhase::Terminating)
        };
        harness.housekeeping(&[ending], &[]);
        let expected = if begins_anew { vec![] } else { vec!["SYNC a"] };
        let actions = harness.lifecycle("a", Kind::ContainerDied);
        assert_eq!(sent(&actions), expected);
        harness.wait(Duration::from_secs(91));
        let actions = harness.handle(Event::SyncTick);
        assert_eq!(sent(&actions), expected);
    }
}

#[test]
fn pods_that_may_not_run_are_not_synced() {
    let mut harness = Harness::running();
    harness.deliver(&needs_cpu("a", 9000));
    assert_eq!(
        sent(&harness.lifecycle("a", Kind::ContainerStarted)),
        [""; 0]
    );
    let mut noted = needs_cpu("a", 9000);
    noted["metadata"]["annotations"] = json!({"note": "x"});
    assert_eq!(briefs(&harness.deliver(&noted)), ["reject a OutOfcpu"]);
}

#[test]
fn while_the_runtime_is_down_configuration_counts_and_syncs_wait() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.add_running(&plain("b"));
    harness.capacity_with_error(4000, "connection refused");
    assert_eq!(
        harness.sync_loop.summary().runtime_error,
        "connection refused"
    );
    assert_eq!(
        sent(&harness.lifecycle("a", Kind::ContainerStarted)),
        [""; 0]
    );
    assert!(
        harness
            .decision("a")
            .starts_with("waits for the container runtime: ContainerStarted")
    );
    assert_eq!(sent(&harness.remove(&plain("b"))), ["KILL b"]);
    assert_eq!(sent(&harness.capacity(4000)), ["SYNC a"]);
    assert_eq!(harness.sync_loop.summary().runtime_error, "");
    assert_eq!(sent(&harness.capacity(4000)), [""; 0]);
}

#[test]
fn a_refused_update_is_shown_and_tried_again_at_the_resync() {
    let mut harness = Harness::running();
    let actions = harness.deliver(&plain("a"));
    let update = &updates(&actions)[0];
    let refused = Event::WorkerRefused {
        uid: update.uid.clone(),
        sequence: update.sequence,
        reason: "host path not permitted".into(),
    };
    assert_eq!(briefs(&harness.handle(refused)), ["event FailedSync "]);
    assert_eq!(
        harness.decision("a"),
        "the worker pool refused it: host path not permitted"
    );
    assert_eq!(
        sent(&harness.housekeeping(&[], &[])),
        [""; 0],
        "not every two seconds"
    );
    harness.wait(Duration::from_secs(91));
    assert_eq!(sent(&harness.handle(Event::SyncTick)), ["CREATE a"]);
}

#[test]
fn an_outdated_update_is_sent_again_with_the_version_of_now() {
    let mut harness = Harness::running();
    let outdated = updates(&harness.deliver(&plain("a"))).remove(0);
    let again = harness.handle(Event::WorkerOutdated(outdated.clone()));
    assert_eq!(sent(&again), ["CREATE a"]);
    // A newer version takes its place.
    let mut newer = plain("a");
    newer["metadata"]["labels"] = json!({"a": "b"});
    let again = updates(&harness.deliver(&newer)).remove(0);
    let repeated = harness.handle(Event::WorkerOutdated(outdated));
    assert_eq!(sent(&repeated), [""; 0]);
    // What has gone meanwhile is not created again.
    assert_eq!(sent(&harness.remove(&newer)), ["KILL a"]);
    assert_eq!(sent(&harness.handle(Event::WorkerOutdated(again))), [""; 0]);
}

#[test]
fn pods_that_wait_for_the_runtime_are_asked_about_as_soon_as_it_is_back() {
    let mut harness = Harness::new();
    harness.configure(&["file"]);
    harness.snapshot(PodSource::File, true, &[plain("a")]);
    harness.capacity_with_error(4000, "connection refused");
    let actions = harness.capacity(4000);
    assert!(briefs(&actions).contains(&"known-pods".to_owned()));
    assert_eq!(sent(&harness.answer(&[], &[])), ["CREATE a"]);
}

#[test]
fn a_list_that_fails_is_not_a_runtime_that_is_down() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.tick_housekeeping();
    let response = v1::SyncKnownPodsResponse {
        boot_id: harness.boot_id.clone(),
        workers: vec![worker("a", WorkerPhase::Syncing)],
        runtime_error: "message too large".into(),
        ..v1::SyncKnownPodsResponse::default()
    };
    let question = harness.last_question;
    let actions = harness.handle(Event::KnownPods { question, response });
    assert_eq!(briefs(&actions), ["check-runtime"]);
    assert_eq!(
        sent(&harness.lifecycle("a", Kind::ContainerStarted)),
        ["SYNC a"]
    );
    // What ran when it was last listed is known still.
    assert_eq!(sent(&harness.deliver(&plain("b"))), ["CREATE b"]);
}
