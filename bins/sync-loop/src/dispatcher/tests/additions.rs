//! Pods that arrive: admission, adoption, order, and what survives a restart.

use super::*;
use crate::dispatcher::admission::{Awaited, Rejection};

fn rejection(reason: &str) -> AdmissionState {
    AdmissionState::Rejected(Rejection {
        reason: reason.into(),
        message: "m".into(),
    })
}

#[test]
fn a_new_pod_is_created_at_once() {
    let mut harness = Harness::running();
    let actions = harness.deliver(&plain("a"));
    assert_eq!(briefs(&actions), ["CREATE a", "save 1"]);
    assert_eq!(harness.admission("a"), AdmissionState::Admitted);
    assert_eq!(
        harness.decision("a"),
        "sent CREATE to its worker: added by source file"
    );
}

#[test]
fn nothing_is_admitted_before_the_pool_has_said_what_runs() {
    let mut harness = Harness::new();
    harness.configure(&["file"]);
    harness.capacity(4000);
    let actions = harness.snapshot(PodSource::File, true, &[plain("a")]);
    assert_eq!(sent(&actions), [""; 0]);
    assert_eq!(
        harness.admission("a"),
        AdmissionState::Pending(Awaited::WorkerPool)
    );
    assert!(
        harness
            .decision("a")
            .starts_with("waits until the worker pool")
    );
    assert_eq!(sent(&harness.housekeeping(&[], &[])), ["CREATE a"]);
}

#[test]
fn a_pod_waits_for_the_runtime_and_for_the_capacity() {
    let mut harness = Harness::new();
    harness.configure(&["file"]);
    harness.snapshot(PodSource::File, true, &[plain("a")]);
    harness.tick_housekeeping();
    let question = harness.last_question;
    let response = v1::SyncKnownPodsResponse {
        boot_id: harness.boot_id.clone(),
        runtime_error: "no socket".into(),
        ..v1::SyncKnownPodsResponse::default()
    };
    let actions = harness.handle(Event::KnownPods { question, response });
    assert_eq!(briefs(&actions), ["check-runtime"]);
    assert_eq!(
        harness.admission("a"),
        AdmissionState::Pending(Awaited::Runtime)
    );
    assert_eq!(sent(&harness.housekeeping(&[], &[])), [""; 0]);
    assert_eq!(
        harness.admission("a"),
        AdmissionState::Pending(Awaited::Capacity)
    );
    assert_eq!(sent(&harness.capacity(1000)), ["CREATE a"]);
}

#[test]
fn a_pod_that_runs_is_adopted_whatever_the_node_has_room_for() {
    for (workers, runtime) in [
        (vec![worker("a", WorkerPhase::Syncing)], vec![]),
        (vec![], vec![runtime_pod("a", "file", true)]),
    ] {
        let mut harness = Harness::new();
        harness.configure(&["file"]);
        harness.capacity(1);
        harness.snapshot(PodSource::File, true, &[needs_cpu("a", 3000)]);
        let actions = harness.housekeeping(&workers, &runtime);
        assert_eq!(sent(&actions), ["CREATE a"]);
        assert_eq!(harness.admission("a"), AdmissionState::Adopted);
    }
}

#[test]
fn the_leftovers_of_a_pod_do_not_make_it_adopted() {
    let mut harness = Harness::new();
    harness.configure(&["file"]);
    harness.capacity(1);
    harness.snapshot(PodSource::File, true, &[needs_cpu("a", 3000)]);
    let actions = harness.housekeeping(&[], &[runtime_pod("a", "file", false)]);
    assert_eq!(
        briefs(&actions),
        [
            "reject a OutOfcpu",
            "event OutOfcpu ",
            "statuses a",
            "save 1"
        ]
    );
}

#[test]
fn older_pods_find_room_first() {
    let mut harness = Harness::running();
    let dated = |uid: &str, date: &str| {
        let mut pod = needs_cpu(uid, 3000);
        pod["metadata"]["creationTimestamp"] = json!(date);
        pod
    };
    let pods = [
        dated("a", "2024-01-03T00:00:00Z"),
        dated("b", "2024-01-01T00:00:00Z"),
        dated("c", "2024-01-02T00:00:00Z"),
    ];
    let actions = harness.snapshot(PodSource::File, true, &pods);
    assert_eq!(
        briefs(&actions),
        [
            "CREATE b",
            "reject c OutOfcpu",
            "event OutOfcpu ",
            "reject a OutOfcpu",
            "event OutOfcpu ",
            "save 3"
        ]
    );
}

