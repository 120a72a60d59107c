//! Hints: what the runtime's events say, for pleg and for our own workers. Nothing
//! depends on any of them being heard.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Curve};
use bulkhead_api::v1;
use bulkhead_api::v1::watch_hints_response::Message;
use cri::{EventKind, RuntimeEvent, RuntimeEvents, RuntimeReads};
use futures_util::StreamExt;
use ipc::{Feed, FeedItem, FeedWatch};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

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

/// Starts of commands that wait for a slow reader: a reader that misses one waits longer.
const KEPT_COMMAND_STARTS: usize = 256;

/// When a pod is looked at again after the event of an end. containerd publishes the exit
/// of a task, then cleans up for some tens of milliseconds, then writes the new state down,
/// and no event follows that. What does not show by the last of them is left to pleg.
const LOOKS_AFTER_END: [Duration; 2] = [Duration::from_millis(40), Duration::from_millis(100)];

/// Later looks that are kept: more than the ends of all containers of a full node.
const MAX_LATER_LOOKS: usize = 2048;

/// How often a runtime without events is asked again: it may have been upgraded.
const ASK_AGAIN: Duration = Duration::from_secs(300);

/// A look at the pod of a container that is due later.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LaterLook {
    at: Instant,
    /// The container or sandbox whose end was reported.
    id: String,
    /// Its pod, where the event named it.
    uid: Option<String>,
}

/// Earliest first.
type LaterLooks = BTreeSet<LaterLook>;

/// The hints. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    feed: Feed<v1::WatchHintsResponse>,
    available: watch::Sender<bool>,
    owners: Owners,
    /// The instance that each was started in.
    command_starts: broadcast::Sender<String>,
}

impl Hints {
    /// No hints yet.
    #[must_use]
    pub(crate) fn new(owners: Owners) -> Hints {
        Hints {
            feed: Feed::new(KEPT_HINTS),
            available: watch::Sender::new(false),
            owners,
            command_starts: broadcast::Sender::new(KEPT_COMMAND_STARTS),
        }
    }

    /// From now on, in which instance the runtime says that it has started a command.
    #[must_use]
    pub(crate) fn command_starts(&self) -> broadcast::Receiver<String> {
        self.command_starts.subscribe()
    }

    /// Whether the runtime's events are heard, now and from now on.
    #[must_use]
    pub(crate) fn are_available(&self) -> watch::Receiver<bool> {
        self.available.subscribe()
    }

    fn publish(&self, hint: Message) {
        self.feed.push(&v1::WatchHintsResponse {
            message: Some(hint),
            ..v1::WatchHintsResponse::default()
        });
    }

    /// Listens to the runtime for ever; wakes the pool's own workers too.
    pub(crate) async fn listen(self, runtime: Arc<dyn RuntimeReads>, pool: PoolHandle) {
        let mut backoff = Backoff::new(RECONNECT);
        loop {
            let wait = match runtime.events().await {
                Ok(Some(events)) => {
                    tracing::info!(source = ?events.source, "listening to the runtime's events");
                    self.set_available(true);
                    // What happened before, nobody told.
                    self.publish(Message::Lost(true));
                    if Box::pin(self.follow(events, &pool)).await {
                        backoff.reset();
                    }
                    self.set_available(false);
                    self.publish(Message::Lost(true));
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

    /// Rings until the stream ends; whether there was any event.
    async fn follow(&self, mut events: RuntimeEvents, pool: &PoolHandle) -> bool {
        let mut later = LaterLooks::new();
        let mut any = false;
        loop {
            let next = later.first().map(|look| look.at);
            tokio::select! {
                // Events first: each is handled at once, so that none starves a
                // later look for long.
                biased;
                // Cancel-safe: a stream keeps what it has not given.
                event = events.stream.next() => match event {
                    Some(Ok(event)) => {
                        any = true;
                        self.ring(event, pool, &mut later);
                    }
                    Some(Err(_)) | None => return any,
                },
                // Cancel-safe: a sleep has no state that could be lost.
                () = clock::sleep_until(next) => self.ring_again(pool, &mut later),
            }
        }
    }

    /// Passes an event on; where its pod is not known, pleg lists all pods.
    fn ring(&self, event: RuntimeEvent, pool: &PoolHandle, later: &mut LaterLooks) {
        let id = event.container_id;
        // Nothing of the pod has changed.
        if event.kind == EventKind::CommandStarted {
            // Nobody waits for one: fine.
            let _ = self.command_starts.send(id);
            return;
        }
        if matches!(event.kind, EventKind::Stopped | EventKind::Deleted) {
            for wait in LOOKS_AFTER_END {
                let (id, uid) = (id.clone(), event.pod_uid.clone());
                let at = Instant::now() + wait;
                if later.len() < MAX_LATER_LOOKS {
                    later.insert(LaterLook { at, id, uid });
                }
            }
        }
        match self.owner(&id, event.pod_uid) {
            Some(uid) => self.tell(uid, pool),
            None => self.publish(Message::Lost(true)),
        }
    }

    /// The pod that an event is about, if it is known.
    fn owner(&self, id: &str, told: Option<String>) -> Option<String> {
        let uid = told.or_else(|| self.owners.pod_of(id));
        uid.filter(|uid| pod::identity::check_uid(uid).is_ok())
    }

    /// Looks again at pods of which an end was reported that does not show yet.
    fn ring_again(&self, pool: &PoolHandle, later: &mut LaterLooks) {
        let now = Instant::now();
        while later.first().is_some_and(|look| look.at <= now)
            && let Some(LaterLook { id, uid, .. }) = later.pop_first()
        {
            let Some(uid) = self.owner(&id, uid) else {
                continue;
            };
            let observation = pool.publisher().observations().get(&uid);
            if observation.is_none_or(|observation| !shows_end(&observation, &id)) {
                self.tell(uid, pool);
            }
        }
    }

    fn tell(&self, uid: String, pool: &PoolHandle) {
        pool.look(&uid);
        self.publish(Message::PodUid(uid));
    }

    fn set_available(&self, available: bool) {
        self.available
            .send_if_modified(|known| std::mem::replace(known, available) != available);
    }

    /// Watches the hints from now on.
    #[must_use]
    pub(crate) fn watch(&self) -> HintWatch {
        let mut available = self.available.subscribe();
        available.mark_changed();
        HintWatch {
            available,
            feed: self.feed.subscribe(),
        }
    }
}

/// Whether what was seen of a pod shows that this container or sandbox has ended, or is gone.
fn shows_end(observation: &v1::PodObservation, id: &str) -> bool {
    let mut containers = observation.containers.iter();
    let mut sandboxes = observation.sandboxes.iter();
    let may_run = containers.any(|it| it.id == id && it.state() != v1::RuntimeState::Exited);
    !may_run && !sandboxes.any(|it| it.id == id && it.ready)
}

/// One reader.
#[derive(Debug)]
pub(crate) struct HintWatch {
    available: watch::Receiver<bool>,
    feed: FeedWatch<v1::WatchHintsResponse>,
}

impl HintWatch {
    /// The next message: first whether there are events at all. `None` when the
    /// process stops.
    pub(crate) async fn next(&mut self) -> Option<Message> {
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
                FeedItem::Item(hint) => hint.message.unwrap_or(Message::Lost(true)),
                FeedItem::Lost(_) => Message::Lost(true),
            }),
        }
    }
}
