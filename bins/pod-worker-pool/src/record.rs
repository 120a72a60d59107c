//! What must survive the death of this process and is nowhere else: kills that
//! were begun, and since when a pod with a deadline counts. One small file a pod,
//! written before the first signal is sent, so that whoever resumes the kill knows
//! why, and gives neither more nor less grace.
//!
//! Deleting any of the files at any time is safe for the node, and costs this: a
//! termination is asked for again and begins anew with its full grace; an instance
//! that was killed counts as one that ended by itself; and a pod that was evicted,
//! which nothing but its record tells of, starts again if its source has it still;
//! the deadline of a pod that has no sandbox yet begins anew.
//!
//! The files are read once, at the start. After that whoever asks is answered from
//! memory, and one [`RecordWriter`] does what there is to do to the files, so that a
//! disk that hangs holds up only who has to know that something is written, and not
//! for long. It carries changes out in their order, and of those of one pod the
//! newest: no late removal takes a record away that was made after it. Only for the
//! record of an eviction it waits until the disk has it: the others are of no use
//! after a crash of the machine, and outlive one of this process all the same.

mod writer;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clock::UnixNanos;
use pod::PodIdentity;
use serde::{Deserialize, Serialize};
use state_file::StateFileError;
use tokio::sync::{Notify, oneshot};

use crate::stop::{KillReason, SAVE_MAY_TAKE, StopRecords};
use crate::worker::Termination;

use writer::Directory;
pub(crate) use writer::{Lives, RecordWriter};

/// What is recorded of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Why and with which grace the whole pod is stopped, if it is.
    pub termination: Option<Termination>,
    /// Why single instances are stopped while the pod lives on, by container id.
    pub kills: BTreeMap<String, KillReason>,
    /// Until when instances that are being stopped may take, for either reason.
    pub stops: StopRecords,
    /// When the first sync of a pod with a deadline was.
    #[serde(default, with = "nanos")]
    pub started_at: Option<UnixNanos>,
}

/// Why a record is not known to be in its file.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// The file system refused; what was written before stands. It is tried again.
    #[error("the record of the pod is not written")]
    Failed(#[source] Arc<StateFileError>),
    /// The file system has not answered yet.
    #[error("the record of the pod is not written in time")]
    Late,
}

/// The records. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<Known>,
    /// Rings for the writer.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// By UID.
    entries: BTreeMap<String, Entry>,
    /// How many changes there were.
    changes: u64,
}

/// What is known of one pod's file.
#[derive(Debug, Default)]
struct Entry {
    /// What should be in the file; `None` for one that should not be there, or that
    /// cannot be read.
    content: Option<Content>,
    /// The number of the change that the file lacks.
    unwritten: Option<u64>,
    /// Writing that change has failed; it has to wait for the next attempt.
    failed: bool,
    /// Who waits for it.
    waiting: Vec<oneshot::Sender<Result<(), RecordError>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    namespace: String,
    name: String,
    record: Record,
}

impl Record {
    /// Whether it is of use after a crash of the machine, which ends all containers,
    /// and with them what there was to resume. A pod that was evicted stays so.
    fn outlives_the_machine(&self) -> bool {
        let termination = self.termination.as_ref();
        termination.is_some_and(|termination| termination.cause.is_known_by_record_alone())
    }
}

impl Content {
    /// What should be in the file of a pod.
    fn of(pod: &PodIdentity, record: &Record) -> Option<Content> {
        (*record != Record::default()).then(|| Content {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            record: record.clone(),
        })
    }
}

/// One thing to do to a file.
#[derive(Debug)]
struct Change {
    uid: String,
    number: u64,
    content: Option<Content>,
    waiting: Vec<oneshot::Sender<Result<(), RecordError>>>,
}

