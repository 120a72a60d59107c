//! Housekeeping: orphans, workers that nobody wants, a pool that restarted.

use super::*;

#[test]
fn the_tick_asks_and_never_waits() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.deliver(&needs_cpu("rejected", 9000));
    let actions = harness.tick_housekeeping();
    assert_eq!(briefs(&actions), ["collect-garbage", "known-pods"]);
    let Some(Action::SyncKnownPods {
        desired, delivered, ..
    }) = actions.last()
    else {
        panic!("no question");
    };
    assert_eq!(
        (desired.as_slice(), delivered.as_slice()),
        (["a".to_owned()].as_slice(), PodSource::ALL.as_slice())
    );
}

#[test]
fn only_where_all_is_as_desired_may_housekeeping_wait() {
    let settled = || {
        let mut harness = Harness::running();
        harness.add_running(&plain("a"));
        harness.deliver(&needs_cpu("rejected", 9000));
        harness.housekeeping(
            &[worker("a", WorkerPhase::Syncing)],
            &[runtime_pod("a", "file", true)],
        );
        assert!(harness.sync_loop.is_settled());
        harness
    };
    type Answer<'a> = (&'a str, &'a [(&'a str, WorkerPhase)], &'a [&'a str], bool);
    let answers: [Answer; 7] = [
        ("as it was", &[("a", WorkerPhase::Syncing)], &["a"], true),
        ("it has ended", &[("a", WorkerPhase::Finished)], &[], true),
        ("no worker", &[], &["a"], false),
        ("it waits", &[("a", WorkerPhase::Waiting)], &["a"], false),
        ("it ends", &[("a", WorkerPhase::Terminating)], &["a"], false),
        (
            "another worker",
            &[("a", WorkerPhase::Syncing), ("b", WorkerPhase::Terminating)],
            &["a"],
            false,
        ),
        (
            "another pod runs",
            &[("a", WorkerPhase::Syncing)],
            &["a", "b"],
            false,
        ),
    ];
    for (case, workers, runs, expected) in answers {
        let mut harness = settled();
        let workers: Vec<_> = workers
            .iter()
            .map(|(uid, phase)| worker(uid, *phase))
            .collect();
        let runs: Vec<_> = runs
            .iter()
            .map(|uid| runtime_pod(uid, "file", true))
            .collect();
        harness.housekeeping(&workers, &runs);
        assert_eq!(harness.sync_loop.is_settled(), expected, "{case}");
    }

    let mut added = settled();
    added.deliver(&plain("b"));
    assert!(!added.sync_loop.is_settled(), "a pod was added");
    let mut removed = settled();
    removed.remove(&plain("a"));
    assert!(!removed.sync_loop.is_settled(), "a pod was removed");
    let mut down = settled();
    down.capacity_with_error(4000, "no runtime");
    assert!(!down.sync_loop.is_settled(), "the runtime is away");
    let mut waiting = Harness::new();
    waiting.configure(&["file", "http"]);
    waiting.snapshot(PodSource::File, true, &[]);
    waiting.housekeeping(&[], &[]);
    assert!(
        !waiting.sync_loop.is_settled(),
        "a source has not delivered"
    );
    waiting.snapshot(PodSource::Http, true, &[]);
    assert!(waiting.sync_loop.is_settled(), "it has");
}

#[test]
fn what_only_the_pool_can_explain_is_asked_of_it_soon() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    let workers = [worker("a", WorkerPhase::Syncing)];
    let runs = [runtime_pod("a", "file", true)];
    harness.housekeeping(&workers, &runs);
    let health = |pool: &str| v1::PlegHealth {
        healthy: true,
        pool_boot_id: pool.to_owned(),
        ..v1::PlegHealth::default()
    };
    let known = harness.boot_id.clone();
    for pool in ["", &known] {
        harness.handle(Event::Lifecycle(LifecycleMessage::Health(health(pool))));
        assert!(harness.sync_loop.is_settled(), "pool {pool}");
    }
    harness.handle(Event::Lifecycle(LifecycleMessage::Health(health(
        "another",
    ))));
    assert!(!harness.sync_loop.is_settled(), "the pool was restarted");
    harness.housekeeping(&workers, &runs);
    assert!(harness.sync_loop.is_settled(), "it has answered");
    harness.lifecycle("a", v1::PodLifecycleEventType::ContainerDied);
    assert!(harness.sync_loop.is_settled(), "an event of a known pod");
    harness.lifecycle("b", v1::PodLifecycleEventType::ContainerStarted);
    assert!(
        !harness.sync_loop.is_settled(),
        "one of a pod that nobody knows"
    );
}

