//! Latest values by key, published as a snapshot and then changes.
//!
//! A subscriber that is slow sees fewer changes, never a stale value: changes to
//! one key that it has not read yet fold into one, so that what waits for it is
//! bounded by the number of keys.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A shared map whose changes can be watched. Cloning shares the map.
#[derive(Debug)]
pub struct StateHub<K, V>(Arc<Mutex<Inner<K, V>>>);

impl<K, V> Clone for StateHub<K, V> {
    fn clone(&self) -> Self {
        StateHub(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<K, V> {
    values: BTreeMap<K, V>,
    subscribers: BTreeMap<u64, Subscriber<K>>,
    next_subscriber: u64,
}

#[derive(Debug)]
struct Subscriber<K> {
    queue: VecDeque<K>,
    queued: BTreeSet<K>,
    wake: Arc<Notify>,
}

impl<K, V> Default for StateHub<K, V> {
    fn default() -> Self {
        let inner = Inner {
            values: BTreeMap::new(),
            subscribers: BTreeMap::new(),
            next_subscriber: 0,
        };
        StateHub(Arc::new(Mutex::new(inner)))
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> StateHub<K, V> {
    /// An empty map.
    #[must_use]
    pub fn new() -> StateHub<K, V> {
        StateHub::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a value; returns whether that changed anything.
    pub fn set(&self, key: K, value: V) -> bool {
        let mut inner = self.lock();
        if inner.values.get(&key) == Some(&value) {
            return false;
        }
        inner.announce(&key);
        inner.values.insert(key, value);
        true
    }

    /// Removes a key; returns whether it was there.
    pub fn remove(&self, key: &K) -> bool {
        let mut inner = self.lock();
        let removed = inner.values.remove(key).is_some();
        if removed {
            inner.announce(key);
        }
        removed
    }

    /// The value of a key now.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<V> {
        self.lock().values.get(key).cloned()
    }

    /// All keys now.
    #[must_use]
    pub fn keys(&self) -> Vec<K> {
        self.lock().values.keys().cloned().collect()
    }

    /// Everything now.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<K, V> {
        self.lock().values.clone()
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().values.len()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().values.is_empty()
    }

    /// Watches the map from now on, beginning with a snapshot.
    #[must_use]
    pub fn subscribe(&self) -> StateWatch<K, V> {
        let mut inner = self.lock();
        let id = inner.next_subscriber;
        inner.next_subscriber += 1;
        let wake = Arc::new(Notify::new());
        let subscriber = Subscriber {
            queue: VecDeque::new(),
            queued: BTreeSet::new(),
            wake: Arc::clone(&wake),
        };
        inner.subscribers.insert(id, subscriber);
        let snapshot = inner.values.keys().cloned().collect();
        StateWatch {
            hub: self.clone(),
            id,
            wake,
            stage: Stage::Begin(snapshot),
        }
    }
}

impl<K: Ord + Clone, V> Inner<K, V> {
    fn announce(&mut self, key: &K) {
        for subscriber in self.subscribers.values_mut() {
            if subscriber.queued.insert(key.clone()) {
                subscriber.queue.push_back(key.clone());
                subscriber.wake.notify_one();
            }
        }
    }
}

/// What a watch yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateEvent<K, V> {
    /// The snapshot begins.
    SnapshotBegin,
    /// A value: of the snapshot, or changed since.
    Item(K, V),
    /// The snapshot is complete; changes follow.
    SnapshotEnd,
    /// The key is gone.
    Removed(K),
}

#[derive(Debug)]
enum Stage<K> {
    Begin(VecDeque<K>),
    Snapshot(VecDeque<K>),
    Changes,
}

/// A watch of a [`StateHub`]. Dropping it ends it.
#[derive(Debug)]
pub struct StateWatch<K: Ord + Clone, V: Clone + PartialEq> {
    hub: StateHub<K, V>,
    id: u64,
    wake: Arc<Notify>,
    stage: Stage<K>,
}

impl<K: Ord + Clone, V: Clone + PartialEq> StateWatch<K, V> {
    /// The next event; waits for one. Cancel-safe: nothing is taken from the
    /// queue before the moment of returning it.
    pub async fn next(&mut self) -> StateEvent<K, V> {
        loop {
            if let Some(event) = self.next_now() {
                return event;
            }
            self.wake.notified().await;
        }
    }

    fn next_now(&mut self) -> Option<StateEvent<K, V>> {
        loop {
            match &mut self.stage {
                Stage::Begin(keys) => {
                    self.stage = Stage::Snapshot(std::mem::take(keys));
                    return Some(StateEvent::SnapshotBegin);
                }
                Stage::Snapshot(keys) => {
                    let Some(key) = keys.pop_front() else {
                        self.stage = Stage::Changes;
                        return Some(StateEvent::SnapshotEnd);
                    };
                    // A key that vanished meanwhile is announced later.
                    if let Some(value) = self.hub.get(&key) {
                        return Some(StateEvent::Item(key, value));
                    }
                }
                Stage::Changes => {
                    let mut inner = self.hub.lock();
                    let subscriber = inner.subscribers.get_mut(&self.id)?;
                    let key = subscriber.queue.pop_front()?;
                    subscriber.queued.remove(&key);
                    let value = inner.values.get(&key).cloned();
                    drop(inner);
                    return Some(match value {
                        Some(value) => StateEvent::Item(key, value),
                        None => StateEvent::Removed(key),
                    });
                }
            }
        }
    }

    /// The watch as a stream.
    pub fn into_stream(self) -> impl tokio_stream::Stream<Item = StateEvent<K, V>> {
        futures_util::stream::unfold(self, |mut watch| async move {
            let event = watch.next().await;
            Some((event, watch))
        })
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> Drop for StateWatch<K, V> {
    fn drop(&mut self) {
        self.hub.lock().subscribers.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watch_begins_with_a_snapshot() {
        let hub = StateHub::new();
        hub.set(1, "a");
        let mut watch = hub.subscribe();
        hub.set(2, "b");
        assert_eq!(watch.next().await, StateEvent::SnapshotBegin);
        assert_eq!(watch.next().await, StateEvent::Item(1, "a"));
        assert_eq!(watch.next().await, StateEvent::SnapshotEnd);
        assert_eq!(watch.next().await, StateEvent::Item(2, "b"));
        hub.remove(&1);
        assert_eq!(watch.next().await, StateEvent::Removed(1));
    }

    #[tokio::test]
    async fn changes_to_one_key_fold_into_the_latest() {
        let hub = StateHub::new();
        let mut watch = hub.subscribe();
        watch.next().await;
        watch.next().await;
        for value in 0..1000 {
            hub.set("k", value);
        }
        hub.set("l", 1);
        assert_eq!(watch.next().await, StateEvent::Item("k", 999));
        assert_eq!(watch.next().await, StateEvent::Item("l", 1));
        assert!(watch.next_now().is_none());
    }

    #[tokio::test]
    async fn an_equal_value_is_no_change() {
        let hub = StateHub::new();
        assert!(hub.set(1, 1));
        assert!(!hub.set(1, 1));
        assert!(!hub.remove(&2));
    }

    #[tokio::test]
    async fn a_dropped_watch_is_forgotten() {
        let hub: StateHub<u32, u32> = StateHub::new();
        drop(hub.subscribe());
        assert!(hub.lock().subscribers.is_empty());
    }
}