#[test]
fn a_rejected_pod_stays_rejected_over_a_restart() {
    let mut harness = Harness::running();
    harness.add_running(&needs_cpu("a", 3000));
    harness.deliver(&needs_cpu("b", 3000));
    assert!(matches!(
        harness.admission("b"),
        AdmissionState::Rejected(_)
    ));
    // With the first pod gone there would be room.
    let mut next = Harness::with_records(harness.records.clone());
    next.configure(&["file"]);
    next.capacity(4000);
    next.snapshot(PodSource::File, true, &[needs_cpu("b", 3000)]);
    let actions = next.housekeeping(&[], &[]);
    assert_eq!(briefs(&actions), ["reject b OutOfcpu", "statuses b"]);
}

#[test]
fn a_rejected_pod_is_judged_again_when_its_manifest_changes() {
    let labelled = |mut pod: Value| {
        pod["metadata"]["labels"] = json!({"a": "b"});
        pod
    };
    let mut harness = Harness::running();
    harness.deliver(&needs_cpu("a", 9000));
    let records = harness.records.clone();
    // An annotation asks for nothing else.
    let mut noted = needs_cpu("a", 9000);
    noted["metadata"]["annotations"] = json!({"note": "x"});
    assert_eq!(briefs(&harness.deliver(&noted)), ["reject a OutOfcpu"]);
    // Rejected again, which is told anew, or not.
    let again = ["reject a OutOfcpu", "event OutOfcpu ", "save 1"];
    assert_eq!(briefs(&harness.deliver(&needs_cpu("a", 8000))), again);
    let actions = harness.deliver(&labelled(needs_cpu("a", 8000)));
    assert_eq!(briefs(&actions), again);
    let actions = harness.deliver(&needs_cpu("a", 3000));
    assert_eq!(briefs(&actions), ["CREATE a", "save 1"]);
    assert_eq!(harness.admission("a"), AdmissionState::Admitted);
    // Its next version is an update as of any pod.
    let actions = harness.deliver(&labelled(needs_cpu("a", 3000)));
    assert_eq!(sent(&actions), ["UPDATE a"]);
    // The same where it changed while this process was away.
    for (pod, expected) in [
        (needs_cpu("a", 9000), "reject a OutOfcpu"),
        (needs_cpu("a", 3000), "CREATE a"),
    ] {
        let mut next = Harness::with_records(records.clone());
        next.configure(&["file"]);
        next.capacity(4000);
        next.snapshot(PodSource::File, true, &[pod]);
        let actions = next.housekeeping(&[], &[]);
        assert_eq!(briefs(&actions)[0], expected);
    }
}

