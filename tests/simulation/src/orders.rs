//! What must hold all along of the order in which the containers of a pod start and stop,
//! of hooks, of the pods of one name, and of the numbers of a container's instances.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clock::UnixNanos;
use simulated_runtime::{Entry, Happening};

use crate::desired::{Desired, SIDECAR};
use crate::uids::uids_by_version;

/// What passes at most until an ExecSync begins its command: a runtime that fails
/// sometimes takes four times as long as usual.
const SLOWEST_BEGIN: Duration = Duration::from_millis(80);

/// What happened in a wrong order, or too often.
pub(crate) fn broken(history: &[Entry], versions: &[Desired]) -> Vec<String> {
    let uids = uids_by_version(history);
    let mut broken = begun_twice(history);
    broken.extend(begun_after_sigterm(history, versions));
    broken.extend(miscounted(history));
    broken.extend(beside_another(history, versions));
    for pod in versions {
        let Some(uid) = uids.get(&pod.version_label()) else {
            continue;
        };
        let of_pod: Vec<&Entry> = history.iter().filter(|it| it.pod_uid == *uid).collect();
        broken.extend(started_too_early(&of_pod, pod));
        broken.extend(sidecar_stopped_too_early(&of_pod, pod));
    }
    broken
}

/// No hook is begun twice for an instance. Commands are run for hooks alone.
fn begun_twice(history: &[Entry]) -> Vec<String> {
    let mut begun = BTreeSet::new();
    let executed = history.iter().filter_map(|entry| match &entry.happening {
        Happening::Executed { command } => Some((entry, command)),
        _ => None,
    });
    executed
        .filter(|(entry, command)| !begun.insert((&entry.id, (*command).clone())))
        .map(|(entry, command)| {
            let (name, uid) = (&entry.container, &entry.pod_uid);
            format!("{command:?} was begun again in {name} of {uid}")
        })
        .collect()
}

/// Containers that run and whose commands after their start were not begun; empty when the
/// node has converged. One is begun whatever process dies until the container has started;
/// who died after that may have been about to begin it.
pub(crate) fn left_out(
    history: &[Entry],
    desired: &BTreeMap<String, Desired>,
    deaths: &[UnixNanos],
) -> Vec<String> {
    let uids = uids_by_version(history);
    let mut left_out = Vec::new();
    for pod in desired.values() {
        let uid = uids.get(&pod.version_label());
        let (Some(uid), Some(command)) = (uid, pod.command_after_start()) else {
            continue;
        };
        let mut of_main = history
            .iter()
            .filter(|entry| entry.pod_uid == *uid && entry.container == "main");
        let mut starts = of_main
            .clone()
            .filter(|entry| entry.happening == Happening::Started);
        let Some(start) = starts.next_back() else {
            continue;
        };
        let is_explained = of_main.any(|entry| {
            entry.id == start.id
                && match &entry.happening {
                    Happening::Executed { command: begun } => *begun == command,
                    Happening::CommandFailed | Happening::Exited { .. } => true,
                    _ => false,
                }
        });
        if !is_explained && !deaths.iter().any(|at| *at > start.at) {
            left_out.push(format!("{pod} was started, and did not run {command:?}"));
        }
    }
    left_out
}

/// No command of a preStop hook is begun in an instance that has been asked to end, but by a
/// call that was under way when its grace period was over. The call that begins one after
/// the start may be under way when its pod is to go.
fn begun_after_sigterm(history: &[Entry], versions: &[Desired]) -> Vec<String> {
    let mut asked = BTreeMap::new();
    let after_start = versions.iter().filter_map(Desired::command_after_start);
    let after_start: BTreeSet<[String; 3]> = after_start.collect();
    let is_after_start = |command: &[String]| after_start.iter().any(|it| it == command);
    let mut late = Vec::new();
    for entry in history {
        match &entry.happening {
            Happening::Terminated => {
                asked.entry(&entry.id).or_insert(entry.at);
            }
            Happening::Executed { command } if !is_after_start(command) => {
                let Some(terminated) = asked.get(&entry.id) else {
                    continue;
                };
                if entry.at <= terminated.plus(SLOWEST_BEGIN) {
                    continue;
                }
                let (name, uid) = (&entry.container, &entry.pod_uid);
                let what = format!("{command:?} was begun after the SIGTERM of {name} of {uid}");
                late.push(what);
            }
            _ => {}
        }
    }
    late
}

