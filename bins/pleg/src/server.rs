//! What this process serves: the state of the last relist, and events.

use std::pin::Pin;
use std::sync::Arc;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_pod_lifecycle_events_response::Message;
use futures_util::stream;
use ipc::{Feed, FeedItem, FeedWatch};
use tokio::sync::watch;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::health::Health;
use crate::relist::{Event, EventKind};
use crate::wire;

/// Events that wait for a slow reader (the kubelet's `plegChannelCapacity`). Who
/// falls behind further is cut off and begins with a new snapshot.
const FEED_CAPACITY: usize = 1000;

/// Uids in a snapshot, which stays below half of its 256 KiB with the longest uids
/// that are accepted; further pods follow as `PodSync` events.
const MAX_SNAPSHOT_UIDS: usize = 1500;

/// What the last relist left behind.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) health: Health,
    pub(crate) pod_uids: Arc<[String]>,
    /// The pool that was last heard; empty before the first.
    pub(crate) pool_boot_id: Arc<str>,
}

impl Published {
    fn to_message(&self) -> v1::PlegHealth {
        wire::health(&self.health, &self.pool_boot_id)
    }
}

/// Where the relisting side puts its results and the server takes them from.
/// Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    boot_id: String,
    events: Feed<v1::PodLifecycleEvent>,
    /// Watchers are woken only when the health changes, or the pool is another.
    state: watch::Sender<Published>,
}

impl Publication {
    pub(crate) fn new(boot_id: String) -> Publication {
        let published = Published {
            health: Health::NeverRelisted,
            pod_uids: Arc::default(),
            pool_boot_id: Arc::default(),
        };
        Publication {
            boot_id,
            events: Feed::new(FEED_CAPACITY),
            state: watch::Sender::new(published),
        }
    }

    /// Publishes the newest state, then `events`: a reader that subscribes in
    /// between sees a pod in the snapshot, or its events, or both. Returns
    /// whether the health changed.
    pub(crate) fn publish(&self, state: Published, events: Vec<Event>) -> bool {
        let mut changed = false;
        self.state.send_if_modified(|published| {
            let before = std::mem::replace(published, state);
            changed = before.health != published.health;
            changed || before.pool_boot_id != published.pool_boot_id
        });
        for event in events {
            self.events.push(&wire::event(event));
        }
        changed
    }

    fn watch(&self) -> Watch {
        let events = self.events.subscribe();
        Watch {
            boot_id: self.boot_id.clone(),
            events,
            state: self.state.subscribe(),
            stage: Stage::Snapshot,
        }
    }
}

#[derive(Debug)]
enum Stage {
    /// The snapshot is to be sent.
    Snapshot,
    /// Pods that did not fit into the snapshot are to be sent, the last first.
    Rest(Vec<String>),
    /// Events and changes of health.
    Changes,
    /// The reader fell behind and was told so.
    Cut,
}

/// One reader.
#[derive(Debug)]
struct Watch {
    boot_id: String,
    events: FeedWatch<v1::PodLifecycleEvent>,
    state: watch::Receiver<Published>,
    stage: Stage,
}

impl Watch {
    /// The next message, or the end. Only the server's stream polls it, and never
    /// drops it half-way.
    async fn next(&mut self) -> Option<Result<v1::WatchPodLifecycleEventsResponse, Status>> {
        let message = match &mut self.stage {
            Stage::Snapshot => self.snapshot(),
            Stage::Rest(uids) => {
                let uid = uids.pop();
                if uids.is_empty() {
                    self.stage = Stage::Changes;
                }
                Message::Event(wire::event(Event {
                    pod_uid: uid.unwrap_or_default(),
                    kind: EventKind::PodSync,
                    id: String::new(),
                }))
            }
            Stage::Changes => match self.change().await {
                Ok(message) => message,
                Err(status) => {
                    self.stage = Stage::Cut;
                    return Some(Err(status));
                }
            },
            Stage::Cut => return None,
        };
        Some(Ok(v1::WatchPodLifecycleEventsResponse {
            boot_id: self.boot_id.clone(),
            message: Some(message),
        }))
    }

    fn snapshot(&mut self) -> Message {
        let published = self.state.borrow_and_update().clone();
        let (first, rest) = published
            .pod_uids
            .split_at(published.pod_uids.len().min(MAX_SNAPSHOT_UIDS));
        self.stage = match rest {
            [] => Stage::Changes,
            rest => Stage::Rest(rest.to_vec()),
        };
        Message::Snapshot(v1::PlegSnapshot {
            health: Some(published.to_message()),
            pod_uids: first.to_vec(),
        })
    }

