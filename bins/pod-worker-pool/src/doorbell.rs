//! A doorbell: something that a step waits for has happened beside it, and its pod
//! is to be looked at. What happened stands elsewhere.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Rings for pods; how often one rang before it was answered does not count, so
/// that no more wait here than there are pods. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doorbell(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rung: Mutex<BTreeSet<String>>,
    added: Notify,
}

impl Doorbell {
    fn pods(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a look at this pod.
    pub(crate) fn ring(&self, pod_uid: &str) {
        self.pods().insert(pod_uid.to_owned());
        self.0.added.notify_one();
    }

    /// The next pod to look at. Cancel-safe: a pod is taken only as it is answered.
    /// There may be one caller at a time.
    pub(crate) async fn rung(&self) -> String {
        loop {
            if let Some(pod_uid) = self.pods().pop_first() {
                return pod_uid;
            }
            self.0.added.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_pod_that_rang_is_answered_once() {
        let doorbell = Doorbell::default();
        let waiter = doorbell.clone();
        let first = tokio::spawn(async move { waiter.rung().await });
        tokio::task::yield_now().await;
        doorbell.ring("u1");
        assert_eq!(first.await.unwrap(), "u1");
        for uid in ["u2", "u3", "u2"] {
            doorbell.ring(uid);
        }
        // Who gives up takes none along.
        drop(doorbell.rung());
        assert_eq!(doorbell.rung().await, "u2");
        assert_eq!(doorbell.rung().await, "u3");
        let none = tokio::time::timeout(Duration::from_secs(1), doorbell.rung()).await;
        assert!(none.is_err());
    }
}