/// The instances of a container that were started have the numbers from 0 on, none twice
/// and none left out but those of instances that were made, never started, and are still
/// there: their names are taken.
fn miscounted(history: &[Entry]) -> Vec<String> {
    let mut attempts = BTreeMap::new();
    let mut there: BTreeMap<&String, (&str, &str, u32)> = BTreeMap::new();
    let mut started: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let mut wrong = Vec::new();
    for entry in history.iter().filter(|entry| !entry.container.is_empty()) {
        match &entry.happening {
            Happening::Created { attempt, .. } => {
                attempts.insert(&entry.id, *attempt);
                let (name, uid) = (&*entry.container, &*entry.pod_uid);
                there.insert(&entry.id, (uid, name, *attempt));
            }
            Happening::Removed => {
                there.remove(&entry.id);
            }
            Happening::Started => {
                let (name, uid) = (&entry.container, &entry.pod_uid);
                let next = started.entry((uid, name)).or_default();
                let attempt = attempts.get(&entry.id).copied();
                let is_taken = |number: u32| there.values().any(|it| *it == (uid, name, number));
                while attempt.is_some_and(|attempt| attempt > *next) && is_taken(*next) {
                    *next += 1;
                }
                if attempt != Some(*next) {
                    let at = entry.at;
                    wrong.push(format!(
                        "{name} of {uid} is {attempt:?} at {at:?}, not {next}"
                    ));
                }
                *next = attempt.map_or(*next, |attempt| attempt + 1);
            }
            _ => {}
        }
    }
    wrong
}

/// No container is started while one of another pod of the same name runs.
fn beside_another(history: &[Entry], versions: &[Desired]) -> Vec<String> {
    let uids = uids_by_version(history);
    let of_version = |pod: &&Desired| uids.get(&pod.version_label());
    let names = versions
        .iter()
        .filter_map(|pod| Some((of_version(&pod)?, pod.name())));
    let names: BTreeMap<&String, &str> = names.collect();
    let mut running: BTreeMap<&str, BTreeMap<&String, &String>> = BTreeMap::new();
    let mut beside = Vec::new();
    for entry in history.iter().filter(|entry| !entry.container.is_empty()) {
        let Some(name) = names.get(&entry.pod_uid) else {
            continue;
        };
        let of_name = running.entry(name).or_default();
        match entry.happening {
            Happening::Started => {
                if of_name.values().any(|uid| **uid != entry.pod_uid) {
                    let (container, uid) = (&entry.container, &entry.pod_uid);
                    let what = format!("{container} of {uid} was started beside {of_name:?}");
                    beside.push(what);
                }
                of_name.insert(&entry.id, &entry.pod_uid);
            }
            Happening::Exited { .. } => {
                of_name.remove(&entry.id);
            }
            _ => {}
        }
    }
    beside
}

/// `main` is started after its sidecar has been, and after its init container has
/// succeeded.
fn started_too_early(of_pod: &[&Entry], pod: &Desired) -> Vec<String> {
    let (sidecar, init) = pod.before_main();
    let main = |entry: &&&Entry| entry.container == "main" && entry.happening == Happening::Started;
    let Some(index) = of_pod.iter().position(|entry| main(&entry)) else {
        return Vec::new();
    };
    let before = &of_pod[..index];
    let started = |name: &str| {
        let mut of_name = before.iter().filter(|entry| entry.container == name);
        of_name.any(|entry| entry.happening == Happening::Started)
    };
    let succeeded = |name: &str| {
        let mut of_name = before.iter().filter(|entry| entry.container == name);
        of_name.any(|entry| matches!(entry.happening, Happening::Exited { code: 0, .. }))
    };
    let mut early = Vec::new();
    if sidecar.is_some_and(|name| !started(name)) {
        early.push(format!("main of {pod} was started before its sidecar"));
    }
    if init.is_some_and(|name| !succeeded(name)) {
        early.push(format!(
            "main of {pod} was started before its init container"
        ));
    }
    early
}

/// A sidecar is asked to end when `main` has ended, or when the grace is over.
fn sidecar_stopped_too_early(of_pod: &[&Entry], pod: &Desired) -> Vec<String> {
    let grace_is_over = |entry: &Entry| {
        let dismissed_at = pod.dismissed_at();
        dismissed_at.is_some_and(|at| entry.at.since(at) >= pod.grace())
    };
    let mut main_runs = false;
    let mut early = Vec::new();
    for entry in of_pod {
        match (&*entry.container, &entry.happening) {
            ("main", Happening::Started) => main_runs = true,
            ("main", Happening::Exited { .. }) => main_runs = false,
            (SIDECAR, Happening::Terminated) if main_runs && !grace_is_over(entry) => {
                early.push(format!("the sidecar of {pod} was stopped before main"));
            }
            _ => {}
        }
    }
    early
}
/// Since when somebody knows that a command failed in a container: where that was to be run
/// after its start, it is stopped for it.
pub(crate) fn command_failed_at(history: &[Entry], id: &str) -> Option<UnixNanos> {
    let mut failed = history.iter();
    let failed = failed.find(|it| it.id == id && it.happening == Happening::CommandFailed);
    failed.map(|entry| entry.at)
}