#[test]
fn garbage_is_collected_once_a_minute() {
    let mut harness = Harness::running();
    let collections = |harness: &mut Harness| {
        let actions = harness.tick_housekeeping();
        actions
            .iter()
            .filter(|action| matches!(action, Action::CollectGarbage { .. }))
            .count()
    };
    assert_eq!(collections(&mut harness), 1);
    let mut count = 0;
    for _ in 0..60 {
        harness.wait(Duration::from_secs(2));
        count += collections(&mut harness);
    }
    assert_eq!(count, 2);
}

#[test]
fn until_a_source_has_delivered_nothing_of_it_is_dropped() {
    let mut harness = Harness::new();
    harness.configure(&["file", "http"]);
    harness.snapshot(PodSource::File, true, &[]);
    harness.snapshot(PodSource::Http, false, &[]);
    let actions = harness.tick_housekeeping();
    assert_eq!(briefs(&actions), ["known-pods"]);
    let Some(Action::SyncKnownPods { delivered, .. }) = actions.last() else {
        panic!("no question");
    };
    // Neither of the other, nor of a source that nobody knows.
    assert_eq!(delivered, &[PodSource::File]);
}

#[test]
fn orphans_are_killed_once_their_own_source_has_delivered() {
    for (source, delivered, killed) in [
        ("file", &[][..], false),
        ("file", &[PodSource::Http], false),
        ("file", &[PodSource::File], true),
        ("http", &[PodSource::File], false),
        ("api", &[PodSource::File], false),
        ("", &[PodSource::File], false),
        ("api", &[PodSource::File, PodSource::Http], true),
        ("", &[PodSource::File, PodSource::Http], true),
    ] {
        let mut harness = Harness::new();
        harness.configure(&["file", "http"]);
        harness.capacity(1000);
        for source in delivered {
            harness.snapshot(*source, true, &[]);
        }
        let actions = harness.housekeeping(&[], &[runtime_pod("o", source, true)]);
        assert_eq!(
            sent(&actions) == ["KILL o"],
            killed,
            "{source:?} {delivered:?}"
        );
        let both = [worker("o", WorkerPhase::Syncing)];
        let mut harness = Harness::new();
        harness.configure(&["file", "http"]);
        for source in delivered {
            harness.snapshot(*source, true, &[]);
        }
        let actions = harness.housekeeping(&both, &[runtime_pod("o", source, true)]);
        assert_eq!(
            sent(&actions) == ["KILL o"],
            killed,
            "worker {source:?} {delivered:?}"
        );
    }
}

#[test]
fn an_orphan_keeps_its_status_until_it_has_ended() {
    let known = |actions: &[Action]| {
        actions.iter().find_map(|action| match action {
            Action::RemoveOrphanedStatuses { known, .. } => Some(known.clone()),
            _ => None,
        })
    };
    let mut harness = Harness::new();
    harness.configure(&["file"]);
    harness.snapshot(PodSource::File, true, &[]);
    let first = harness.tick_housekeeping();
    assert_eq!(known(&first), None, "what runs is not known yet");
    let pods = [
        runtime_pod("o", "file", true),
        runtime_pod("ended", "file", false),
    ];
    let kept = known(&harness.answer(&[], &pods));
    assert_eq!(kept, Some(vec!["o".to_owned()]));
    // As soon as it is known to have ended: the next tick may be long after this one.
    let kept = known(&harness.housekeeping(&[], &pods[1..]));
    assert_eq!(kept, Some(vec![]));
    // It ended, but the pool has not looked at it yet: it still has a worker for it.
    for (phase, uids) in [
        (WorkerPhase::Syncing, vec!["ended".to_owned()]),
        (WorkerPhase::Terminating, vec!["ended".to_owned()]),
        (WorkerPhase::Terminated, vec!["ended".to_owned()]),
        (WorkerPhase::Finished, vec![]),
    ] {
        let workers = [worker("ended", phase)];
        let kept = known(&harness.housekeeping(&workers, &pods[1..]));
        assert_eq!(kept, Some(uids), "{phase:?}");
    }
    // It started and was dropped while the pool was asked.
    harness.capacity(1000);
    harness.tick_housekeeping();
    let added = harness.deliver(&plain("late"));
    harness.acknowledge(&added, WorkerPhase::Syncing);
    harness.remove(&plain("late"));
    let kept = known(&harness.answer(&[], &[]));
    assert_eq!(kept, Some(vec!["late".to_owned()]));
}

