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
        ["KILL gone", "UPDATE changed", "CREATE new"]
    );
}

#[test]
fn a_message_that_says_nothing_new_changes_nothing() {
    let mut harness = Harness::running();
    harness.add_running(&plain("a"));
    for operation in [
        PodOperation::Add,
        PodOperation::Update,
        PodOperation::Reconcile,
    ] {
        assert_eq!(briefs(&harness.change(operation, &plain("a"))), [""; 0]);
    }
    let mut seen = plain("a");
    seen["metadata"]["annotations"] = json!({"kubernetes.io/config.seen": "2024-01-01T00:00:00Z"});
    seen["metadata"]["annotations"]["kubernetes.io/config.hash"] = json!("x");
    let actions = harness.change(PodOperation::Update, &seen);
    // Annotations where there were none are a difference, their values are not.
    harness.acknowledge(&actions, WorkerPhase::Syncing);
    seen["metadata"]["annotations"]["kubernetes.io/config.seen"] = json!("2025-01-01T00:00:00Z");
    assert_eq!(
        briefs(&harness.change(PodOperation::Update, &seen)),
        [""; 0]
    );
}

#[test]
fn the_difference_counts_and_not_the_operation() {
    let mut harness = Harness::running();
    assert_eq!(
        sent(&harness.change(PodOperation::Update, &plain("a"))),
        ["CREATE a"]
    );
    let changed = manifest("a", "a", json!({"hostNetwork": true}));
    assert_eq!(
        sent(&harness.change(PodOperation::Add, &changed)),
        ["UPDATE a"]
    );
}

#[test]
fn half_a_snapshot_is_none() {
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
    let actions = harness.handle(Event::Configuration(Message::SnapshotPod(pod)));
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
        let change = v1::PodChange {
            source: name.clone(),
            operation: PodOperation::Update.into(),
            pod: Some(pod),
        };
        let actions = harness.handle(Event::Configuration(Message::Change(change)));
        assert_eq!(briefs(&actions), ["event FailedManifest file"]);
    }
}

#[test]
fn the_first_source_of_a_pod_counts() {
    let mut harness = Harness::running();
    harness.configure(&["file", "http"]);
    harness.snapshot(PodSource::File, true, &[plain("a")]);
    let changed = manifest("a", "a", json!({"hostNetwork": true}));
    assert_eq!(
        sent(&harness.change_in(PodSource::Http, PodOperation::Add, &changed)),
        [""; 0]
    );
}

#[test]
fn pods_of_a_source_that_is_not_configured_are_refused() {
    let mut harness = Harness::running();
    let actions = harness.change_in(PodSource::Http, PodOperation::Add, &plain("a"));
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
            since_unix_nanos: 1,
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
fn a_mirror_pod_syncs_its_static_pod_and_is_never_run() {
    let mut harness = Harness::running();
    harness.configure(&["file", "api"]);
    harness.snapshot(PodSource::Api, true, &[]);
    harness.snapshot(
        PodSource::File,
        true,
        &[manifest("static", "web", json!({}))],
    );
    let mut mirror = manifest("mirror", "web", json!({}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "h"});
    let actions = harness.change_in(PodSource::Api, PodOperation::Add, &mirror);
    assert_eq!(sent(&actions), ["UPDATE static"]);
    let Some(Action::RemoveOrphanedStatuses { known, .. }) =
        harness.tick_housekeeping().into_iter().next()
    else {
        panic!("no statuses");
    };
    assert_eq!(known, ["mirror", "static"]);
    let actions = harness.change_in(PodSource::Api, PodOperation::Remove, &mirror);
    assert_eq!(sent(&actions), ["UPDATE static"]);
    // A manifest of this node is no mirror, whatever it says.
    mirror["metadata"]["uid"] = json!("posing");
    assert_eq!(sent(&harness.add(&mirror)), ["CREATE posing"]);
}

#[test]
fn a_changed_status_alone_reconciles() {
    let mut harness = Harness::running();
    let mut pod = manifest(
        "a",
        "a",
        json!({"readinessGates": [{"conditionType": "x"}]}),
    );
    harness.add_running(&pod);
    pod["status"] = json!({"phase": "Running"});
    assert_eq!(
        sent(&harness.change(PodOperation::Reconcile, &pod)),
        ["SYNC a"]
    );
    let mut pod = plain("b");
    harness.add_running(&pod);
    pod["status"] = json!({"phase": "Running"});
    assert_eq!(
        briefs(&harness.change(PodOperation::Reconcile, &pod)),
        [""; 0]
    );
    pod["status"] = json!({"phase": "Failed", "reason": "Evicted"});
    let actions = harness.change(PodOperation::Reconcile, &pod);
    assert_eq!(briefs(&actions), ["SYNC b", "clean-up b"]);
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
        .map(|index| harness.add(&large(&format!("u{index}"), 1000)))
        .filter(|actions| !sent(actions).is_empty());
    assert_eq!(accepted.count(), 24);
    let actions = harness.add(&large("last", 1000));
    assert_eq!(briefs(&actions), ["event FailedManifest "]);
    assert_eq!(
        sent(&harness.change(PodOperation::Update, &large("u0", 1))),
        ["UPDATE u0"]
    );
    assert_eq!(sent(&harness.add(&large("last", 900))), ["CREATE last"]);
    // What is being stopped still counts.
    harness.change(PodOperation::Remove, &large("u1", 1000));
    assert_eq!(sent(&harness.add(&large("another", 900))), [""; 0]);
}
