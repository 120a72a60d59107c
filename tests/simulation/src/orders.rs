//! What must hold all along of the order in which the containers of a pod start and stop,
//! and of hooks.

use std::collections::BTreeSet;

use simulated_runtime::{Entry, Happening};

use crate::desired::{Desired, SIDECAR};
use crate::uids::uids_by_version;

/// What happened in a wrong order, or too often.
pub(crate) fn broken(history: &[Entry], versions: &[Desired]) -> Vec<String> {
    let uids = uids_by_version(history);
    let mut broken = begun_twice(history);
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
