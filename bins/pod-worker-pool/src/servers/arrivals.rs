//! In which order updates of one pod came: one that still waits for its pod while a
//! newer one comes must not count after it.
//!
//! sync-loop has one update of a pod under way at a time. Two of them meet here where
//! it was restarted, and the call of its former self has not ended yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Updates that are being taken in. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    /// By pod: the number of its newest update, and how many are being taken in.
    pods: HashMap<String, (u64, usize)>,
}

/// An update that is being taken in; dropping it ends that.
#[derive(Debug)]
pub(super) struct Arrival {
    all: Arrivals,
    uid: String,
    number: u64,
}

impl Arrivals {
    /// An update of a pod has come.
    pub(super) fn arrive(&self, uid: &str) -> Arrival {
        let number = self.with(|inner| {
            inner.last += 1;
            let number = inner.last;
            let (newest, count) = inner.pods.entry(uid.to_owned()).or_default();
            *newest = number;
            *count += 1;
            number
        });
        Arrival {
            all: self.clone(),
            uid: uid.to_owned(),
            number,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Arrival {
    /// Whether no newer update of the pod has come.
    pub(super) fn is_newest(&self) -> bool {
        self.all.with(|inner| {
            let pod = inner.pods.get(&self.uid);
            pod.is_some_and(|(newest, _)| *newest == self.number)
        })
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.all.with(|inner| {
            if let Some((_, count)) = inner.pods.get_mut(&self.uid) {
                *count -= 1;
                if *count == 0 {
                    inner.pods.remove(&self.uid);
                }
            }
        });
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
        // Also when the newer one is taken in already.
        drop(second);
        assert!(!first.is_newest());
        drop((first, other));
        assert!(arrivals.arrive("a").is_newest());
        assert!(arrivals.0.lock().unwrap().pods.is_empty(), "none is kept");
    }
}
