//! What must hold: in the end (the node is as desired) and all along (no
//! container stopped, restarted or started twice without a reason).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clock::UnixNanos;
use simulated_node::MemoryHost;
use simulated_runtime::{ContainerView, Entry, Happening, SandboxView, SimulatedRuntime};

use crate::desired::{Desired, SETTINGS, SETTINGS_KEY};
use crate::orders;
use crate::targets::Targets;
use crate::uids::uids_by_version;
use crate::verdicts;

/// Least time between SIGTERM and SIGKILL, unless the whole grace is shorter.
const SIGTERM_GRACE: Duration = Duration::from_secs(2);

/// What a container waits for after its second exit.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);

fn count(history: &[Entry], uid: &str, container: &str, what: &Happening) -> usize {
    history
        .iter()
        .filter(|entry| {
            entry.pod_uid == uid && entry.container == container && entry.happening == *what
        })
        .count()
}

/// What runs of these pods.
fn still_running(
    evicted: &BTreeSet<String>,
    containers: &[ContainerView],
    sandboxes: &[SandboxView],
) -> Vec<String> {
    let containers = containers.iter().filter(|it| it.running);
    let sandboxes = sandboxes.iter().filter(|it| it.ready);
    let uids = containers
        .map(|it| &it.pod_uid)
        .chain(sandboxes.map(|it| &it.pod_uid));
    uids.filter(|uid| evicted.contains(*uid))
        .map(|uid| format!("something of {uid}, which was evicted, runs"))
        .collect()
}

/// What does not run of the pods that are desired, or has not run; empty when all is well.
pub(crate) fn not_running(
    runtime: &SimulatedRuntime,
    targets: &Targets,
    desired: &BTreeMap<String, Desired>,
) -> Vec<String> {
    let history = runtime.history();
    let uids = uids_by_version(&history);
    let containers = runtime.containers();
    let sandboxes = runtime.sandboxes();
    let mut missing = Vec::new();
    for pod in desired.values() {
        let Some(uid) = uids.get(&pod.version_label()) else {
            missing.push(format!("{pod} has no sandbox"));
            continue;
        };
        for name in pod.servers() {
            let of_name = containers
                .iter()
                .filter(|one| one.running && one.pod_uid == *uid && one.name == **name);
            let running: Vec<&str> = of_name.map(|one| &*one.id).collect();
            if running.len() != 1 {
                let running = running.len();
                missing.push(format!("{running} containers {name} of {pod} run"));
            } else if running.iter().any(|id| targets.hung_since(id).is_some()) {
                missing.push(format!("{name} of {pod} hangs"));
            }
        }
        for name in pod.once() {
            // A job that crashed has run too: it is never restarted.
            let ended = history.iter().any(|entry| {
                entry.pod_uid == *uid
                    && entry.container == **name
                    && matches!(entry.happening, Happening::Exited { killed: false, .. })
            });
            if !ended {
                missing.push(format!("{name} of {pod} has not run"));
            }
        }
        let ready = sandboxes
            .iter()
            .filter(|one| one.ready && one.pod_uid == *uid)
            .count();
        let expected = usize::from(!pod.servers().is_empty());
        if ready != expected {
            missing.push(format!("{ready} sandboxes of {pod} are ready"));
        }
    }
    missing
}

/// What is left of pods that are not desired any more; empty when all is gone. Of pods that
/// are desired and were evicted, whose UIDs these are, nothing may run.
pub(crate) fn left_over(
    runtime: &SimulatedRuntime,
    host: &MemoryHost,
    desired: &BTreeMap<String, Desired>,
    evicted: &BTreeSet<String>,
) -> Vec<String> {
    let uids = uids_by_version(&runtime.history());
    let containers = runtime.containers();
    let sandboxes = runtime.sandboxes();
    let mut left = still_running(evicted, &containers, &sandboxes);
    let desired = desired.values();
    let running = desired.filter_map(|pod| uids.get(&pod.version_label()).cloned());
    let running: BTreeSet<String> = running.collect();
    let wanted: BTreeSet<String> = evicted.union(&running).cloned().collect();
    for container in containers
        .iter()
        .filter(|one| !wanted.contains(&one.pod_uid))
    {
        left.push(format!(
            "a container {} of {} is left",
            container.name, container.pod_uid
        ));
    }
    for sandbox in sandboxes
        .iter()
        .filter(|one| !wanted.contains(&one.pod_uid))
    {
        left.push(format!("a sandbox of {} is left", sandbox.pod_uid));
    }
    for uid in host.pods().difference(&wanted) {
        left.push(format!("a cgroup or directory of {uid} is left"));
    }
    for uid in host.state().volumes.difference(&running) {
        left.push(format!("volumes of {uid} are left"));
    }
    left
}

