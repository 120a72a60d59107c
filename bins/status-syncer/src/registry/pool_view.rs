//! What the pool has, as its stream tells, and what follows for pods that it has no more.

use std::collections::BTreeSet;

use bulkhead_api::v1::WorkerPhase;
use clock::UnixNanos;

use super::{Entry, Hold, Registry};

/// What the pool has.
#[derive(Debug, Default)]
pub(super) struct PoolView {
    pub(super) boot_id: String,
    /// Whether a whole snapshot was seen since our start.
    pub(super) complete: bool,
    pub(super) present: BTreeSet<String>,
    /// Pods of the snapshot that is being received.
    pub(super) snapshot: Option<BTreeSet<String>>,
}

impl Registry {
    /// A stream of the pool begins with its snapshot.
    pub(crate) fn begin_snapshot(&mut self, boot_id: &str) {
        let boot_id = &boot_id[..boot_id.floor_char_boundary(ipc::limits::MAX_BOOT_ID_BYTES)];
        boot_id.clone_into(&mut self.pool.boot_id);
        self.pool.snapshot = Some(BTreeSet::new());
    }

    /// The snapshot is complete: pods that it lacks are not in the pool.
    pub(crate) fn end_snapshot(&mut self, now: UnixNanos) {
        let Some(present) = self.pool.snapshot.take() else {
            return;
        };
        // What this run of the pool had, it has let go unheard. Another run may only not have
        // it yet.
        let had = |entry: &Entry| {
            let worker = entry.worker.as_ref();
            worker.is_some_and(|(boot_id, _)| *boot_id == self.pool.boot_id)
        };
        let lost = |(uid, entry): &(&String, &Entry)| !present.contains(*uid) && had(entry);
        let lost = self.pods.iter().filter(lost).map(|(uid, _)| uid.clone());
        let lost: Vec<String> = lost.collect();
        self.pool.present = present;
        self.pool.complete = true;
        for uid in lost {
            self.note_end(&uid, now);
        }
        self.drop_orphans();
    }

    /// The pool has no worker for this pod any more.
    pub(crate) fn let_go(&mut self, uid: &str, now: UnixNanos) {
        self.pool.present.remove(uid);
        if let Some(snapshot) = &mut self.pool.snapshot {
            snapshot.remove(uid);
        }
        self.note_end(uid, now);
        self.drop_orphans();
    }

    /// The pool lets go only of what has ended. The last observation may be of before that:
    /// of what we have not read in time the pool keeps only the newest.
    fn note_end(&mut self, uid: &str, now: UnixNanos) {
        let entry = self.pods.get_mut(uid).filter(|entry| !entry.is_stopped());
        let Some(entry) = entry else {
            return;
        };
        let observation = entry.observation.get_or_insert_default();
        observation.set_phase(WorkerPhase::Finished);
        entry.worker = Some((self.pool.boot_id.clone(), WorkerPhase::Finished));
        let pod = entry.desired.decode().ok().filter(|_| !entry.is_cut);
        if let Some(pod) = pod {
            let renewal = entry.compute(&pod, &self.verdicts, now);
            self.note(uid.to_owned(), renewal);
        }
    }

    pub(super) fn drop_orphans(&mut self) {
        if !self.pool.complete || self.pool.snapshot.is_some() {
            return;
        }
        let gone: Vec<String> = self
            .pods
            .iter()
            .filter(|(uid, entry)| {
                entry.hold == Hold::Orphaned && !self.pool.present.contains(*uid)
            })
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in gone {
            self.pods.remove(&uid);
            self.verdicts.remove_pod(&uid);
            self.changed.remove(&uid);
            self.removed.insert(uid);
            self.unsaved = true;
        }
    }
}
