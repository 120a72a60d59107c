//! Which peers are reached, for people.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_api::v1::PeerStatus;
use topology::Process;

use ipc::limits::{MAX_BOOT_ID_BYTES, truncate};

/// Longest error that is kept, in bytes.
const MAX_ERROR_BYTES: usize = 512;

/// Cloning shares it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerBoard(Arc<Mutex<BTreeMap<Process, PeerStatus>>>);

impl PeerBoard {
    /// A peer answered. Its boot id is empty when the answer named none.
    pub(crate) fn reached(&self, process: Process, boot_id: &str) {
        self.change(process, |peer| {
            peer.connected = true;
            if !boot_id.is_empty() && peer.boot_id != boot_id {
                boot_id.clone_into(&mut peer.boot_id);
                truncate(&mut peer.boot_id, MAX_BOOT_ID_BYTES);
            }
        });
    }

    /// A peer was not reached, or refused.
    pub(crate) fn failed(&self, process: Process, error: &str) {
        let mut error = error.to_owned();
        truncate(&mut error, MAX_ERROR_BYTES);
        self.change(process, |peer| {
            peer.connected = false;
            peer.last_error = error;
        });
    }

    /// All peers.
    pub(crate) fn all(&self) -> Vec<PeerStatus> {
        self.lock().values().cloned().collect()
    }

    fn change(&self, process: Process, change: impl FnOnce(&mut PeerStatus)) {
        let mut peers = self.lock();
        let peer = peers.entry(process).or_insert_with(|| PeerStatus {
            process: process.name().to_owned(),
            ..PeerStatus::default()
        });
        change(peer);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Process, PeerStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