#[test]
fn an_orphan_is_killed_by_reference_with_the_time_when_it_was_found() {
    let mut harness = Harness::running();
    let orphan = [runtime_pod("o", "file", true)];
    let actions = harness.housekeeping(&[], &orphan);
    let (first, pod) = kill(&actions);
    assert!(matches!(pod, UpdatedPod::RuntimeOnly(_)));
    assert_eq!(first, harness.now.wall);
    // On its way: not again.
    assert_eq!(sent(&harness.housekeeping(&[], &orphan)), [""; 0]);
    harness.acknowledge(&actions, WorkerPhase::Terminating);
    harness.wait(Duration::from_secs(4));
    let again = harness.housekeeping(&[], &orphan);
    assert_eq!(kill(&again).0, first, "it still runs and has no worker");
    harness.acknowledge(&again, WorkerPhase::Terminating);
    let terminating = [worker("o", WorkerPhase::Terminating)];
    assert_eq!(sent(&harness.housekeeping(&terminating, &orphan)), [""; 0]);
    // Gone, and back much later: a new termination.
    harness.housekeeping(&[], &[]);
    harness.wait(Duration::from_secs(60));
    let actions = harness.housekeeping(&[], &orphan);
    assert_eq!(kill(&actions).0, harness.now.wall);
}

#[test]
fn leftovers_of_the_runtime_are_not_killed() {
    let mut harness = Harness::running();
    assert_eq!(
        sent(&harness.housekeeping(&[], &[runtime_pod("o", "file", false)])),
        [""; 0]
    );
}

#[test]
fn workers_that_nobody_wants_are_killed_unless_they_are_stopping() {
    for (phase, killed) in [
        (WorkerPhase::Waiting, true),
        (WorkerPhase::Syncing, true),
        (WorkerPhase::Terminating, false),
        (WorkerPhase::Terminated, false),
        (WorkerPhase::Finished, false),
    ] {
        let mut harness = Harness::running();
        let actions = harness.housekeeping(&[worker("o", phase)], &[]);
        assert_eq!(sent(&actions) == ["KILL o"], killed, "{phase:?}");
    }
}

#[test]
fn pods_that_wait_for_admission_are_not_orphans() {
    let mut harness = Harness::new();
    harness.configure(&["file"]);
    harness.snapshot(PodSource::File, true, &[plain("a")]);
    let actions = harness.tick_housekeeping();
    let Some(Action::SyncKnownPods { desired, .. }) = actions.last() else {
        panic!("no question")
    };
    assert_eq!(desired, &["a"]);
    let running = [runtime_pod("a", "file", true)];
    assert_eq!(sent(&harness.answer(&[], &running)), ["CREATE a"]);
}

#[test]
fn an_orphan_that_becomes_desired_is_created_and_not_killed() {
    let mut harness = Harness::running();
    let orphan = [runtime_pod("a", "file", true)];
    let actions = harness.housekeeping(&[], &orphan);
    assert_eq!(sent(&actions), ["KILL a"]);
    harness.acknowledge(&actions, WorkerPhase::Terminating);
    let actions = harness.deliver(&plain("a"));
    assert_eq!(sent(&actions), ["CREATE a"]);
    assert_eq!(harness.admission("a"), AdmissionState::Adopted);
}

#[test]
fn a_pool_that_restarted_is_told_everything_whoever_notices() {
    let fresh = || {
        let mut harness = Harness::running();
        harness.add_running(&plain("a"));
        harness.add_running(&plain("b"));
        harness.deliver(&needs_cpu("rejected", 9000));
        harness.boot_id = "pool-2".into();
        harness
    };
    let all = ["CREATE a", "CREATE b"];
    assert_eq!(sent(&fresh().capacity(4000)), all);
    assert_eq!(sent(&fresh().housekeeping(&[], &[])), all);
    let mut harness = fresh();
    let actions = harness.lifecycle("a", v1::PodLifecycleEventType::PodSync);
    assert_eq!(
        sent(&harness.acknowledge(&actions, WorkerPhase::Syncing)),
        all
    );
    assert_eq!(sent(&harness.capacity(4000)), [""; 0], "once is enough");
}

#[test]
fn a_worker_is_missed_only_by_an_answer_that_could_have_known_it() {
    let mut harness = Harness::running();
    harness.tick_housekeeping();
    let actions = harness.deliver(&plain("a"));
    // Asked before the pool had the pod, answered after.
    harness.acknowledge(&actions, WorkerPhase::Syncing);
    assert_eq!(sent(&harness.answer(&[], &[])), [""; 0]);
    assert_eq!(sent(&harness.housekeeping(&[], &[])), ["CREATE a"]);
}

#[test]
fn the_server_shows_worker_phase_and_decision() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.housekeeping(&[worker("a", WorkerPhase::Syncing)], &[]);
    let shown = harness.sync_loop.describe("a").unwrap();
    assert_eq!(shown.worker_phase, "syncing");
    assert_eq!(shown.admission(), v1::Admission::Admitted);
    assert_eq!(shown.last_decision_unix_nanos, START);
    assert!(harness.sync_loop.describe("b").is_none());
    assert_eq!(harness.sync_loop.desired_pods(Some("a")).len(), 1);
}
