//! Messages of config-sourcer: snapshots, changes, readiness, bad pods, problems.

use super::*;

#[test]
fn a_snapshot_is_compared_with_what_is_known() {
    let mut harness = Harness::running();
    harness.add_running(&plain("same"));
    harness.add_running(&plain("changed"));
    harness.add_running(&plain("gone"));
    let changed = manifest("changed", "changed", json!({"hostNetwork": true}));
    harness.configure(&["file"]);
    let actions = harness.snapshot(
        PodSource::File,
        true,
        &[plain("new"), changed, plain("same")],
    );
    assert_eq!(
        sent(&actions),
        ["KILL gone", "CREATE new", "UPDATE changed"]
    );
}

#[test]
fn a_message_that_says_nothing_new_changes_nothing() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    assert_eq!(briefs(&harness.deliver(&plain("a"))), [""; 0]);
    let mut seen = plain("a");
    for time in ["2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"] {
        seen["metadata"]["annotations"] = json!({"kubernetes.io/config.seen": time});
        assert_eq!(briefs(&harness.deliver(&seen)), [""; 0]);
    }
    // Whatever is sent next is the newest version: its hash is the one that
    // config-sourcer knows.
    let actions = harness.lifecycle("a", v1::PodLifecycleEventType::PodSync);
    let UpdatedPod::Desired(document) = &updates(&actions)[0].pod else {
        panic!("no pod")
    };
    assert_eq!(document.hash(), message(&seen, PodSource::File).hash);
}

#[test]
fn what_is_known_decides_which_operation_a_message_is() {
    let mut harness = Harness::running();
    assert_eq!(sent(&harness.deliver(&plain("a"))), ["CREATE a"]);
    let changed = manifest("a", "a", json!({"hostNetwork": true}));
    assert_eq!(sent(&harness.deliver(&changed)), ["UPDATE a"]);
    assert_eq!(sent(&harness.remove(&changed)), ["KILL a"]);
    assert_eq!(sent(&harness.remove(&changed)), [""; 0]);
}

#[test]
fn a_snapshot_that_was_cut_off_counts_for_nothing() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    let begin = v1::SourceSnapshotBegin {
        source: "file".into(),
        ready: true,
    };
    harness.handle(Event::Configuration(Message::SnapshotBegin(begin)));
    harness.handle(Event::ConfigurationStreamBegan);
    let end = v1::SourceSnapshotEnd {
        source: "file".into(),
    };
    assert_eq!(
        briefs(&harness.handle(Event::Configuration(Message::SnapshotEnd(end)))),
        [""; 0]
    );
}

#[test]
fn a_pod_that_cannot_be_read_keeps_its_last_version() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    let name = "file".to_owned();
    let mut broken = message(&plain("a"), PodSource::File);
    broken.json = b"{".to_vec();
    let begin = v1::SourceSnapshotBegin {
        source: name.clone(),
        ready: true,
    };
    harness.handle(Event::Configuration(Message::SnapshotBegin(begin)));
    let pod = v1::SourcePod {
        source: name.clone(),
        pod: Some(broken.clone()),
    };
    let actions = harness.handle(Event::Configuration(Message::Pod(pod)));
    assert_eq!(briefs(&actions), ["event FailedManifest file"]);
    let end = v1::SourceSnapshotEnd {
        source: name.clone(),
    };
    assert_eq!(
        sent(&harness.handle(Event::Configuration(Message::SnapshotEnd(end)))),
        [""; 0]
    );
    // The same as a change, and with a header of another pod.
    for pod in [
        broken,
        v1::Pod {
            reference: Some(reference("b")),
            ..message(&plain("a"), PodSource::File)
        },
    ] {
        let pod = v1::SourcePod {
            source: name.clone(),
            pod: Some(pod),
        };
        let actions = harness.handle(Event::Configuration(Message::Pod(pod)));
        assert_eq!(briefs(&actions), ["event FailedManifest file"]);
    }
}

#[test]
fn changes_count_when_all_of_them_are_there() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    harness.add_running(&plain("b"));
    let begin = || {
        let source = "file".to_owned();
        Event::Configuration(Message::ChangesBegin(v1::SourceChangesBegin { source }))
    };
    harness.handle(begin());
    assert_eq!(briefs(&harness.remove(&plain("a"))), [""; 0]);
    // The stream breaks.
    harness.configure(&["file"]);
    let end = v1::SourceSnapshotEnd {
        source: "file".to_owned(),
    };
    let end = Event::Configuration(Message::SnapshotEnd(end));
    assert_eq!(briefs(&harness.handle(end)), [""; 0]);
    harness.snapshot(PodSource::File, true, &[plain("a"), plain("b")]);
    let actions = harness.change(&[plain("a"), plain("unknown")], &[plain("c")]);
    assert_eq!(sent(&actions), ["KILL a", "CREATE c"], "and b stays");
    // Gone and back is as it was.
    let actions = harness.change(&[plain("b")], &[plain("b")]);
    assert_eq!(sent(&actions), [""; 0]);
}

#[test]
fn the_first_source_of_a_pod_counts() {
    let mut harness = Harness::running();
    harness.configure(&["file", "http"]);
    harness.snapshot(PodSource::File, true, &[plain("a")]);
    let changed = manifest("a", "a", json!({"hostNetwork": true}));
    assert_eq!(
        sent(&harness.deliver_in(PodSource::Http, &changed)),
        [""; 0]
    );
}

