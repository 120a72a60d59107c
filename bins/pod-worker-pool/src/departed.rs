//! [`Departed`]: pods that are gone though not all sources have delivered. The workers'
//! actor notes them, and garbage collection looks there.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pods without a worker that this process has stopped and forgotten, because their own
/// source took them back: what they left is garbage whatever the other sources deliver.
/// Losing it costs only that: they are then garbage once all sources have delivered.
/// Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Departed(Arc<Mutex<HashSet<String>>>);

impl Departed {
    /// The worker of a pod is forgotten: nobody wants it any more, or it begins anew.
    pub(crate) fn forgotten(&self, uid: &str, begins_anew: bool) {
        match begins_anew {
            true => self.lock().remove(uid),
            false => self.lock().insert(uid.to_owned()),
        };
    }

    /// Whether nobody wanted the pod any more when its worker was forgotten.
    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.lock().contains(uid)
    }

    /// Keeps those of which something is left.
    pub(crate) fn retain(&self, is_left: impl Fn(&str) -> bool) {
        self.lock().retain(|uid| is_left(uid));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
