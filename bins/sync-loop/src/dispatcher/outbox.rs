//! What is on its way to the workers: the newest update of each pod, one at a
//! time in flight. Pure; `shell::pool` does the sending.
//!
//! ```text
//! push --> waiting --take--> in flight --delivered--> gone
//!             ^                  |
//!             +---- failed ------+   (merged with what came meanwhile)
//! ```
//!
//! - Waiting: a newer update replaces an older one, except that a KILL stays
//!   and that a CREATE stays a CREATE.
//! - A CREATE after a KILL is the same uid made anew: both are sent, in order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bulkhead_api::v1::{
    KillOptions, PendingResize, PodReference, ProbeVerdict, UpdatePodRequest, UpdateType,
};
use clock::UnixNanos;
use pod::{PodDocument, PodIdentity};

use super::desired_pods::Uid;
use super::pod_facts::PodFacts;

/// What kind of update; the pool's `UpdateKind` is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpdateKind {
    /// The pod was added.
    Create,
    /// Its desired state changed.
    Update,
    /// Look at it again.
    Sync,
    /// Stop it.
    Kill {
        /// Since when it is to be stopped.
        requested_at: UnixNanos,
    },
}

impl UpdateKind {
    /// Of the first update of a pod that may run. With an update the pool takes the status from
    /// the source as well.
    #[must_use]
    pub(crate) fn first(facts: &PodFacts) -> UpdateKind {
        match facts.phase.is_terminal() {
            true => UpdateKind::Update,
            false => UpdateKind::Create,
        }
    }

    /// The word of the contract.
    #[must_use]
    pub(crate) fn update_type(&self) -> UpdateType {
        match self {
            UpdateKind::Create => UpdateType::Create,
            UpdateKind::Update => UpdateType::Update,
            UpdateKind::Sync => UpdateType::Sync,
            UpdateKind::Kill { .. } => UpdateType::Kill,
        }
    }
}

/// The pod of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpdatedPod {
    /// A pod that a source has.
    Desired(PodDocument),
    /// A pod that only the runtime, or a worker, has.
    RuntimeOnly(PodIdentity),
}

/// One update for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerUpdate {
    /// The pod.
    pub uid: Uid,
    /// Running number of all updates; the answer names the newest that it covers.
    pub sequence: u64,
    /// What kind of update it is.
    pub kind: UpdateKind,
    /// Which version of the pod, or its name alone.
    pub pod: UpdatedPod,
    /// All verdicts that are known of the pod.
    pub verdicts: Vec<ProbeVerdict>,
    /// Why the pod does not get the CPU and memory that it is to have, if it waits.
    pub pending_resize: Option<PendingResize>,
    /// Why, for people.
    pub cause: String,
}

impl WorkerUpdate {
    /// The message: it names the pod and its version; the pool takes the pod itself
    /// from config-sourcer.
    #[must_use]
    pub(crate) fn to_request(&self) -> UpdatePodRequest {
        let (identity, hash) = match &self.pod {
            UpdatedPod::Desired(document) => (document.identity(), document.hash().to_owned()),
            UpdatedPod::RuntimeOnly(identity) => (identity, String::new()),
        };
        let kill = match &self.kind {
            UpdateKind::Kill { requested_at } => Some(KillOptions {
                requested_at_unix_nanos: requested_at.0,
            }),
            _ => None,
        };
        UpdatePodRequest {
            r#type: self.kind.update_type().into(),
            pod: Some(PodReference::from(identity)),
            hash,
            kill,
            verdicts: self.verdicts.clone(),
            pending_resize: self.pending_resize.clone(),
            cause: self.cause.clone(),
        }
    }
}

/// How an attempt to send ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The pool has it, or has refused it for good.
    Settled,
    /// Nobody knows; it is to be sent again.
    Failed,
    /// config-sourcer has another version of the pod by now. It is of no use any
    /// more, but for what a newer update that waits takes over from it.
    Outdated,
}

/// The updates of one pod.
#[derive(Debug, Default)]
struct PodUpdates {
    in_flight: Option<WorkerUpdate>,
    /// At most two: a KILL and the CREATE after it.
    waiting: Vec<WorkerUpdate>,
    queued: Queued,
}

/// Where a pod whose update waits has its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Queued {
    #[default]
    No,
    Turn,
    Kill,
}

/// All updates that are on their way. Its size is bounded by the number of pods.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pods: BTreeMap<Uid, PodUpdates>,
    /// Pods whose next update is a KILL: they never wait for the others.
    kills: VecDeque<Uid>,
    /// All other pods with an update that waits.
    turn: VecDeque<Uid>,
}