#[test]
fn pods_of_a_source_that_is_not_configured_are_refused() {
    let mut harness = Harness::running();
    let actions = harness.deliver_in(PodSource::Http, &plain("a"));
    assert_eq!(briefs(&actions), [""; 0]);
}

#[test]
fn problems_become_events_once() {
    let mut harness = Harness::running();
    let problems = |reasons: &[&str]| {
        let problems = reasons.iter().map(|reason| v1::SourceProblem {
            subject: "/manifests/web.yaml".into(),
            field: "spec.containers[0].image".into(),
            reason: (*reason).into(),
        });
        let problems = v1::SourceProblems {
            source: "file".into(),
            problems: problems.collect(),
        };
        Event::Configuration(Message::Problems(problems))
    };
    let actions = harness.handle(problems(&["is missing"]));
    assert_eq!(
        briefs(&actions),
        ["event FailedManifest /manifests/web.yaml"]
    );
    let Action::ReportEvent(event) = &actions[0] else {
        panic!("no event")
    };
    assert_eq!(event.message, "spec.containers[0].image: is missing");
    assert_eq!(event.pod, None);
    assert_eq!(briefs(&harness.handle(problems(&["is missing"]))), [""; 0]);
    assert_eq!(
        briefs(&harness.handle(problems(&["is missing", "is empty"]))).len(),
        1
    );
    assert_eq!(harness.sync_loop.summary().sources[0].problems.len(), 2);
    harness.handle(problems(&[]));
    assert_eq!(harness.sync_loop.summary().sources[0].problems.len(), 0);
}

#[test]
fn a_status_syncs_a_pod_only_where_it_says_that_what_runs_has_ended() {
    let mut harness = Harness::running();
    let gates = json!({"readinessGates": [{"conditionType": "x"}]});
    let mut pod = manifest("a", "a", gates);
    harness.add_running(&pod);
    pod["status"] = json!({"phase": "Running", "conditions": [{"type": "x", "status": "True"}]});
    assert_eq!(briefs(&harness.deliver(&pod)), [""; 0]);
    pod["metadata"]["resourceVersion"] = json!("8");
    pod["metadata"]["finalizers"] = json!(["x/y"]);
    pod["metadata"]["managedFields"] = json!([{"manager": "m"}]);
    assert_eq!(briefs(&harness.deliver(&pod)), [""; 0]);
    pod["status"] = json!({"phase": "Failed", "reason": "Evicted"});
    let actions = harness.deliver(&pod);
    assert_eq!(briefs(&actions), ["UPDATE a", "clean-up a"]);
    // What has ended here is what the source was told.
    harness.acknowledge(&actions, WorkerPhase::Terminated);
    pod["status"] = json!({"phase": "Failed", "reason": "Evicted", "message": "more"});
    assert_eq!(sent(&harness.deliver(&pod)), [""; 0]);
}

#[test]
fn a_deletion_and_its_shorter_grace_are_told_at_once() {
    let mut harness = Harness::running();
    let mut pod = plain("a");
    harness.add_running(&pod);
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    assert_eq!(sent(&harness.deliver(&pod)), ["UPDATE a"]);
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:05Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(5);
    assert_eq!(sent(&harness.deliver(&pod)), ["UPDATE a"]);
}

#[test]
fn all_pods_together_are_bounded_and_a_smaller_version_always_fits() {
    let mut harness = Harness::running();
    let large = |uid: &str, kilobytes: usize| {
        let mut pod = plain(uid);
        pod["metadata"]["annotations"] = json!({"a": "x".repeat(kilobytes << 10)});
        pod
    };
    let accepted = (0..60)
        .map(|index| harness.deliver(&large(&format!("u{index}"), 1000)))
        .filter(|actions| !sent(actions).is_empty());
    assert_eq!(accepted.count(), 24);
    let actions = harness.deliver(&large("last", 1000));
    assert_eq!(briefs(&actions), ["event FailedManifest "]);
    assert_eq!(sent(&harness.deliver(&large("u0", 1))), ["UPDATE u0"]);
    assert_eq!(sent(&harness.deliver(&large("last", 900))), ["CREATE last"]);
    // What is being stopped still counts.
    harness.remove(&large("u1", 1000));
    assert_eq!(sent(&harness.deliver(&large("another", 900))), [""; 0]);
}

#[test]
fn a_mirror_pod_is_paired_with_its_static_pod_and_never_run() {
    let mut harness = Harness::running();
    harness.configure(&["api", "file"]);
    harness.snapshot(PodSource::File, true, &[manifest("s", "web", json!({}))]);
    let mut mirror = manifest("m", "web", json!({}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    let pods = [mirror, plain("a")];
    let mirror_uid = |harness: &Harness, uid| harness.sync_loop.describe(uid).unwrap().mirror_uid;

    let actions = harness.snapshot(PodSource::Api, true, &pods);
    assert_eq!(sent(&actions), ["CREATE a"]);
    assert_eq!(harness.sync_loop.desired_pods(None).len(), 2);
    assert_eq!(mirror_uid(&harness, "s"), "m");
    assert_eq!(mirror_uid(&harness, "a"), "");

    let actions = harness.snapshot(PodSource::Api, true, &pods[1..]);
    assert_eq!(sent(&actions), [""; 0]);
    assert_eq!(mirror_uid(&harness, "s"), "");
}
