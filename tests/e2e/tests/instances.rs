//! Several instances on one machine: each has its own directories, users,
//! cgroups and container runtime, and what happens to one is no concern of the
//! other's. None writes anywhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::cast::web;
use e2e::witness::{Look, Witness};
use serde_json::Value;
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, PrivateContainerd, TestNode,
};
use topology::Process;

/// The system's directories that a node agent could write to; `/run` and
/// `/var/lib` are watched anyway.
const WATCHED: [&str; 3] = ["/etc", "/var/log", "/tmp"];

/// What the container runtime and the network plugins write.
const NOT_OURS: [&str; 3] = ["/run/containerd", "/run/xtables.lock", "/var/lib/cni"];

#[test]
fn two_instances_leave_each_other_and_the_rest_of_the_machine_alone() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let node = Arc::clone(containerd.node());
    for directory in WATCHED {
        node.catch_changes(directory)?;
    }
    let before = node.changes()?;
    let mut one = instance(containerd, 0)?;
    let second = ContainerdOptions {
        instance: 1,
        ..ContainerdOptions::default()
    };
    let mut other = instance(PrivateContainerd::start_on(&node, &second)?, 1)?;
    let mut pods = Vec::new();
    for ground in [&one, &other] {
        ground.apply("web", web(ground, "web"))?;
        ground.apply("going", web(ground, "going"))?;
        ground.ready("going")?;
        pods.push(ground.ready("web")?);
    }
    nothing_is_shared(&one, &other)?;

    // One is killed, and comes back.
    one_is_alone(&one, &pods[0], || {
        other.bulkhead.kill_all()?;
        one.apply("new", web(&one, "new"))?;
        one.ready("new")?;
        one.remove("going")?;
        ensure!(other.running("going")? == 1, "only its own manifest counts");
        other.bulkhead.start_again()
    })?;
    // The other is stopped, and comes back.
    one_is_alone(&other, &pods[1], || {
        let status = one.bulkhead.stop()?;
        ensure!(status.success(), "the supervisor ended with {status}");
        other.apply("new", web(&other, "new"))?;
        other.ready("new")?;
        other.remove("going")?;
        one.bulkhead.start_again()
    })?;
    for (ground, before) in [(&one, &pods[0]), (&other, &pods[1])] {
        ground.ready("web")?;
        ensure!(Look::of(&ground.pod("web")?) == Look::of(before));
        for (name, asked) in [("web", 0), ("new", 0), ("going", 1)] {
            assert_eq!(ground.noted(name, "started")?, 1, "{name}");
            assert_eq!(ground.noted(name, "SIGTERM")?, asked, "{name}");
        }
    }

    for ground in [&one, &other] {
        ground.take_away("web")?;
        ground.take_away("new")?;
    }
    for ground in [&mut one, &mut other] {
        ground.gone("web")?;
        ground.gone("new")?;
        ground.bulkhead.stop()?;
    }
    nothing_is_shared(&one, &other)?;
    let written = others_changes(&before, &node)?;
    ensure!(written.is_empty(), "written outside: {written:#?}");
    Ok(())
}

fn instance(containerd: PrivateContainerd, instance: u8) -> Result<Ground> {
    let options = BulkheadOptions {
        instance,
        ..BulkheadOptions::default()
    };
    Ok(Ground {
        bulkhead: BulkheadInstance::start(&containerd, &options)?,
        containerd,
    })
}

/// That an instance, its processes and its pod do not notice what is done to
/// another.
fn one_is_alone(ground: &Ground, pod: &Value, disturb: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = ground.bulkhead.pids()?;
    let witness = Witness::call(&ground.bulkhead, "web")?;
    disturb().with_context(|| ground.bulkhead.log_ends())?;
    witness.hear()?.never_changed(pod)?;
    ensure!(ground.bulkhead.pids()? == before, "a part was restarted");
    Ok(())
}

/// That no process, user or file is common to both.
fn nothing_is_shared(one: &Ground, other: &Ground) -> Result<()> {
    let users = |ground: &Ground| -> BTreeSet<u32> {
        let first = ground.bulkhead.uid_base();
        (first..first + u32::try_from(Process::ALL.len()).unwrap_or(u32::MAX)).collect()
    };
    ensure!(users(one).is_disjoint(&users(other)), "common users");
    for (ground, strangers) in [(one, users(other)), (other, users(one))] {
        let paths = ground.bulkhead.paths();
        for directory in [&paths.run, &paths.state, &paths.root, &paths.log] {
            let owned: Vec<PathBuf> = owned_by(directory, &strangers);
            ensure!(owned.is_empty(), "the other's in {directory:?}: {owned:?}");
        }
    }
    Ok(())
}

/// What is below a directory and belongs to one of these users. What vanishes
/// meanwhile does not.
fn owned_by(directory: &Path, users: &BTreeSet<u32>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(metadata) = fs::symlink_metadata(entry.path()) else {
            continue;
        };
        if users.contains(&metadata.uid()) {
            found.push(entry.path());
        }
        if metadata.is_dir() {
            found.extend(owned_by(&entry.path(), users));
        }
    }
    found
}

/// What was written to the system's own directories, or removed from them, by
/// others than the runtime and its plugins.
fn others_changes(
    before: &BTreeMap<PathBuf, String>,
    node: &TestNode,
) -> Result<Vec<(PathBuf, String)>> {
    let after = node.changes()?;
    let paths: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    let changed = paths.into_iter().filter(|path| {
        before.get(*path) != after.get(*path) && !NOT_OURS.iter().any(|it| path.starts_with(it))
    });
    Ok(changed
        .map(|path| (path.clone(), format!("{:?}", after.get(path))))
        .collect())
}
