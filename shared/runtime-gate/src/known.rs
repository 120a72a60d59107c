//! What the gate has found out about sandboxes and containers, by their ids, so that
//! it asks the runtime once for each. Nothing of it changes while the sandbox or
//! container is there, and ids are never used again, so it is forgotten when that is removed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cri::v1;

use crate::CommandDigest;
use crate::request::Asked;
use crate::user_ids::UserIds;

/// Most things that are remembered, should nobody say that they are gone: several for each
/// container of a full node. The oldest are forgotten first, which costs one call when they
/// are asked for again.
const MAX_KNOWN: usize = 4096;

/// What is known of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownContainer {
    /// The UID of its pod.
    pub(crate) pod_uid: String,
    /// Its name in the pod.
    pub(crate) name: String,
    /// The commands that may be run in it, where it says so itself.
    pub(crate) commands: Option<BTreeSet<CommandDigest>>,
}

/// What is known of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownSandbox {
    /// Its pod, as the runtime has it.
    pub(crate) pod: v1::PodSandboxMetadata,
    /// The ids of its users, if it has its own.
    pub(crate) own_users: Option<UserIds>,
    /// The namespaces of the node that it has.
    pub(crate) of_the_node: Vec<Asked>,
}

/// Values by id, the newest [`MAX_KNOWN`] of them.
#[derive(Debug)]
pub(crate) struct BoundedCache<T>(Mutex<Inner<T>>);

#[derive(Debug)]
struct Inner<T> {
    values: BTreeMap<String, T>,
    ages: VecDeque<String>,
}

impl<T> Default for BoundedCache<T> {
    fn default() -> BoundedCache<T> {
        BoundedCache(Mutex::new(Inner {
            values: BTreeMap::new(),
            ages: VecDeque::new(),
        }))
    }
}

impl<T: Clone> BoundedCache<T> {
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &str) -> Option<T> {
        self.lock().values.get(id).cloned()
    }

    /// The thing is gone.
    pub(crate) fn forget(&self, id: &str) {
        let mut inner = self.lock();
        if inner.values.remove(id).is_some() {
            let ages = &mut inner.ages;
            ages.retain(|known| known != id);
            ages.shrink_to(2 * ages.len());
        }
    }

    pub(crate) fn note(&self, id: &str, value: T) {
        let mut inner = self.lock();
        if inner.values.insert(id.to_owned(), value).is_none() {
            inner.ages.push_back(id.to_owned());
        }
        while inner.ages.len() > MAX_KNOWN {
            if let Some(oldest) = inner.ages.pop_front() {
                inner.values.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_and_no_more_than_the_bound() {
        let cache = BoundedCache::default();
        for number in 0..MAX_KNOWN + 2 {
            cache.note(&number.to_string(), number);
        }
        assert_eq!((cache.get("0"), cache.get("1")), (None, None));
        assert_eq!(cache.get("2"), Some(2));
        cache.note("2", 7);
        assert_eq!(cache.get("2"), Some(7));
        assert_eq!(cache.lock().values.len(), MAX_KNOWN);
        assert_eq!(cache.lock().ages.len(), MAX_KNOWN);
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let cache = BoundedCache::default();
        cache.note("a", 1);
        cache.note("b", 2);
        cache.forget("a");
        cache.forget("c");
        assert_eq!((cache.get("a"), cache.get("b")), (None, Some(2)));
        assert_eq!(cache.lock().ages, ["b"]);
    }
}
