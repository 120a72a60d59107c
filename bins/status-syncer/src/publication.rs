//! What is published of a pod, and to whom: the seam behind which sending
//! statuses to an API server comes later.

use bulkhead_api::v1;
use ipc::StateHub;
use ipc::limits::truncate;
use pod::PodDocument;

/// A pod as published: who it is, and the computed status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedPod {
    /// core/v1 Pod without its spec, status as computed.
    pub document: PodDocument,
    /// The pod as it is to run, once the pool has sent it. Not saved.
    pub desired: Option<PodDocument>,
    /// What the pod's worker last did, for people. Not saved.
    pub worker: WorkerNotes,
}

/// How a pod's worker stands, and what it last did, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerNotes {
    /// How far it is; unspecified before the pool has said so.
    pub phase: v1::WorkerPhase,
    /// What its last plan was and why.
    pub last_plan: String,
    /// Error of its last sync, or empty.
    pub sync_error: String,
}

/// Longest note that is published, in bytes.
pub(crate) const MAX_NOTE_BYTES: usize = 1024;

impl WorkerNotes {
    /// What the pool tells of it.
    pub(crate) fn of(observation: &v1::PodObservation) -> WorkerNotes {
        let note = |text: &String| {
            let mut text = text.clone();
            truncate(&mut text, MAX_NOTE_BYTES);
            text
        };
        WorkerNotes {
            phase: observation.phase(),
            last_plan: note(&observation.last_plan),
            sync_error: note(&observation.sync_error),
        }
    }
}

impl PublishedPod {
    /// The UID: a status is for this very pod, not for another of its name.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.document.identity().uid()
    }
}

/// A change to publish. The latest for a pod is enough: none builds on another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The pod has a new status.
    Set(Box<PublishedPod>),
    /// The pod with this UID is gone for good.
    Removed(String),
}

/// Takes statuses away from this process.
pub(crate) trait Publisher: Send {
    /// Publishes a change; must not block. Called once the change is saved.
    fn publish(&mut self, change: &Change);
}

/// Statuses for readers on this node, by UID.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalReaders(StateHub<String, PublishedPod>);

impl LocalReaders {
    /// What readers see.
    #[must_use]
    pub(crate) fn hub(&self) -> &StateHub<String, PublishedPod> {
        &self.0
    }
}

impl Publisher for LocalReaders {
    fn publish(&mut self, change: &Change) {
        match change {
            Change::Set(pod) => {
                self.0.set(pod.uid().to_owned(), (**pod).clone());
            }
            Change::Removed(uid) => {
                self.0.remove(uid);
            }
        }
    }
}

impl From<&PublishedPod> for v1::PodStatusEntry {
    fn from(pod: &PublishedPod) -> v1::PodStatusEntry {
        v1::PodStatusEntry {
            pod: Some(pod.document.to_message()),
            last_plan: pod.worker.last_plan.clone(),
            sync_error: pod.worker.sync_error.clone(),
            ..v1::PodStatusEntry::default()
        }
    }
}
