//! A bounded ring of events. Who falls behind is told how many it lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;
use tokio::sync::Notify;

use crate::message_queue::MessageQueue;

/// A ring of the newest events. Cloning shares the ring.
#[derive(Debug)]
pub struct Feed<T>(Arc<Shared<T>>);

impl<T> Clone for Feed<T> {
    fn clone(&self) -> Self {
        Feed(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Shared<T> {
    ring: Mutex<Ring<T>>,
    pushed: Notify,
}

#[derive(Debug)]
struct Ring<T> {
    capacity: usize,
    events: MessageQueue<T>,
    /// Number of the oldest event that is still in the ring.
    first: u64,
}

impl<T: Message + Default> Feed<T> {
    /// A ring of at most `capacity` events.
    ///
    /// # Panics
    /// When `capacity` is 0.
    #[must_use]
    pub fn new(capacity: usize) -> Feed<T> {
        assert!(capacity > 0, "a ring needs room");
        let ring = Ring {
            capacity,
            events: MessageQueue::default(),
            first: 0,
        };
        Feed(Arc::new(Shared {
            ring: Mutex::new(ring),
            pushed: Notify::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Ring<T>> {
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event; the oldest leaves when the ring is full.
    pub fn push(&self, event: &T) {
        let mut ring = self.lock();
        if ring.events.len() == ring.capacity {
            ring.events.drop_front();
            ring.first += 1;
        }
        ring.events.push_back(event);
        drop(ring);
        self.0.pushed.notify_waiters();
    }

    /// The events that are in the ring, oldest first.
    #[must_use]
    pub fn recent(&self) -> Vec<T> {
        self.lock().events.iter().collect()
    }

    /// Watches events from now on.
    #[must_use]
    pub fn subscribe(&self) -> FeedWatch<T> {
        let ring = self.lock();
        let next = ring.first + ring.events.len() as u64;
        drop(ring);
        FeedWatch {
            feed: self.clone(),
            next,
        }
    }

    /// Watches from the oldest event that is still in the ring.
    #[must_use]
    pub fn subscribe_from_oldest(&self) -> FeedWatch<T> {
        let next = self.lock().first;
        FeedWatch {
            feed: self.clone(),
            next,
        }
    }
}

/// What a watch of a feed yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedItem<T> {
    /// An event.
    Item(T),
    /// So many events left the ring before they were read.
    Lost(u64),
}

/// A watch of a [`Feed`].
#[derive(Debug)]
pub struct FeedWatch<T> {
    feed: Feed<T>,
    next: u64,
}

impl<T: Message + Default> FeedWatch<T> {
    /// The next event; waits for one. Cancel-safe: the position moves only when
    /// an event is returned.
    pub async fn next(&mut self) -> FeedItem<T> {
        let feed = self.feed.clone();
        loop {
            let pushed = feed.0.pushed.notified();
            tokio::pin!(pushed);
            // Registered before looking, so that no push in between is missed.
            pushed.as_mut().enable();
            if let Some(item) = self.next_now() {
                return item;
            }
            pushed.await;
        }
    }

    /// The next event if there is one now.
    pub fn next_now(&mut self) -> Option<FeedItem<T>> {
        let ring = self.feed.lock();
        if self.next < ring.first {
            let lost = ring.first - self.next;
            let first = ring.first;
            drop(ring);
            self.next = first;
            return Some(FeedItem::Lost(lost));
        }
        let offset = usize::try_from(self.next - ring.first).ok()?;
        let event = ring.events.get(offset)?;
        drop(ring);
        self.next += 1;
        Some(FeedItem::Item(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_come_in_order_and_losses_are_counted() {
        let feed = Feed::<i32>::new(3);
        let mut watch = feed.subscribe();
        feed.push(&1);
        assert_eq!(watch.next().await, FeedItem::Item(1));
        for event in 2..=6 {
            feed.push(&event);
        }
        assert_eq!(watch.next().await, FeedItem::Lost(2));
        assert_eq!(watch.next().await, FeedItem::Item(4));
        assert_eq!(feed.recent(), [4, 5, 6]);
        let mut all = feed.subscribe_from_oldest();
        assert_eq!(all.next().await, FeedItem::Item(4));
    }

    #[tokio::test]
    async fn a_waiting_watch_is_woken() {
        let feed = Feed::<i32>::new(3);
        let mut watch = feed.subscribe();
        let (item, ()) = tokio::join!(watch.next(), async { feed.push(&7) });
        assert_eq!(item, FeedItem::Item(7));
    }
}