    async fn change(&mut self) -> Result<Message, Status> {
        tokio::select! {
            // Health first: it changes rarely, so it cannot starve the events.
            biased;
            // Cancel-safe: a change that is not seen stays unseen.
            changed = self.state.changed() => match changed {
                Ok(()) => {
                    let published = self.state.borrow_and_update();
                    Ok(Message::Health(published.to_message()))
                }
                Err(_) => Err(Status::unavailable("the process stops")),
            },
            // Cancel-safe: the position moves only when an event is returned.
            item = self.events.next() => match item {
                FeedItem::Item(event) => Ok(Message::Event(event)),
                FeedItem::Lost(count) => Err(Status::data_loss(format!(
                    "{count} events were lost because they were not read in time; call again"
                ))),
            },
        }
    }
}

#[tonic::async_trait]
impl v1::pleg_server::Pleg for Publication {
    type WatchEventsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchPodLifecycleEventsResponse, Status>> + Send>>;

    async fn watch_events(
        &self,
        _request: Request<v1::WatchPodLifecycleEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let watch = self.watch();
        let messages = stream::unfold(watch, |mut watch| async move {
            let message = watch.next().await?;
            Some((message, watch))
        });
        Ok(Response::new(Box::pin(messages)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(uid: &str) -> Event {
        Event {
            pod_uid: uid.to_owned(),
            kind: EventKind::ContainerDied,
            id: "c".to_owned(),
        }
    }

    fn state(health: Health, uids: usize) -> Published {
        Published {
            health,
            pod_uids: (0..uids).map(|number| number.to_string()).collect(),
            pool_boot_id: "pool".into(),
        }
    }

    async fn message(watch: &mut Watch) -> Message {
        watch.next().await.unwrap().unwrap().message.unwrap()
    }

    #[tokio::test]
    async fn a_reader_that_falls_behind_is_cut_off() {
        let publication = Publication::new("boot".to_owned());
        publication.publish(state(Health::Healthy, 1), Vec::new());
        let mut watch = publication.watch();
        message(&mut watch).await;
        let many = (0..=FEED_CAPACITY)
            .map(|number| event(&number.to_string()))
            .collect();
        publication.publish(state(Health::Healthy, 1), many);
        let status = watch.next().await.unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::DataLoss);
        assert!(watch.next().await.is_none());
    }

    #[tokio::test]
    async fn pods_beyond_a_snapshot_follow_as_events() {
        let publication = Publication::new("boot".to_owned());
        let many = state(Health::Healthy, MAX_SNAPSHOT_UIDS + 2);
        publication.publish(many, Vec::new());
        let mut watch = publication.watch();
        let Message::Snapshot(snapshot) = message(&mut watch).await else {
            panic!("no snapshot");
        };
        assert_eq!(snapshot.pod_uids.len(), MAX_SNAPSHOT_UIDS);
        assert!(snapshot.health.unwrap().healthy);
        for offset in [1, 0] {
            let Message::Event(event) = message(&mut watch).await else {
                panic!("no event");
            };
            assert_eq!(event.pod_uid, (MAX_SNAPSHOT_UIDS + offset).to_string());
            assert_eq!(event.r#type(), v1::PodLifecycleEventType::PodSync);
        }
        publication.publish(state(Health::Healthy, 1), vec![event("x")]);
        assert!(matches!(message(&mut watch).await, Message::Event(event) if event.pod_uid == "x"));
    }

    #[tokio::test]
    async fn only_changes_of_health_and_of_the_pool_wake_a_reader() {
        let publication = Publication::new("boot".to_owned());
        let mut watch = publication.watch();
        assert!(matches!(
            message(&mut watch).await,
            Message::Snapshot(snapshot) if !snapshot.health.clone().unwrap().healthy
        ));
        assert!(publication.publish(state(Health::Healthy, 1), Vec::new()));
        assert!(matches!(message(&mut watch).await, Message::Health(health) if health.healthy));
        assert!(!publication.publish(state(Health::Healthy, 2), Vec::new()));
        let restarted = Published {
            pool_boot_id: "another".into(),
            ..state(Health::Healthy, 2)
        };
        assert!(!publication.publish(restarted, Vec::new()));
        assert!(matches!(
            message(&mut watch).await,
            Message::Health(health) if health.healthy && health.pool_boot_id == "another"
        ));
        assert!(publication.publish(state(Health::Stale, 2), Vec::new()));
        assert!(matches!(
            message(&mut watch).await,
            Message::Health(health) if !health.healthy
        ));
    }
}
