//! What the pool has, as its stream tells.

use std::collections::BTreeSet;

/// What the pool has.
#[derive(Debug, Default)]
pub(super) struct PoolView {
    pub(super) boot_id: String,
    /// Whether a whole snapshot was seen since our start.
    complete: bool,
    present: BTreeSet<String>,
    /// Pods of the snapshot that is being received.
    snapshot: Option<BTreeSet<String>>,
}

impl PoolView {
    /// A stream begins with its snapshot.
    pub(super) fn begin_snapshot(&mut self, boot_id: &str) {
        let boot_id = &boot_id[..boot_id.floor_char_boundary(ipc::limits::MAX_BOOT_ID_BYTES)];
        boot_id.clone_into(&mut self.boot_id);
        self.snapshot = Some(BTreeSet::new());
    }

    /// The snapshot is complete: pods that it lacks are not in the pool.
    pub(super) fn end_snapshot(&mut self) {
        if let Some(present) = self.snapshot.take() {
            self.present = present;
            self.complete = true;
        }
    }

    /// The pool tells of this pod.
    pub(super) fn note(&mut self, uid: &str) {
        let pods = self.snapshot.as_mut().unwrap_or(&mut self.present);
        if pods.len() < ipc::limits::MAX_PODS {
            pods.insert(uid.to_owned());
        }
    }

    /// The pool has no worker for this pod any more.
    pub(super) fn let_go(&mut self, uid: &str) {
        self.present.remove(uid);
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.remove(uid);
        }
    }

    /// Whether the pool has this pod, as far as is known.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.present.contains(uid)
    }

    /// Whether it is known which pods the pool has.
    pub(super) fn is_whole(&self) -> bool {
        self.complete && self.snapshot.is_none()
    }
}
