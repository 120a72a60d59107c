//! Pods whose manifests set `metadata.uid`, so that a changed manifest is the same pod:
//! what a running pod takes over, what it keeps, and what starts it anew.

use std::fs;

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use e2e::ground::spec;
use e2e::workload::script;
use serde_json::{Value, json};
use test_support::observe::container_id;
use test_support::wait_for;

const UID: &str = "8d1f62c5-0d5b-4c35-9b7e-0d3f3a9c5b11";

/// A pod that notes in files when it starts and is asked to end as `word`. Its exec probe
/// notes by the word of which version it was run, and in a container of which one.
fn manifest(ground: &Ground, word: &str, label: &str) -> Value {
    let mut container = script(
        "app",
        &format!(
            "echo {word} > /word; echo >> /journals/started-{word}
             trap 'echo >> /journals/ended-{word}; exit 0' TERM
             while true; do sleep 0.1; done"
        ),
    );
    let probe = format!("echo >> /journals/probe-of-{word}-in-$(cat /word)");
    container["livenessProbe"] = json!({
        "exec": { "command": ["sh", "-c", probe] }, "periodSeconds": 1, "timeoutSeconds": 10,
    });
    let mut spec = spec(ground, &[container]);
    spec["terminationGracePeriodSeconds"] = json!(20);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "pinned", "uid": UID, "labels": { "label": label } },
        "spec": spec,
    })
}

fn apply(ground: &Ground, word: &str, label: &str) -> Result<()> {
    let manifest = manifest(ground, word, label).to_string();
    ground.bulkhead.write_manifest("pinned.json", &manifest)
}

/// How often something was noted in one of the files.
fn noted(ground: &Ground, file: &str) -> usize {
    let path = ground.bulkhead.paths().shared.join(file);
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

fn wait_noted(ground: &Ground, file: &str) -> Result<()> {
    let noted = wait_for(&format!("{file} to be noted"), TIMEOUT, || {
        (noted(ground, file) > 0)
            .then_some(())
            .ok_or("it is not".to_owned())
    });
    noted.with_context(|| ground.bulkhead.log_ends())
}

fn container(ground: &Ground) -> Result<String> {
    let pod = ground.ready("pinned")?;
    Ok(container_id(&pod, "app")
        .context("no container")?
        .to_owned())
}

/// The label reaches the published pod, and the container runs on.
fn a_label_changes_nothing(ground: &Ground, word: &str, label: &str) -> Result<()> {
    let before = container(ground)?;
    let shown = ground
        .bulkhead
        .wait_for_pod("pinned", "to have its label", TIMEOUT, |pod| {
            (pod["metadata"]["labels"]["label"] == label)
                .then_some(())
                .ok_or(pod["metadata"].to_string())
        });
    shown.with_context(|| ground.bulkhead.log_ends())?;
    assert_eq!(container(ground)?, before);
    assert_eq!(noted(ground, &format!("started-{word}")), 1);
    assert_eq!(noted(ground, &format!("ended-{word}")), 0);
    Ok(())
}

/// Nothing of another version was run, and nothing was asked to end.
fn runs_on_as_one(ground: &Ground) {
    assert_eq!(noted(ground, "started-one"), 1);
    assert_eq!(noted(ground, "ended-one"), 0);
    assert_eq!(noted(ground, "started-two"), 0);
    assert_eq!(noted(ground, "probe-of-two-in-one"), 0);
}

#[test]
fn a_running_pod_keeps_its_spec_until_its_manifest_is_removed_and_put_back() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    apply(&ground, "one", "a")?;
    wait_noted(&ground, "probe-of-one-in-one")?;
    apply(&ground, "one", "b")?;
    a_label_changes_nothing(&ground, "one", "b")?;
    apply(&ground, "two", "c")?;
    a_label_changes_nothing(&ground, "one", "c")?;
    let message = ground.event("pinned", "SpecNotApplied", "put it back")?;
    assert!(message.contains("spec.containers[0]."), "{message}");
    runs_on_as_one(&ground);

    // The same while nobody watches.
    let before = container(&ground)?;
    for word in ["one", "two"] {
        ground.bulkhead.kill_all()?;
        apply(&ground, word, "d")?;
        ground.bulkhead.start_again()?;
        a_label_changes_nothing(&ground, "one", "d")?;
        assert_eq!(container(&ground)?, before);
    }
    runs_on_as_one(&ground);

    ground.bulkhead.remove_manifest("pinned.json")?;
    wait_noted(&ground, "ended-one")?;
    apply(&ground, "two", "e")?;
    wait_noted(&ground, "probe-of-two-in-two")?;
    assert_eq!(noted(&ground, "started-two"), 1, "once");
    assert_eq!(noted(&ground, "probe-of-two-in-one"), 0);
    Ok(())
}

/// Under either name.
fn nothing_is_left(ground: &Ground) -> Result<()> {
    for name in ["pinned", "renamed"] {
        ground.gone(name)?;
        let gone = wait_for("nothing of the pod to be left", TIMEOUT, || {
            let left = ground.sandboxes(name).map_err(|error| error.to_string())?;
            match left.is_empty() {
                true => Ok(()),
                false => Err(format!("{left:?}")),
            }
        });
        gone.with_context(|| ground.bulkhead.log_ends())?;
        assert_eq!(ground.containers(name)?.len(), 0, "{name}");
    }
    Ok(())
}

#[test]
fn a_pod_that_was_renamed_while_nobody_watched_goes_with_its_manifest() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let mut pod = manifest(&ground, "one", "a");
    apply(&ground, "one", "a")?;
    ground.ready("pinned")?;
    ground.bulkhead.kill_all()?;
    pod["metadata"]["name"] = json!("renamed");
    ground
        .bulkhead
        .write_manifest("pinned.json", &pod.to_string())?;
    ground.bulkhead.start_again()?;
    ground.ready("renamed")?;
    ground.bulkhead.remove_manifest("pinned.json")?;
    nothing_is_left(&ground)
}