impl Records {
    /// Reads the records below the state directory of this process. Blocks for that.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub(crate) fn open(
        state_directory: &Path,
        lives: Lives,
    ) -> std::io::Result<(Records, RecordWriter)> {
        let directory = Directory::open(state_directory.join("kills"))?;
        let records = Records::default();
        let found = directory.read().into_iter().map(|(uid, content)| {
            let entry = Entry {
                content,
                ..Entry::default()
            };
            (uid, entry)
        });
        records.lock().entries.extend(found);
        let writer = RecordWriter::new(records.clone(), directory, lives);
        Ok((records, writer))
    }

    /// The record of a pod; an empty one if there is none that can be read.
    #[must_use]
    pub(crate) fn load(&self, pod: &PodIdentity) -> Record {
        let known = self.lock();
        let entry = known.entries.get(pod.uid());
        let content = entry.and_then(|entry| entry.content.as_ref());
        content
            .map(|content| content.record.clone())
            .unwrap_or_default()
    }

    /// All records; unreadable ones are left out.
    #[must_use]
    pub(crate) fn all(&self) -> Vec<(PodIdentity, Record)> {
        let known = self.lock();
        let contents = known.entries.iter();
        contents
            .filter_map(|(uid, entry)| {
                let content = entry.content.clone()?;
                let pod = PodIdentity::new(uid.clone(), content.namespace, content.name).ok()?;
                Some((pod, content.record))
            })
            .collect()
    }

    /// The pods that have files.
    #[must_use]
    pub(crate) fn uids(&self) -> Vec<String> {
        self.lock().entries.keys().cloned().collect()
    }

    /// Writes the record of a pod, or removes the file when it is empty, and waits
    /// until that is done. Who gives up waiting changes nothing.
    ///
    /// # Errors
    /// When the file system refuses or takes too long. It is done later then.
    pub(crate) async fn save(&self, pod: &PodIdentity, record: &Record) -> Result<(), RecordError> {
        let content = Content::of(pod, record);
        let (waiting, written) = oneshot::channel();
        if !self.change(pod.uid(), content, Some(waiting)) {
            return Ok(());
        }
        let written = tokio::time::timeout(SAVE_MAY_TAKE, written).await;
        written
            .unwrap_or(Ok(Err(RecordError::Late)))
            .unwrap_or(Err(RecordError::Late))
    }

    /// As [`Records::save`], for who need not know when it is done.
    pub(crate) fn save_later(&self, pod: &PodIdentity, record: &Record) {
        self.change(pod.uid(), Content::of(pod, record), None);
    }

    /// Removes the record of a pod; absent is fine. Its file goes a little later: one
    /// that is found by the next life is removed by that, as this one would.
    pub(crate) fn remove(&self, uid: &str) {
        self.change(uid, None, None);
    }

    /// Whether there is something to do.
    fn change(
        &self,
        uid: &str,
        content: Option<Content>,
        waiting: Option<oneshot::Sender<Result<(), RecordError>>>,
    ) -> bool {
        let known = &mut *self.lock();
        if content.is_none() && !known.entries.contains_key(uid) {
            return false;
        }
        let entry = known.entries.entry(uid.to_owned()).or_default();
        if content.is_some() && entry.content == content && entry.unwritten.is_none() {
            return false;
        }
        known.changes += 1;
        entry.content = content;
        entry.unwritten = Some(known.changes);
        entry.failed = false;
        entry.waiting.retain(|waiting| !waiting.is_closed());
        entry.waiting.extend(waiting);
        self.0.changed.notify_one();
        true
    }

    /// What the writer does next.
    fn next_change(&self) -> Option<Change> {
        let mut known = self.lock();
        let unwritten = known.entries.iter_mut().filter(|(_, entry)| !entry.failed);
        let oldest = unwritten
            .filter_map(|(uid, entry)| Some((entry.unwritten?, uid, entry)))
            .min_by_key(|(number, ..)| *number);
        oldest.map(|(number, uid, entry)| Change {
            uid: uid.clone(),
            number,
            content: entry.content.clone(),
            waiting: std::mem::take(&mut entry.waiting),
        })
    }

    /// A change was carried out, or not. One that came meanwhile is not concerned.
    fn carried_out(&self, uid: &str, number: u64, is_done: bool) {
        let mut known = self.lock();
        let Some(entry) = known.entries.get_mut(uid) else {
            return;
        };
        if entry.unwritten != Some(number) {
            return;
        }
        entry.failed = !is_done;
        if is_done {
            entry.unwritten = None;
            if entry.content.is_none() {
                known.entries.remove(uid);
            }
        }
    }

    fn has_failed(&self) -> bool {
        self.lock().entries.values().any(|entry| entry.failed)
    }

    fn try_failed_again(&self) {
        for entry in self.lock().entries.values_mut() {
            entry.failed = false;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        let known = &self.0.known;
        known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

mod nanos {
    use clock::UnixNanos;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        at: &Option<UnixNanos>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        at.map(|at| at.0).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<UnixNanos>, D::Error> {
        let nanos = Option::<i64>::deserialize(from)?;
        Ok(nanos.map(UnixNanos))
    }
}

#[cfg(test)]
mod tests;
