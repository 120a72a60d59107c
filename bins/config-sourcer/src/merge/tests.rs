//! The kubelet's table of config tests, as far as it is about comparing.

use serde_json::{Value, json};

use super::*;

fn pod(uid: &str, change: impl FnOnce(&mut Value)) -> SourcePod {
    let mut value = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"uid": uid, "name": format!("pod-{uid}"), "namespace": "default",
                     "labels": {"a": "b"},
                     "annotations": {"note": "x", "kubernetes.io/config.seen": "then"}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        "status": {"phase": "Pending"},
    });
    change(&mut value);
    SourcePod::from_json(value.to_string().into_bytes(), PodSource::Api).unwrap()
}

fn unchanged(_: &mut Value) {}

fn set(pods: impl IntoIterator<Item = SourcePod>) -> PodSet {
    pods.into_iter()
        .map(|pod| (pod.uid().to_owned(), pod))
        .collect()
}

fn operations(old: &PodSet, new: &PodSet) -> Vec<(Operation, String)> {
    merge(old, new)
        .into_iter()
        .map(|change| {
            (
                change.operation,
                change.document.identity().uid().to_owned(),
            )
        })
        .collect()
}

#[test]
fn a_new_pod_is_added_and_an_identical_one_is_silent() {
    let one = set([pod("1", unchanged)]);
    assert_eq!(
        operations(&PodSet::new(), &one),
        [(Operation::Add, "1".to_owned())]
    );
    assert_eq!(operations(&one, &one), []);
    assert_eq!(operations(&PodSet::new(), &PodSet::new()), []);
}

#[test]
fn a_set_splits_into_what_goes_comes_and_differs() {
    let old = set([
        pod("1", unchanged),
        pod("2", unchanged),
        pod("3", unchanged),
    ]);
    let new = set([
        pod("0", unchanged),
        pod("2", |pod| {
            pod["spec"]["containers"][0]["image"] = "i:2".into()
        }),
        pod("3", unchanged),
    ]);
    assert_eq!(
        operations(&old, &new),
        [
            (Operation::Remove, "1".to_owned()),
            (Operation::Add, "0".to_owned()),
            (Operation::Update, "2".to_owned()),
        ]
    );
}

#[test]
fn a_deletion_mark_is_a_deletion() {
    let old = set([pod("1", unchanged)]);
    let new = set([pod("1", |pod| {
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 5.into();
    })]);
    assert_eq!(
        operations(&old, &new),
        [(Operation::Delete, "1".to_owned())]
    );
    // Also of a pod that is new: it has to be seen first.
    assert_eq!(
        operations(&PodSet::new(), &new),
        [(Operation::Add, "1".to_owned())]
    );
}

#[test]
fn only_the_status_differs_is_a_reconciliation() {
    let old = set([pod("1", unchanged)]);
    let status = |pod: &mut Value| pod["status"]["phase"] = "Running".into();
    assert_eq!(
        operations(&old, &set([pod("1", status)])),
        [(Operation::Reconcile, "1".to_owned())]
    );
    let both = set([pod("1", |pod| {
        status(pod);
        pod["spec"]["hostname"] = "h".into();
    })]);
    assert_eq!(
        operations(&old, &both),
        [(Operation::Update, "1".to_owned())]
    );
}

#[test]
fn labels_and_annotations_of_users_are_changes() {
    let old = set([pod("1", unchanged)]);
    for change in [
        (|pod: &mut Value| pod["metadata"]["labels"]["a"] = "c".into()) as fn(&mut Value),
        |pod| pod["metadata"]["labels"] = Value::Null,
        |pod| pod["metadata"]["annotations"]["note"] = "y".into(),
        |pod| pod["metadata"]["annotations"]["more"] = "y".into(),
    ] {
        assert_eq!(
            operations(&old, &set([pod("1", change)])),
            [(Operation::Update, "1".to_owned())]
        );
    }
}

#[test]
fn annotations_of_the_sources_and_server_fields_are_no_changes() {
    let old = set([pod("1", unchanged)]);
    for change in [
        (|pod: &mut Value| {
            pod["metadata"]["annotations"]["kubernetes.io/config.seen"] = "now".into();
        }) as fn(&mut Value),
        |pod| pod["metadata"]["annotations"]["kubernetes.io/config.hash"] = "h".into(),
        |pod| pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "m".into(),
        |pod| pod["metadata"]["annotations"]["kubernetes.io/config.source"] = "api".into(),
        |pod| pod["metadata"]["resourceVersion"] = "7".into(),
        |pod| pod["metadata"]["managedFields"] = json!([{"manager": "x"}]),
    ] {
        assert_eq!(operations(&old, &set([pod("1", change)])), []);
    }
    // No annotations at all are the same as only those of the sources.
    let none = set([pod("1", |pod| pod["metadata"]["annotations"] = Value::Null)]);
    let local = set([pod("1", |pod| {
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.seen": "now"});
    })]);
    assert_eq!(operations(&none, &local), []);
}

#[test]
fn the_same_name_with_another_uid_is_another_pod() {
    let rename = |pod: &mut Value| pod["metadata"]["name"] = "same".into();
    assert_eq!(
        operations(&set([pod("1", rename)]), &set([pod("2", rename)])),
        [
            (Operation::Remove, "1".to_owned()),
            (Operation::Add, "2".to_owned())
        ]
    );
}

#[test]
fn changes_carry_the_pod() {
    let new = set([pod("1", unchanged)]);
    let changes = merge(&PodSet::new(), &new);
    assert_eq!(&changes[0].document, new["1"].document());
    let changes = merge(&new, &PodSet::new());
    assert_eq!(&changes[0].document, new["1"].document());
}
