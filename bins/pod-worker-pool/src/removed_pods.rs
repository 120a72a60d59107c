//! [`RemovedPods`]: pods that this process has stopped because their source has removed them,
//! and whose worker is gone. The workers' actor notes them, and garbage collection looks
//! there.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pods that their source has removed and that have ended: what they left may be removed although other
/// sources have not delivered. Losing this costs only that: it is then removed once all
/// sources have delivered. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemovedPods(Arc<Mutex<HashSet<String>>>);

impl RemovedPods {
    /// The worker of a pod is forgotten, and nobody wants the pod any more.
    pub(crate) fn insert(&self, uid: &str) {
        self.lock().insert(uid.to_owned());
    }

    /// The worker of a pod is forgotten, and the pod begins anew.
    pub(crate) fn remove(&self, uid: &str) {
        self.lock().remove(uid);
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
