//! Whether the statuses that are served say what the runtime has, and of the
//! pods that are desired only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod::core::ContainerStatus;
use pod::{Pod, PodExt as _};
use simulated_runtime::{ContainerView, Entry, Happening, SimulatedRuntime};

use crate::desired::{Desired, VERSION_LABEL};
use crate::targets::Targets;
use crate::uids::uids_by_version;

/// What the runtime has, for comparing.
struct Truth<'a> {
    history: Arc<Vec<Entry>>,
    containers: Vec<ContainerView>,
    targets: &'a Targets,
}

impl Truth<'_> {
    /// Whether a container that runs is ready.
    fn is_ready(&self, desired: &Desired, name: &str) -> bool {
        desired.readiness_threshold(name).is_none()
            || self.targets.is_ready(desired.version(), name)
    }

    /// The newest container of a name in a pod.
    fn newest(&self, uid: &str, name: &str) -> Option<&ContainerView> {
        let mut instances = self.containers.iter();
        let found = instances
            .by_ref()
            .filter(|one| one.pod_uid == uid && one.name == name);
        found.max_by_key(|one| attempt(one))
    }

    /// How a container ended, once it has.
    fn exit_code(&self, id: &str) -> Option<i32> {
        self.history.iter().find_map(|entry| match entry.happening {
            Happening::Exited { code, .. } if entry.id == id => Some(code),
            _ => None,
        })
    }
}

/// How the last instance of a container ended that did.
fn last_exit_code(history: &[Entry], uid: &str, name: &str) -> Option<i32> {
    let of_container = |entry: &&Entry| entry.pod_uid == uid && entry.container == name;
    let mut newest_first = history.iter().rev().filter(of_container);
    newest_first.find_map(|entry| match entry.happening {
        Happening::Exited { code, .. } => Some(code),
        _ => None,
    })
}

fn attempt(container: &ContainerView) -> u32 {
    let metadata = container.config.metadata.as_ref();
    metadata.map_or(0, |metadata| metadata.attempt)
}

/// What the served pods say that is not so; empty when they agree with the
/// runtime and with what is desired.
#[must_use]
pub fn wrong_statuses(
    runtime: &SimulatedRuntime,
    targets: &Targets,
    desired: &BTreeMap<String, Desired>,
    served: &[Pod],
) -> Vec<String> {
    let truth = Truth {
        history: runtime.history(),
        containers: runtime.containers(),
        targets,
    };
    let uids = uids_by_version(&truth.history);
    let mut wrong = Vec::new();
    let mut wanted = BTreeSet::new();
    let mut addresses = BTreeSet::new();
    for pod in desired.values() {
        let Some(uid) = uids.get(&pod.version_label()) else {
            wrong.push(format!("{pod} has no sandbox to have a status of"));
            continue;
        };
        wanted.insert(uid.as_str());
        let mut of_pod = served.iter().filter(|one| one.uid() == uid);
        let (Some(status), None) = (of_pod.next(), of_pod.next()) else {
            wrong.push(format!("{pod} has not one status"));
            continue;
        };
        let mut say = |what: String| wrong.push(format!("the status of {pod}: {what}"));
        compare_pod(&truth, pod, uid, status, &mut say);
        let address = status.status.as_ref().and_then(|it| it.pod_ip.as_deref());
        if !pod.servers().is_empty() && !address.is_some_and(|it| addresses.insert(it)) {
            say(format!("address {address:?} is missing or another's"));
        }
    }
    for pod in served.iter().filter(|pod| !wanted.contains(pod.uid())) {
        wrong.push(format!("a status of {} is left", pod.uid()));
    }
    wrong
}

