//! One lock a pod UID: steps of a worker and the removal of what an earlier worker
//! of that UID left keep out of each other's way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// The locks. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodLocks(Arc<Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>>);

impl PodLocks {
    /// Waits for a pod's lock.
    pub(crate) async fn lock(&self, uid: &str) -> OwnedMutexGuard<()> {
        self.of(uid).lock_owned().await
    }

    /// A pod's lock, if nobody has it.
    #[must_use]
    pub(crate) fn try_lock(&self, uid: &str) -> Option<OwnedMutexGuard<()>> {
        self.of(uid).try_lock_owned().ok()
    }

    fn of(&self, uid: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(uid).and_then(Weak::upgrade) {
            return lock;
        }
        // Those that nobody holds or waits for go as others come.
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locks.insert(uid.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_pod_is_locked_and_others_are_not() {
        let locks = PodLocks::default();
        let held = locks.lock("a").await;
        let other = locks.lock("b").await;
        let waiter = tokio::spawn({
            let locks = locks.clone();
            async move { drop(locks.lock("a").await) }
        });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        assert!(locks.try_lock("a").is_none());
        drop(held);
        waiter.await.unwrap();
        drop(other);
        drop(locks.lock("c").await);
        assert_eq!(locks.0.lock().unwrap().len(), 1, "unused locks go");
    }
}
