//! In which order updates of one pod came: one that still waits for its pod while a
//! newer one comes must not count after it.
//!
//! sync-loop has one update of a pod under way at a time. Two of them meet here where
//! it was restarted, and the call of its former self has not ended yet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The newest update of each pod, while its call goes on.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Mutex<HashMap<String, Weak<AtomicBool>>>);

/// An update whose call goes on: whether a newer one of its pod has come.
#[derive(Debug, Default)]
pub(super) struct Arrival(Arc<AtomicBool>);

impl Arrivals {
    /// An update of a pod has come.
    pub(super) fn arrive(&self, uid: &str) -> Arrival {
        let arrival = Arrival::default();
        let mut pods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pods.retain(|_, newest| newest.strong_count() > 0);
        let older = pods.insert(uid.to_owned(), Arc::downgrade(&arrival.0));
        if let Some(older) = older.and_then(|older| older.upgrade()) {
            older.store(true, Ordering::Relaxed);
        }
        arrival
    }
}

impl Arrival {
    /// Whether no newer update of the pod has come.
    pub(super) fn is_newest(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_update_of_the_same_pod_counts_no_more() {
        let arrivals = Arrivals::default();
        let (first, other) = (arrivals.arrive("a"), arrivals.arrive("b"));
        assert!(first.is_newest() && other.is_newest());
        let second = arrivals.arrive("a");
        assert!(!first.is_newest() && second.is_newest() && other.is_newest());
        // Also when the call of the newer one has ended.
        drop(second);
        assert!(!first.is_newest());
        drop((first, other));
        assert!(arrivals.arrive("a").is_newest());
        assert_eq!(
            arrivals.0.lock().unwrap().len(),
            1,
            "ended ones are forgotten"
        );
    }
}
