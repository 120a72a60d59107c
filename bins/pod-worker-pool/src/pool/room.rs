//! How large all pods together may be.

use std::collections::BTreeMap;

use ipc::limits::{MAX_DESIRED_BYTES, MAX_POD_BYTES};
use pod_lifecycle::{DesiredPod, Update};

use super::entry::Entry;

/// Most bytes that all pods may have together here, as JSON: a fifth of the memory that
/// this process may use. sync-loop keeps to less, so only one that is broken, or a
/// config-sourcer that is, meets it: 600 pods of 1 MiB must not fill this process.
pub(super) const MAX_POOL_BYTES: usize = 32 << 20;

// A pod that sync-loop has let go of may be held here for a moment.
const _: () = assert!(MAX_POOL_BYTES >= MAX_DESIRED_BYTES + 8 * MAX_POD_BYTES);

/// Whether the pod of an update is no larger than the one that is known, or there is room
/// for it. So a pod that runs can always be stopped.
pub(super) fn is_there_for(update: &Update, workers: &BTreeMap<String, Entry>) -> bool {
    let bytes = |pod: &DesiredPod| pod.document().json().len();
    let new = update.subject.desired().map_or(0, bytes);
    let of_worker = |entry: &Entry| entry.worker.desired().map_or(0, bytes);
    let known = workers.get(update.subject.identity().uid());
    let known = known.map_or(0, of_worker);
    // Most updates change nothing, and then nothing is counted.
    new <= known || {
        let all: usize = workers.values().map(of_worker).sum();
        all - known + new <= MAX_POOL_BYTES
    }
}
