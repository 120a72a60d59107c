//! Doorbells: what the runtime's event stream says, as hints to look at a pod.
//! Nothing depends on any of them being heard.

use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Curve};
use bulkhead_api::v1::watch_hints_response::Message;
use cri::{ContainerRuntime, RuntimeEvent};
use futures_util::StreamExt;
use ipc::{Feed, FeedItem, FeedWatch};
use tokio::sync::watch;

use crate::pool::PoolHandle;
use crate::relist::Owners;

/// Hints that wait for a slow reader; who falls behind relists instead.
const KEPT_HINTS: usize = 1024;

/// Reconnecting to a runtime that is away.
const RECONNECT: Curve = Curve {
    base: Duration::from_millis(100),
    cap: Duration::from_secs(5),
    immediate: 0,
};

/// How often a runtime without events is asked again: it may have been upgraded.
const ASK_AGAIN: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
enum Hint {
    Pod(String),
    Lost,
}

/// The hints. Clones share them.
#[derive(Clone, Debug)]
pub struct Hints {
    feed: Feed<Hint>,
    available: watch::Sender<bool>,
    owners: Owners,
}

impl Hints {
    /// No hints yet.
    #[must_use]
    pub fn new(owners: Owners) -> Hints {
        Hints {
            feed: Feed::new(KEPT_HINTS),
            available: watch::Sender::new(false),
            owners,
        }
    }

    /// Listens to the runtime for ever; wakes the pool's own workers too.
    pub async fn listen(self, runtime: Arc<dyn ContainerRuntime>, pool: PoolHandle) {
        let mut backoff = Backoff::new(RECONNECT);
        loop {
            let wait = match runtime.events().await {
                Ok(Some(mut events)) => {
                    tracing::info!(source = ?events.source, "listening to the runtime's events");
                    self.set_available(true);
                    // What happened before, nobody told.
                    self.feed.push(Hint::Lost);
                    while let Some(Ok(event)) = events.stream.next().await {
                        backoff.reset();
                        self.ring(&event, &pool);
                    }
                    self.set_available(false);
                    self.feed.push(Hint::Lost);
                    backoff.failed()
                }
                Ok(None) => {
                    self.set_available(false);
                    ASK_AGAIN
                }
                Err(error) => {
                    tracing::debug!(%error, "the runtime's events cannot be had");
                    self.set_available(false);
                    backoff.failed()
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    fn ring(&self, event: &RuntimeEvent, pool: &PoolHandle) {
        let told = event.pod_uid.clone();
        let uid = told.or_else(|| self.owners.pod_of(&event.container_id));
        match uid {
            Some(uid) if pod::identity::check_uid(&uid).is_ok() => {
                pool.look(&uid);
                self.feed.push(Hint::Pod(uid));
            }
            _ => self.feed.push(Hint::Lost),
        }
    }

    fn set_available(&self, available: bool) {
        self.available
            .send_if_modified(|known| std::mem::replace(known, available) != available);
    }

    /// Watches the hints from now on.
    #[must_use]
    pub fn watch(&self) -> HintWatch {
        let mut available = self.available.subscribe();
        available.mark_changed();
        HintWatch {
            available,
            feed: self.feed.subscribe(),
        }
    }
}

/// One reader.
#[derive(Debug)]
pub struct HintWatch {
    available: watch::Receiver<bool>,
    feed: FeedWatch<Hint>,
}

impl HintWatch {
    /// The next message: first whether there are events at all. `None` when the
    /// process stops.
    pub async fn next(&mut self) -> Option<Message> {
        tokio::select! {
            // Availability first: it changes rarely, so it starves nothing.
            biased;
            // Cancel-safe: a change that is not seen stays unseen.
            changed = self.available.changed() => {
                changed.ok()?;
                Some(Message::EventsAvailable(*self.available.borrow_and_update()))
            }
            // Cancel-safe: the position moves only when a hint is returned.
            item = self.feed.next() => Some(match item {
                FeedItem::Item(Hint::Pod(uid)) => Message::PodUid(uid),
                FeedItem::Item(Hint::Lost) | FeedItem::Lost(_) => Message::Lost(true),
            }),
        }
    }
}
