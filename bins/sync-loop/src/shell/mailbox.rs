//! Something that one task fills and another empties: latest values, never a
//! queue that grows. Filling it never waits.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The shared content. Cloning shares it.
#[derive(Debug)]
pub(super) struct Mailbox<T>(Arc<Inner<T>>);

#[derive(Debug)]
struct Inner<T> {
    content: Mutex<T>,
    changed: Notify,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Mailbox(Arc::clone(&self.0))
    }
}

impl<T: Default> Default for Mailbox<T> {
    fn default() -> Self {
        Mailbox(Arc::new(Inner {
            content: Mutex::new(T::default()),
            changed: Notify::new(),
        }))
    }
}

impl<T> Mailbox<T> {
    /// Changes the content and wakes whoever empties it.
    pub(super) fn fill(&self, change: impl FnOnce(&mut T)) {
        self.with(change);
        self.0.changed.notify_one();
    }

    /// Looks at or takes from the content.
    pub(super) fn with<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        look(
            &mut self
                .0
                .content
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Waits until it was filled since the last time that somebody waited. For
    /// one waiter. Cancel-safe: a wake-up that nobody took stays.
    pub(super) async fn filled(&self) {
        self.0.changed.notified().await;
    }
}