/// Pods of which nothing is to run any more and whose cgroups are there; empty soon after
/// their ends. Where who takes them away died since then, a round of garbage collection
/// does it.
pub(crate) fn idle_cgroups(
    history: &[Entry],
    host: &MemoryHost,
    desired: &BTreeMap<String, Desired>,
    deaths: &[UnixNanos],
) -> Vec<String> {
    let uids = uids_by_version(history);
    let running = desired.values().filter(|pod| !pod.servers().is_empty());
    let running = running.filter_map(|pod| uids.get(&pod.version_label()));
    let running: BTreeSet<&String> = running.collect();
    let ended = |uid: &String| {
        let is_exit = |it: &&Entry| matches!(it.happening, Happening::Exited { .. });
        let mut exits = history.iter().rev().filter(|it| it.pod_uid == *uid);
        exits.find(is_exit).map(|it| it.at)
    };
    let state = host.state();
    let idle = state.cgroups.iter().filter(|uid| {
        let is_left = |at| deaths.iter().all(|death| *death < at);
        !running.contains(uid) && ended(uid).is_some_and(is_left)
    });
    idle.map(|uid| format!("the cgroup of {uid}, which has ended, is left"))
        .collect()
}

/// Pods whose volume does not show what the ConfigMap says; empty when the node has
/// converged.
pub(crate) fn stale_settings(
    runtime: &SimulatedRuntime,
    host: &MemoryHost,
    desired: &BTreeMap<String, Desired>,
    settings: Option<u32>,
) -> Vec<String> {
    let uids = uids_by_version(&runtime.history());
    let wanted = settings.map(|value| value.to_string());
    let state = host.state();
    let mut stale = Vec::new();
    for pod in desired.values() {
        // One that was never started is missing otherwise.
        let Some(uid) = uids.get(&pod.version_label()) else {
            continue;
        };
        if !pod.reads_settings() || pod.servers().is_empty() {
            continue;
        }
        let volume = state.files.get(&(uid.clone(), SETTINGS.to_owned()));
        let file = volume.and_then(|volume| volume.files.get(SETTINGS_KEY));
        let shown = file.map(|file| String::from_utf8_lossy(file.content.as_slice()).into_owned());
        if shown != wanted {
            stale.push(format!("{pod} shows settings {shown:?}, not {wanted:?}"));
        }
    }
    stale
}

/// What happened that never may. `failures` counts by UID and container how often
/// it crashed or hung.
pub(crate) fn broken_promises(
    runtime: &SimulatedRuntime,
    targets: &Targets,
    desired: &BTreeMap<String, Desired>,
    versions: &[Desired],
    failures: &BTreeMap<String, u32>,
    jumps: &[UnixNanos],
) -> Vec<String> {
    let history = runtime.history();
    let uids = uids_by_version(&history);
    let mut broken = runtime.violations();
    for pod in desired.values() {
        let Some(uid) = uids.get(&pod.version_label()) else {
            continue;
        };
        let of_pod = |entry: &&Entry| entry.pod_uid == *uid && !entry.container.is_empty();
        for entry in history.iter().filter(of_pod) {
            let stopped = matches!(
                entry.happening,
                Happening::Terminated | Happening::Exited { killed: true, .. }
            );
            // One that fails its liveness probe is stopped, and only that instance; so is
            // one that asks for it where its size changes, or whose hook failed.
            let hung = targets.hung_since(&entry.id);
            let resized = pod.resize_restarts_since(&entry.container);
            let failed = orders::command_failed_at(&history, &entry.id);
            let has_reason = |since: Option<UnixNanos>| since.is_some_and(|it| it <= entry.at);
            if stopped && ![hung, resized, failed].into_iter().any(has_reason) {
                broken.push(format!(
                    "{} of {pod}, which is desired, was stopped",
                    entry.container
                ));
            }
        }
        for name in pod.servers().iter().chain(pod.once()) {
            let starts = count(&history, uid, name, &Happening::Started);
            let failed = failures.get(&format!("{uid}/{name}")).copied();
            // A job that crashed is done; an init container that did is tried again.
            let failed = failed.filter(|_| !pod.servers().is_empty());
            let is_one = |entry: &&Entry| entry.pod_uid == *uid && entry.container == **name;
            let of_name = history.iter().filter(is_one);
            let commands = of_name.filter(|it| it.happening == Happening::CommandFailed);
            if starts > 1 + failed.unwrap_or(0) as usize + commands.count() {
                broken.push(format!("{name} of {pod} was started {starts} times"));
            }
        }
    }
    broken.extend(killed_before_their_time(&history, targets, versions));
    broken.extend(started_before_their_time(&history, versions, jumps));
    broken.extend(orders::broken(&history, versions));
    broken.extend(verdicts::stopped_too_early(&history, targets, versions));
    broken
}

