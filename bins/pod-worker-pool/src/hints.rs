//! Hints: what the runtime's events say, for pleg and for our own workers. Nothing
//! depends on any of them being heard.

mod repeated_looks;
mod unowned;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Curve};
use bulkhead_api::v1;
use bulkhead_api::v1::watch_hints_response::Message;
use cri::{ContainerRuntime, EventKind, RuntimeEvent, RuntimeEvents};
use futures_util::StreamExt;
use ipc::{Feed, FeedItem, FeedWatch};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::pool::PoolHandle;
use crate::relist::Owners;
use crate::told_ends::ToldEnds;

use repeated_looks::{End, RepeatedLooks};
use unowned::Unowned;

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

/// How often a runtime without events is asked again: it may have been upgraded.
const ASK_AGAIN: Duration = Duration::from_secs(300);

/// The hints. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    feed: Feed<v1::WatchHintsResponse>,
    available: watch::Sender<bool>,
    owners: Owners,
    told_ends: ToldEnds,
    /// The instance that each was started in.
    command_starts: broadcast::Sender<String>,
}

impl Hints {
    /// No hints yet; ends that are told go into `told_ends`.
    #[must_use]
    pub(crate) fn new(owners: Owners, told_ends: ToldEnds) -> Hints {
        Hints {
            feed: Feed::new(KEPT_HINTS),
            available: watch::Sender::new(false),
            owners,
            told_ends,
            command_starts: broadcast::Sender::new(KEPT_COMMAND_STARTS),
        }
    }

    /// From now on, in which instance the runtime says that it has started a command.
    #[must_use]
    pub(crate) fn command_starts(&self) -> broadcast::Receiver<String> {
        self.command_starts.subscribe()
    }

    fn publish(&self, hint: Message) {
        self.feed.push(&v1::WatchHintsResponse {
            message: Some(hint),
            ..v1::WatchHintsResponse::default()
        });
    }

    /// Listens to the runtime for ever; wakes the pool's own workers too.
    pub(crate) async fn listen(self, runtime: Arc<dyn ContainerRuntime>, pool: PoolHandle) {
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
        let mut repeated = RepeatedLooks::default();
        let mut unowned = Unowned::default();
        let mut any = false;
        loop {
            let next = repeated.next().into_iter().chain(unowned.due()).min();
            tokio::select! {
                // Events first: each is handled at once, so that none starves a
                // repeated look for long.
                biased;
                // Cancel-safe: a stream keeps what it has not given.
                event = events.stream.next() => match event {
                    // Nothing of the pod has changed.
                    Some(Ok(event)) if event.kind == EventKind::CommandStarted => {
                        any = true;
                        // Nobody waits for one: fine.
                        let _ = self.command_starts.send(event.container_id);
                    }
                    Some(Ok(event)) => {
                        any = true;
                        if !self.ring(&event, pool, &mut repeated) {
                            unowned.heard(event.container_id, Instant::now());
                        }
                    }
                    Some(Err(_)) | None => return any,
                },
                // Cancel-safe: a sleep has no state that could be lost.
                () = clock::sleep_until(next) => {
                    self.ring_again(pool, &mut repeated);
                    self.find_owners(pool, &mut unowned);
                }
            }
        }
    }

    /// Passes an event on, unless nobody knows yet which pod it is about; answers
    /// whether it is known.
    fn ring(&self, event: &RuntimeEvent, pool: &PoolHandle, repeated: &mut RepeatedLooks) -> bool {
        if let Some(end) = event.end {
            self.told_ends.note(&event.container_id, end);
        }
        let told = event.pod_uid.clone();
        let uid = told.or_else(|| self.owners.pod_of(&event.container_id));
        match uid {
            Some(uid) if pod::identity::check_uid(&uid).is_ok() => {
                if matches!(event.kind, EventKind::Stopped | EventKind::Deleted) {
                    let id = event.container_id.clone();
                    let uid = uid.clone();
                    repeated.heard(End { uid, id }, Instant::now());
                }
                self.tell(uid, pool);
                true
            }
            _ => false,
        }
    }

    /// Passes on what was told of containers and sandboxes whose pod was not known then:
    /// as hints of pods where it is known by now, and as one lost hint for all others.
    fn find_owners(&self, pool: &PoolHandle, unowned: &mut Unowned) {
        let mut pods = BTreeSet::new();
        let mut lost = false;
        for id in unowned.take_due(Instant::now()) {
            match self.owners.pod_of(&id) {
                Some(uid) => _ = pods.insert(uid),
                None => lost = true,
            }
        }
        for uid in pods {
            self.tell(uid, pool);
        }
        if lost {
            self.publish(Message::Lost(true));
        }
    }

    /// Looks again at pods of which an end was told that does not show yet.
    fn ring_again(&self, pool: &PoolHandle, repeated: &mut RepeatedLooks) {
        let now = Instant::now();
        while let Some((end, waits)) = repeated.take_due(now) {
            let observation = pool.publisher().observations().get(&end.uid);
            if observation.is_some_and(|observation| is_alive(&observation, &end.id)) {
                self.tell(end.uid.clone(), pool);
                repeated.still_hidden(end, waits, now);
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

/// Whether a container or sandbox was alive when its pod was last looked at.
fn is_alive(observation: &v1::PodObservation, id: &str) -> bool {
    let mut containers = observation.containers.iter();
    let mut sandboxes = observation.sandboxes.iter();
    containers.any(|it| it.id == id && it.state() == v1::RuntimeState::Running)
        || sandboxes.any(|it| it.id == id && it.ready)
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