fn compare_pod(
    truth: &Truth<'_>,
    desired: &Desired,
    uid: &str,
    served: &Pod,
    say: &mut impl FnMut(String),
) {
    let labels = served.metadata.labels.as_ref();
    let version = labels.and_then(|labels| labels.get(VERSION_LABEL));
    if version != Some(&desired.version_label()) {
        say(format!("it is that of version {version:?}"));
    }
    let status = served.status.clone().unwrap_or_default();
    let expected = phase(truth, desired, uid);
    if status.phase.as_deref() != Some(expected) {
        say(format!("phase {:?}, not {expected}", status.phase));
    }
    let conditions = status.conditions.unwrap_or_default();
    let mut servers = desired.servers().iter();
    let all_ready =
        !desired.servers().is_empty() && servers.all(|name| truth.is_ready(desired, name));
    for kind in ["Ready", "ContainersReady"] {
        let found = conditions.iter().find(|one| one.type_ == kind);
        let is_true = found.is_some_and(|one| one.status == "True");
        if is_true != all_ready {
            say(format!("{kind} is {is_true}"));
        }
    }
    let init = status.init_container_statuses.unwrap_or_default();
    let ordinary = status.container_statuses.unwrap_or_default();
    let names: Vec<&str> = init.iter().chain(&ordinary).map(|one| &*one.name).collect();
    let all: Vec<&str> = desired
        .once()
        .iter()
        .chain(desired.servers())
        .copied()
        .collect();
    if names != all {
        say(format!("containers {names:?}, not {all:?}"));
    }
    for container in &init {
        compare_container(truth, uid, container, true, say);
        // One is ready once it has done its work.
        if !container.ready {
            say(format!("{} is not ready", container.name));
        }
    }
    for container in &ordinary {
        let ready = compare_container(truth, uid, container, false, say)
            .is_some_and(|instance| instance.running)
            && truth.is_ready(desired, &container.name);
        if container.ready != ready {
            say(format!("{} is ready: {}", container.name, container.ready));
        }
    }
}

fn phase(truth: &Truth<'_>, desired: &Desired, uid: &str) -> &'static str {
    if !desired.servers().is_empty() {
        return "Running";
    }
    let names = desired.once().iter();
    let codes = names.map(|name| last_exit_code(&truth.history, uid, name));
    let failed = codes.into_iter().any(|code| code != Some(0));
    if failed { "Failed" } else { "Succeeded" }
}

/// Compares all but readiness; the container that it is about.
fn compare_container<'a>(
    truth: &'a Truth<'_>,
    uid: &str,
    status: &ContainerStatus,
    is_init: bool,
    say: &mut impl FnMut(String),
) -> Option<&'a ContainerView> {
    let name = &status.name;
    let state = status.state.clone().unwrap_or_default();
    let exit_code = state.terminated.as_ref().map(|ended| ended.exit_code);
    let id = status
        .container_id
        .as_deref()
        .and_then(|id| id.split_once("://"));
    let Some(container) = truth.newest(uid, name) else {
        // The remains of an init container are collected while its pod runs, and those of
        // a job where the node is short of disk. What is told of it stays.
        let ended = id.and_then(|(_, id)| truth.exit_code(id));
        if exit_code.is_none() || exit_code != ended {
            say(format!("{name} is not in the runtime: {status:?}"));
        }
        return None;
    };
    if id.map(|(_, id)| id) != Some(&*container.id) {
        say(format!(
            "{name} is {:?}, not {}",
            status.container_id, container.id
        ));
    }
    let restarts = i64::from(status.restart_count);
    if restarts != i64::from(attempt(container)) {
        say(format!(
            "{name} was restarted {restarts} times, not {}",
            attempt(container)
        ));
    }
    if state.running.is_some() != container.running {
        say(format!(
            "{name} runs: {}, but says {state:?}",
            container.running
        ));
    }
    if exit_code != truth.exit_code(&container.id) {
        say(format!("{name} ended with {exit_code:?}"));
    }
    if !is_init && status.started != Some(container.running) {
        say(format!("{name} has started: {:?}", status.started));
    }
    Some(container)
}