#[test]
fn a_rejected_pod_that_is_to_be_deleted_gets_no_worker() {
    let mut harness = Harness::running();
    harness.deliver(&needs_cpu("a", 9000));
    let mut deleted = needs_cpu("a", 3000);
    deleted["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    let actions = harness.deliver(&deleted);
    assert_eq!(briefs(&actions), ["reject a OutOfcpu"]);
}

#[test]
fn a_pod_that_was_admitted_is_not_checked_again() {
    let mut records = AdmissionRecords::default();
    records.set("a", admitted(&needs_cpu("a", 3000)));
    let mut harness = Harness::with_records(records);
    harness.configure(&["file"]);
    harness.capacity(1);
    harness.snapshot(PodSource::File, true, &[needs_cpu("a", 3000)]);
    assert_eq!(sent(&harness.housekeeping(&[], &[])), ["CREATE a"]);
}

#[test]
fn a_record_ends_with_its_pod() {
    let mut harness = Harness::running();
    harness.deliver(&needs_cpu("a", 9000));
    assert_eq!(
        harness.admission("a"),
        AdmissionState::Rejected(Rejection {
            reason: "OutOfcpu".into(),
            message:
                "Node didn't have enough resource: cpu, requested: 9000, used: 0, capacity: 4000"
                    .into(),
        })
    );
    let actions = harness.remove(&needs_cpu("a", 9000));
    assert_eq!(
        briefs(&actions),
        ["save 0"],
        "a rejected pod has no worker to stop"
    );
    harness.capacity(16_000);
    assert_eq!(sent(&harness.deliver(&needs_cpu("a", 9000))), ["CREATE a"]);
}

#[test]
fn nobody_is_rejected_because_of_a_pod_that_may_have_ended() {
    let mut records = AdmissionRecords::default();
    records.set("job", admitted(&needs_cpu("job", 3000)));
    let start = |records: &AdmissionRecords| {
        let mut harness = Harness::with_records(records.clone());
        harness.configure(&["file"]);
        harness.capacity(4000);
        harness.snapshot(
            PodSource::File,
            true,
            &[needs_cpu("job", 3000), needs_cpu("new", 3000)],
        );
        let actions = harness.housekeeping(&[], &[]);
        assert_eq!(sent(&actions), ["CREATE job"]);
        assert_eq!(
            harness.admission("new"),
            AdmissionState::Pending(Awaited::OtherPods)
        );
        harness.acknowledge(&actions, WorkerPhase::Syncing);
        harness
    };
    // The job had ended: its worker says so.
    let mut harness = start(&records);
    let actions = harness.housekeeping(&[worker("job", WorkerPhase::Finished)], &[]);
    assert_eq!(sent(&actions), ["CREATE new"]);
    // The job runs.
    let mut harness = start(&records);
    let running = [runtime_pod("job", "file", true)];
    let actions = harness.housekeeping(&[worker("job", WorkerPhase::Syncing)], &running);
    assert_eq!(briefs(&actions)[0], "reject new OutOfcpu");
    // Nobody says anything for long.
    let mut harness = start(&records);
    harness.wait(Duration::from_secs(31));
    let actions = harness.housekeeping(&[worker("job", WorkerPhase::Syncing)], &[]);
    assert_eq!(briefs(&actions)[0], "reject new OutOfcpu");
}

#[test]
fn terminated_pods_give_their_resources_back() {
    for (phase, created) in [
        (WorkerPhase::Syncing, false),
        (WorkerPhase::Terminating, false),
        (WorkerPhase::Terminated, true),
        (WorkerPhase::Finished, true),
    ] {
        let mut harness = Harness::running();
        harness.add_running(&needs_cpu("a", 3000));
        harness.housekeeping(&[worker("a", phase)], &[]);
        let actions = harness.deliver(&needs_cpu("b", 3000));
        assert_eq!(sent(&actions) == ["CREATE b"], created, "{phase:?}");
    }
}

#[test]
fn removed_pods_do_not_take_part_in_admission() {
    let mut harness = Harness::running();
    harness.add_running(&needs_cpu("a", 3000));
    let actions = harness.snapshot(PodSource::File, true, &[needs_cpu("b", 3000)]);
    assert_eq!(sent(&actions), ["KILL a", "CREATE b"]);
}

#[test]
fn a_replaced_static_pod_is_killed_and_its_successor_sent_at_once() {
    let mut harness = Harness::running();
    harness.add_running(&manifest("one", "web", json!({})));
    let actions = harness.snapshot(PodSource::File, true, &[manifest("two", "web", json!({}))]);
    assert_eq!(sent(&actions), ["KILL one", "CREATE two"]);
    // The same, message by message and in the other order.
    let mut harness = Harness::running();
    harness.add_running(&manifest("one", "web", json!({})));
    assert_eq!(
        sent(&harness.deliver(&manifest("two", "web", json!({})))),
        ["CREATE two"]
    );
    let actions = harness.remove(&manifest("one", "web", json!({})));
    assert_eq!(sent(&actions), ["KILL one"]);
}

#[test]
fn a_pod_that_is_to_be_deleted_or_has_ended_is_not_checked() {
    let mut deleted = needs_cpu("a", 9000);
    deleted["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    let mut ended = needs_cpu("b", 9000);
    ended["status"] = json!({"phase": "Succeeded"});
    let mut harness = Harness::running();
    assert_eq!(sent(&harness.deliver(&deleted)), ["CREATE a"]);
    assert_eq!(sent(&harness.deliver(&ended)), ["UPDATE b"]);
}

#[test]
fn the_labels_that_the_api_server_holds_of_the_node_decide_and_else_those_configured() {
    let mut harness = Harness::running();
    harness.configure(&["api", "file"]);
    let pod =
        |uid: &str, label: &str| manifest(uid, uid, json!({"nodeSelector": {label: "linux"}}));
    let told = |harness: &mut Harness, uid: &str, label: &str| {
        sent(&harness.deliver_in(PodSource::Api, &pod(uid, label))).len() == 1
    };
    let mut node = v1::ApiNode {
        exists: true,
        labels: [("of-api".to_owned(), "linux".to_owned())].into(),
        ..v1::ApiNode::default()
    };
    assert!(told(&mut harness, "a", "kubernetes.io/os"));
    assert_eq!(harness.node(node.clone()), [""; 0]);
    assert!(!told(&mut harness, "b", "kubernetes.io/os"));
    assert!(told(&mut harness, "c", "of-api"));
    // What was admitted stays.
    node.labels.clear();
    assert_eq!(harness.node(node), [""; 0]);
    assert!(!told(&mut harness, "d", "of-api"));
    assert_eq!(harness.node(v1::ApiNode::default()), [""; 0]);
    assert!(told(&mut harness, "e", "kubernetes.io/os"));
}

#[test]
fn nobody_is_rejected_because_of_a_pod_that_had_ended_before_the_pool_restarted() {
    let start = || {
        let mut harness = Harness::running();
        harness.add_running(&needs_cpu("job", 3000));
        harness.housekeeping(&[worker("job", WorkerPhase::Finished)], &[]);
        harness.boot_id = "pool-2".into();
        // It is heard of by an answer that has pods judged as well.
        let again = harness.capacity(4000);
        assert_eq!(sent(&again), ["CREATE job"]);
        harness.acknowledge(&again, WorkerPhase::Syncing);
        assert_eq!(sent(&harness.deliver(&needs_cpu("new", 3000))), [""; 0]);
        let waits = AdmissionState::Pending(Awaited::OtherPods);
        assert_eq!(harness.admission("new"), waits);
        assert!(!harness.sync_loop.is_settled(), "so it is asked for soon");
        harness
    };
    let actions = start().housekeeping(&[worker("job", WorkerPhase::Finished)], &[]);
    assert_eq!(sent(&actions), ["CREATE new"]);
    let mut harness = start();
    let running = [runtime_pod("job", "file", true)];
    let actions = harness.housekeeping(&[worker("job", WorkerPhase::Syncing)], &running);
    assert_eq!(briefs(&actions)[0], "reject new OutOfcpu");
}

#[test]
fn the_same_uid_made_anew_is_created_while_its_former_instance_stops() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.housekeeping(&[worker("a", WorkerPhase::Syncing)], &[]);
    let actions = harness.remove(&plain("a"));
    harness.acknowledge(&actions, WorkerPhase::Terminating);
    let actions = harness.deliver(&plain("a"));
    assert_eq!(sent(&actions), ["CREATE a"]);
    harness.acknowledge(&actions, WorkerPhase::Terminating);
    // The pool has noted it, and forgets the worker when that has finished.
    for phase in [WorkerPhase::Terminating, WorkerPhase::Finished] {
        let noted = [to_begin_anew("a", phase)];
        assert_eq!(sent(&harness.housekeeping(&noted, &[])), [""; 0]);
    }
    assert_eq!(sent(&harness.housekeeping(&[], &[])), ["CREATE a"]);
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    assert_eq!(
        sent(&harness.housekeeping(&[], &[])),
        ["CREATE a"],
        "no worker at all"
    );
}

/// Its source has taken the pod back, and has it again.
fn to_begin_anew(uid: &str, phase: WorkerPhase) -> v1::WorkerState {
    v1::WorkerState {
        restart_requested: true,
        ..worker(uid, phase)
    }
}

/// The source takes a pod back, which is being stopped, and has this one of its UID.
fn given_again(harness: &mut Harness, pod: &Value) {
    let actions = harness.remove(pod);
    harness.acknowledge(&actions, WorkerPhase::Terminating);
    let actions = harness.deliver(pod);
    harness.acknowledge(&actions, WorkerPhase::Terminating);
}

#[test]
fn a_pod_that_begins_anew_is_judged_anew() {
    for (millis, expected) in [(1000, "CREATE a"), (1001, "reject a OutOfcpu")] {
        let mut harness = Harness::running();
        harness.add_running(&needs_cpu("a", 1000));
        harness.add_running(&needs_cpu("b", 3000));
        given_again(&mut harness, &needs_cpu("a", millis));
        let b = worker("b", WorkerPhase::Syncing);
        let ending = [b.clone(), to_begin_anew("a", WorkerPhase::Terminating)];
        assert_eq!(sent(&harness.housekeeping(&ending, &[])), [""; 0]);
        // Its end came between the runtime's list and that of the workers.
        let actions = harness.housekeeping(&[b], &[runtime_pod("a", "file", true)]);
        assert_eq!(briefs(&actions)[0], expected, "{millis}");
        let started = usize::from(expected.starts_with("CREATE"));
        assert_eq!(sent(&actions).len(), started, "{millis}");
        // Once: what runs is not judged.
        if started == 1 {
            harness.acknowledge(&actions, WorkerPhase::Syncing);
            harness.capacity(1000);
            let all = ["a", "b"].map(|uid| worker(uid, WorkerPhase::Syncing));
            let actions = harness.housekeeping(&all, &[]);
            assert_eq!(briefs(&actions), ["statuses a,b"]);
        }
    }
}

#[test]
fn a_late_answer_has_no_pod_judged_anew() {
    let mut harness = Harness::running();
    harness.tick_housekeeping();
    let late = harness.last_question;
    harness.add_running(&needs_cpu("a", 3000));
    harness.capacity(1000);
    // The pool answered before it had the pod.
    assert_eq!(sent(&harness.answer_to(late, &[], &[])), [""; 0]);
    let workers = [worker("a", WorkerPhase::Syncing)];
    let actions = harness.housekeeping(&workers, &[]);
    assert_eq!(briefs(&actions), ["statuses a"]);
    assert_eq!(harness.admission("a"), AdmissionState::Admitted);
}

#[test]
fn nobody_is_rejected_because_of_a_pod_that_is_to_be_judged_itself() {
    let mut harness = Harness::running();
    harness.add_running(&needs_cpu("a", 3000));
    given_again(&mut harness, &needs_cpu("a", 9000));
    harness.housekeeping(&[to_begin_anew("a", WorkerPhase::Terminating)], &[]);
    assert_eq!(sent(&harness.deliver(&needs_cpu("b", 3000))), [""; 0]);
    let other_pods = AdmissionState::Pending(Awaited::OtherPods);
    assert_eq!(harness.admission("b"), other_pods);
    assert!(!harness.sync_loop.is_settled(), "so it is asked for soon");
    let actions = harness.housekeeping(&[], &[]);
    assert_eq!(sent(&actions), ["CREATE b"]);
    assert!(briefs(&actions).contains(&"reject a OutOfcpu".to_owned()));
}

#[test]
fn status_syncer_is_told_of_rejections_again_after_its_restart() {
    let mut harness = Harness::running();
    harness.deliver(&needs_cpu("a", 9000));
    let actions = harness.handle(Event::StatusSyncerRestarted);
    assert_eq!(
        briefs(&actions),
        ["reject a OutOfcpu", "collect-garbage", "known-pods"]
    );
    assert_ne!(
        harness.admission("a"),
        rejection("OutOfcpu"),
        "the message is the node's"
    );
}

#[test]
fn more_pods_than_a_node_takes_are_refused() {
    let mut harness = Harness::running();
    for index in 0..ipc::limits::MAX_PODS + 5 {
        harness.deliver(&plain(&format!("u{index}")));
    }
    assert_eq!(harness.sync_loop.pods.len(), ipc::limits::MAX_PODS);
}

#[test]
fn the_number_of_pods_is_limited_by_max_pods() {
    let mut harness = Harness::running();
    for index in 0..110 {
        assert_eq!(
            sent(&harness.deliver(&plain(&format!("u{index}")))).len(),
            1
        );
    }
    let actions = harness.deliver(&plain("last"));
    assert_eq!(briefs(&actions)[0], "reject last OutOfpods");
}