/// Restarts that did not wait as long as was due after the exit before: the first
/// comes at once, the second after [`FIRST_BACK_OFF`], and so on doubling. No scenario
/// is long enough (ten minutes) for an instance to end its back-off by running. Where the
/// wall clock jumped since an instance was started nobody knows how long it ran, or when
/// it ended: that wait may be shorter.
fn started_before_their_time(
    history: &[Entry],
    versions: &[Desired],
    jumps: &[UnixNanos],
) -> Vec<String> {
    let uids = uids_by_version(history);
    let mut early = Vec::new();
    for pod in versions {
        let Some(uid) = uids.get(&pod.version_label()) else {
            continue;
        };
        for name in pod.servers().iter().chain(pod.once()) {
            let of_container = |entry: &&Entry| entry.pod_uid == *uid && entry.container == **name;
            let (mut due, mut started_at, mut exited_at) = (Duration::ZERO, None, None);
            for entry in history.iter().filter(of_container) {
                match (&entry.happening, exited_at) {
                    (Happening::Exited { .. }, _) => exited_at = Some(entry.at),
                    (Happening::Started, Some(exited_at)) => {
                        let waited = entry.at.since(exited_at);
                        let since = started_at.unwrap_or(exited_at)..=entry.at;
                        started_at = Some(entry.at);
                        if jumps.iter().any(|jump| since.contains(jump)) {
                            due = Duration::ZERO;
                            continue;
                        }
                        if waited < due {
                            let life = life_of(history, uid);
                            early.push(format!("{name} of {pod} waited {waited:?}{life}"));
                        }
                        due = (due * 2).max(FIRST_BACK_OFF);
                    }
                    (Happening::Started, None) => started_at = Some(entry.at),
                    _ => {}
                }
            }
        }
    }
    early
}

/// Containers that SIGKILL ended although their program would have had more
/// time, of all the pods that there ever were.
fn killed_before_their_time(
    history: &[Entry],
    targets: &Targets,
    versions: &[Desired],
) -> Vec<String> {
    let uids = uids_by_version(history);
    let mut early = Vec::new();
    for pod in versions {
        let Some(uid) = uids.get(&pod.version_label()) else {
            continue;
        };
        let grace = pod.grace();
        for killed in history.iter().filter(|entry| {
            entry.pod_uid == *uid
                && matches!(entry.happening, Happening::Exited { killed: true, .. })
        }) {
            let asked = history
                .iter()
                .find(|entry| entry.id == killed.id && entry.happening == Happening::Terminated);
            let waited = asked.map_or(Duration::ZERO, |asked| killed.at.since(asked.at));
            let reasons = [
                pod.dismissed_at(),
                targets.hung_since(&killed.id),
                pod.resize_restarts_since(&killed.container),
                orders::command_failed_at(history, &killed.id),
            ];
            let reason = reasons.into_iter().flatten().min();
            let wanted = reason.map(|at| killed.at.since(at));
            // Of an order that was cut off nobody knows whether the SIGTERM was
            // sent: the grace goes on from there, but some time after a SIGTERM
            // every program gets all the same.
            if waited < grace.min(SIGTERM_GRACE) || wanted.unwrap_or_default() < grace {
                early.push(format!(
                    "{} of {pod} was killed after {waited:?}{}",
                    killed.container,
                    life_of(history, uid)
                ));
            }
        }
    }
    early
}

/// All that happened to a pod, for a report.
fn life_of(history: &[Entry], uid: &str) -> String {
    let of_pod = history.iter().filter(|entry| entry.pod_uid == uid);
    of_pod
        .map(|entry| {
            format!(
                "\n    {:?} {} {:?}",
                entry.at, entry.container, entry.happening
            )
        })
        .collect()
}
