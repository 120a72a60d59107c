//! Mirrors the kubelet's TestRelisting and its neighbours by behaviour.

use super::ContainerState::{Created, Exited, Running, Unknown};
use super::EventKind::{
    ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted, PodSync,
};
use super::SandboxState::{NotReady, Ready};
use super::*;

fn pod(containers: &[(&str, ContainerState)], sandboxes: &[(&str, SandboxState)]) -> PodRecord {
    PodRecord {
        containers: containers
            .iter()
            .map(|(id, state)| ((*id).to_owned(), *state))
            .collect(),
        sandboxes: sandboxes
            .iter()
            .map(|(id, state)| ((*id).to_owned(), *state))
            .collect(),
    }
}

fn pods<const N: usize>(pods: [(&str, PodRecord); N]) -> Pods {
    pods.map(|(uid, record)| (uid.to_owned(), record)).into()
}

/// Events in a form that is easy to write.
fn seen(events: Vec<Event>) -> Vec<(String, EventKind, String)> {
    events
        .into_iter()
        .map(|event| (event.pod_uid, event.kind, event.id))
        .collect()
}

fn expected(events: &[(&str, EventKind, &str)]) -> Vec<(String, EventKind, String)> {
    events
        .iter()
        .map(|(uid, kind, id)| ((*uid).to_owned(), *kind, (*id).to_owned()))
        .collect()
}

#[test]
fn the_first_relist_reports_everything_later_ones_only_changes() {
    let mut records = Records::default();
    let first = pods([
        (
            "1234",
            pod(&[("c1", Exited), ("c2", Running), ("c3", Unknown)], &[]),
        ),
        ("4567", pod(&[("c1", Exited)], &[])),
    ]);
    assert_eq!(
        seen(records.apply_all(first.clone())),
        expected(&[
            ("1234", ContainerDied, "c1"),
            ("1234", ContainerStarted, "c2"),
            ("1234", ContainerChanged, "c3"),
            ("4567", ContainerDied, "c1"),
        ])
    );
    assert_eq!(records.apply_all(first), []);
    let third = pods([
        ("1234", pod(&[("c2", Exited), ("c3", Running)], &[])),
        ("4567", pod(&[("c4", Running)], &[])),
    ]);
    assert_eq!(
        seen(records.apply_all(third)),
        expected(&[
            ("1234", ContainerRemoved, "c1"),
            ("1234", ContainerDied, "c2"),
            ("1234", ContainerStarted, "c3"),
            ("4567", ContainerRemoved, "c1"),
            ("4567", ContainerStarted, "c4"),
        ])
    );
}

#[test]
fn each_transition_of_a_container_has_its_events() {
    type Row = (
        Option<ContainerState>,
        Option<ContainerState>,
        &'static [EventKind],
    );
    let table: &[Row] = &[
        (None, None, &[]),
        (None, Some(Created), &[]),
        (None, Some(Running), &[ContainerStarted]),
        (None, Some(Exited), &[ContainerDied]),
        (None, Some(Unknown), &[ContainerChanged]),
        (Some(Created), Some(Created), &[]),
        (Some(Created), Some(Running), &[ContainerStarted]),
        (Some(Created), Some(Exited), &[ContainerDied]),
        (Some(Created), Some(Unknown), &[ContainerChanged]),
        (Some(Created), None, &[ContainerDied, ContainerRemoved]),
        (Some(Running), Some(Running), &[]),
        (Some(Running), Some(Exited), &[ContainerDied]),
        (Some(Running), Some(Unknown), &[ContainerChanged]),
        (Some(Running), Some(Created), &[ContainerChanged]),
        (Some(Running), None, &[ContainerDied, ContainerRemoved]),
        (Some(Exited), Some(Exited), &[]),
        (Some(Exited), Some(Running), &[ContainerStarted]),
        (Some(Exited), Some(Unknown), &[ContainerChanged]),
        (Some(Exited), Some(Created), &[ContainerChanged]),
        (Some(Exited), None, &[ContainerRemoved]),
        (Some(Unknown), Some(Unknown), &[]),
        (Some(Unknown), Some(Running), &[ContainerStarted]),
        (Some(Unknown), Some(Exited), &[ContainerDied]),
        (Some(Unknown), Some(Created), &[ContainerChanged]),
        (Some(Unknown), None, &[ContainerDied, ContainerRemoved]),
    ];
    for (old, new, events) in table {
        assert_eq!(container_events(*old, *new), *events, "{old:?} -> {new:?}");
    }
}

#[test]
fn a_container_that_vanished_while_running_died_and_was_removed() {
    let mut records = Records::default();
    records.apply_all(pods([(
        "1234",
        pod(&[("c1", Running), ("c2", Exited)], &[]),
    )]));
    assert_eq!(
        seen(records.apply_all(pods([]))),
        expected(&[
            ("1234", ContainerDied, "c1"),
            ("1234", ContainerRemoved, "c1"),
            ("1234", ContainerRemoved, "c2"),
        ])
    );
    assert_eq!(records.pod_uids().count(), 0);
}

#[test]
fn sandbox_changes_are_about_the_pod() {
    let mut records = Records::default();
    let mut relist = |sandboxes: &[(&str, SandboxState)]| {
        seen(records.apply_all(pods([("1234", pod(&[], sandboxes))])))
    };
    assert_eq!(
        relist(&[("s1", Ready)]),
        expected(&[("1234", PodSync, "s1")])
    );
    assert_eq!(relist(&[("s1", Ready)]), []);
    assert_eq!(
        relist(&[("s1", NotReady), ("s2", Ready)]),
        expected(&[("1234", PodSync, "s1"), ("1234", PodSync, "s2")])
    );
    assert_eq!(
        relist(&[("s2", Ready)]),
        expected(&[("1234", PodSync, "s1")])
    );
}

#[test]
fn a_relist_of_one_pod_leaves_the_others_alone() {
    let mut records = Records::default();
    records.apply_all(pods([
        ("1234", pod(&[("c1", Running)], &[])),
        ("4567", pod(&[("c2", Running)], &[])),
    ]));
    assert_eq!(
        seen(records.apply_one("1234", Some(pod(&[("c1", Exited)], &[])))),
        expected(&[("1234", ContainerDied, "c1")])
    );
    assert_eq!(
        seen(records.apply_one("4567", None)),
        expected(&[
            ("4567", ContainerDied, "c2"),
            ("4567", ContainerRemoved, "c2")
        ])
    );
    // What a single relist told is not told again by a full one.
    let all = pods([("1234", pod(&[("c1", Exited)], &[]))]);
    assert_eq!(records.apply_all(all), []);
    assert_eq!(records.apply_one("unknown", None), []);
}
