//! Which events follow from two relists: the comparison at the heart of the
//! PLEG, over plain values.
//!
//! Behaviour of the kubelet's generic PLEG (1.26 `pkg/kubelet/pleg/generic.go`):
//! the first relist reports everything that it finds, a later one only what
//! changed; a container that vanished while it ran has died and was removed; a
//! container that had died before is only removed.
//!
//! Two deliberate differences: changes of a sandbox are `PodSync` events, so
//! that no reader takes a sandbox for a container; and a container that is
//! created but not started yet is no event, because its start is about to be
//! one and the reader would look twice.
//!
//! What does not live here: when to relist (`schedule`), and calls (`shell`).

use std::collections::{BTreeMap, BTreeSet};

/// State of a container, as a relist sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerState {
    /// Made, not started.
    Created,
    /// Its process runs.
    Running,
    /// Its process ended.
    Exited,
    /// The runtime cannot tell.
    Unknown,
}

/// State of a sandbox, as a relist sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SandboxState {
    /// Containers can run in it.
    Ready,
    /// It is stopped.
    NotReady,
}

/// What a relist found of one pod, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodRecord {
    /// Its containers.
    pub containers: BTreeMap<String, ContainerState>,
    /// Its sandboxes.
    pub sandboxes: BTreeMap<String, SandboxState>,
}

/// All pods of a relist, by uid.
pub(crate) type Pods = BTreeMap<String, PodRecord>;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventKind {
    /// A container runs now.
    ContainerStarted,
    /// A container ran, or may have, and does not any more.
    ContainerDied,
    /// A container is gone from the runtime.
    ContainerRemoved,
    /// The runtime cannot tell a container's state any more.
    ContainerChanged,
    /// Something about the pod as a whole: its sandbox changed, or a snapshot had no room
    /// for what it has.
    PodSync,
}

/// An event about one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The pod.
    pub pod_uid: String,
    /// What happened.
    pub kind: EventKind,
    /// The container or sandbox that it happened to; empty when none is known.
    pub id: String,
}

/// What the last relists found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    pods: Pods,
}

impl Records {
    /// Takes a relist of all pods; returns what changed since the last.
    pub(crate) fn apply_all(&mut self, current: Pods) -> Vec<Event> {
        let events = keys(&self.pods, &current)
            .into_iter()
            .flat_map(|uid| pod_events(uid, self.pods.get(uid), current.get(uid)))
            .collect();
        self.pods = current;
        events
    }

    /// Takes a relist of one pod, `None` when the runtime has nothing of it;
    /// returns what changed since the last.
    pub(crate) fn apply_one(&mut self, uid: &str, current: Option<PodRecord>) -> Vec<Event> {
        let events = pod_events(uid, self.pods.get(uid), current.as_ref());
        match current {
            Some(current) => self.pods.insert(uid.to_owned(), current),
            None => self.pods.remove(uid),
        };
        events
    }

    /// The pods of the last relist.
    pub(crate) fn pod_uids(&self) -> impl Iterator<Item = &String> {
        self.pods.keys()
    }
}

/// The events of one pod.
fn pod_events(uid: &str, old: Option<&PodRecord>, new: Option<&PodRecord>) -> Vec<Event> {
    let nothing = PodRecord::default();
    let old = old.unwrap_or(&nothing);
    let new = new.unwrap_or(&nothing);
    let event = |kind, id: &str| Event {
        pod_uid: uid.to_owned(),
        kind,
        id: id.to_owned(),
    };
    let mut events = Vec::new();
    for id in keys(&old.containers, &new.containers) {
        let kinds = container_events(
            old.containers.get(id).copied(),
            new.containers.get(id).copied(),
        );
        events.extend(kinds.iter().map(|kind| event(*kind, id)));
    }
    for id in keys(&old.sandboxes, &new.sandboxes) {
        if old.sandboxes.get(id) != new.sandboxes.get(id) {
            events.push(event(EventKind::PodSync, id));
        }
    }
    events
}

/// The events of one container; `None` is "the runtime does not have it".
fn container_events(
    old: Option<ContainerState>,
    new: Option<ContainerState>,
) -> &'static [EventKind] {
    use ContainerState::{Created, Exited, Running, Unknown};
    use EventKind::{ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted};
    match (old, new) {
        (old, new) if old == new => &[],
        (_, Some(Running)) => &[ContainerStarted],
        (_, Some(Exited)) => &[ContainerDied],
        (None, Some(Created)) => &[],
        (_, Some(Created | Unknown)) => &[ContainerChanged],
        (Some(Exited), None) => &[ContainerRemoved],
        (_, None) => &[ContainerDied, ContainerRemoved],
    }
}

fn keys<'a, V>(old: &'a BTreeMap<String, V>, new: &'a BTreeMap<String, V>) -> BTreeSet<&'a String> {
    old.keys().chain(new.keys()).collect()
}

#[cfg(test)]
mod tests;