impl Outbox {
    /// Takes an update in.
    pub(crate) fn push(&mut self, update: WorkerUpdate) {
        let uid = Arc::clone(&update.uid);
        let updates = self.pods.entry(Arc::clone(&uid)).or_default();
        merge(&mut updates.waiting, update);
        self.queue(&uid);
    }

    /// The next update to send: KILLs first, else pods taking turns; `None` when
    /// nothing waits.
    pub(crate) fn take(&mut self) -> Option<WorkerUpdate> {
        self.take_kill().or_else(|| {
            let uid = self.turn.pop_front()?;
            self.take_of(&uid)
        })
    }

    /// The next KILL to send.
    pub(crate) fn take_kill(&mut self) -> Option<WorkerUpdate> {
        let uid = self.kills.pop_front()?;
        self.take_of(&uid)
    }

    fn take_of(&mut self, uid: &Uid) -> Option<WorkerUpdate> {
        let updates = self.pods.get_mut(uid)?;
        updates.queued = Queued::No;
        let update = updates.waiting.remove(0);
        updates.in_flight = Some(update.clone());
        Some(update)
    }

    /// An update that was taken is settled, or has to be sent again.
    pub(crate) fn done(&mut self, uid: &Uid, delivery: Delivery) {
        let Some(updates) = self.pods.get_mut(uid) else {
            return;
        };
        let sent = updates.in_flight.take();
        let is_merged = match delivery {
            Delivery::Settled => false,
            Delivery::Failed => true,
            Delivery::Outdated => !updates.waiting.is_empty(),
        };
        if is_merged {
            let newer = std::mem::take(&mut updates.waiting);
            for update in sent.into_iter().chain(newer) {
                merge(&mut updates.waiting, update);
            }
        }
        if updates.waiting.is_empty() {
            self.pods.remove(uid);
        } else {
            self.queue(uid);
        }
    }

    /// Whether nothing is on its way.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Gives the pod the place that its next update has.
    fn queue(&mut self, uid: &Uid) {
        let Some(updates) = self.pods.get_mut(uid) else {
            return;
        };
        let place = match updates.waiting.first() {
            Some(next) if updates.in_flight.is_none() => match next.kind {
                UpdateKind::Kill { .. } => Queued::Kill,
                UpdateKind::Create | UpdateKind::Update | UpdateKind::Sync => Queued::Turn,
            },
            _ => return,
        };
        if updates.queued == place {
            return;
        }
        if updates.queued == Queued::Turn {
            self.turn.retain(|other| other != uid);
        }
        updates.queued = place;
        match place {
            Queued::Kill => self.kills.push_back(Arc::clone(uid)),
            Queued::Turn | Queued::No => self.turn.push_back(Arc::clone(uid)),
        }
    }
}

/// Adds an update to those of its pod that wait, by the rules of the header.
fn merge(waiting: &mut Vec<WorkerUpdate>, mut newer: WorkerUpdate) {
    let Some(older) = waiting.pop() else {
        waiting.push(newer);
        return;
    };
    match (older.kind.clone(), newer.kind.clone()) {
        (UpdateKind::Kill { .. }, UpdateKind::Create) => waiting.extend([older, newer]),
        (
            UpdateKind::Kill { requested_at },
            UpdateKind::Kill {
                requested_at: again,
            },
        ) => {
            let requested_at = requested_at.min(again);
            newer.kind = UpdateKind::Kill { requested_at };
            // What a source said of the pod is worth more than its name.
            if matches!(newer.pod, UpdatedPod::RuntimeOnly(_)) {
                newer.pod = older.pod;
            }
            waiting.push(newer);
        }
        (_, UpdateKind::Kill { .. }) => {
            // The instance that was to be created is not wanted any more; a kill
            // of the one before it absorbs this one.
            if waiting.is_empty() {
                waiting.push(newer);
            } else {
                merge(waiting, newer);
            }
        }
        (UpdateKind::Kill { .. }, UpdateKind::Update | UpdateKind::Sync) => {
            newer.kind = older.kind;
            newer.cause = older.cause;
            waiting.push(newer);
        }
        (UpdateKind::Create, UpdateKind::Update | UpdateKind::Sync) => {
            newer.kind = UpdateKind::Create;
            waiting.push(newer);
        }
        (UpdateKind::Update, UpdateKind::Sync) => {
            newer.kind = UpdateKind::Update;
            waiting.push(newer);
        }
        (_, UpdateKind::Create | UpdateKind::Update | UpdateKind::Sync) => waiting.push(newer),
    }
}

#[cfg(test)]
mod tests;
