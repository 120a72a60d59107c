//! Reports events as `event_queue` says. What is lost while the API server is away is lost, as
//! with a kubelet, but for the newest.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::report_request::Report;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use ipc::{FeedItem, FeedWatch};
use pod::core::PodStatus;

use super::event::{self, EventName};
use super::event_queue::EventQueue;
use super::gateway::Gateway;
use super::spam::SpamFilter;
use crate::publication::{LocalReaders, PublishedPod};

/// Tries of an event while the API server does not answer, and the wait between two.
const TRIES: u32 = 12;
const RETRY: Duration = Duration::from_secs(10);

const NOT_FOUND: u32 = 404;

/// Reports for ever.
pub(crate) async fn run(
    node: Arc<str>,
    gateway: Gateway,
    mut events: FeedWatch<v1::Event>,
    readers: LocalReaders,
) -> Infallible {
    let mut filter = SpamFilter::default();
    let mut queue = EventQueue::default();
    let mut reporting = FuturesUnordered::new();
    loop {
        while let Some((object, event)) = queue.begin() {
            let (node, gateway, readers) = (&node, &gateway, &readers);
            reporting.push(async move {
                report(node, gateway, &event, readers).await;
                object
            });
        }
        // Both are cancel-safe: nothing is taken before it is returned.
        tokio::select! {
            Some(object) = reporting.next() => queue.end(&object),
            item = events.next(), if queue.has_room() => match item {
                FeedItem::Lost(count) => tracing::warn!(count, "events were not reported in time"),
                FeedItem::Item(event) if !filter.admits(&event, event.unix_nanos) => {}
                FeedItem::Item(event) => queue.push(event),
            },
        }
    }
}

async fn report(node: &str, gateway: &Gateway, event: &v1::Event, readers: &LocalReaders) {
    let uid = event.pod.as_ref().map(|pod| pod.uid.clone());
    let published = uid.and_then(|uid| readers.hub().get(&uid));
    let status = published.as_ref().and_then(status_of);
    for _ in 0..TRIES {
        if event.count > 1 {
            let EventName { namespace, name } = EventName::of(event, node);
            let patch = event::repeat(event).to_string().into_bytes();
            let repeat = v1::EventRepeat {
                namespace,
                name,
                patch,
            };
            match gateway.report(Report::EventRepeat(repeat)).await {
                // It is long gone, or was never made.
                Ok(answer) if answer.code == NOT_FOUND => {}
                Ok(_) => return,
                Err(_) => {
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
        }
        let object = event::object(event, node, status.as_ref());
        let object = object.to_string().into_bytes();
        // What is there already is the same; what is refused once is refused again.
        match gateway.report(Report::Event(object)).await {
            Ok(_) => return,
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

fn status_of(pod: &PublishedPod) -> Option<PodStatus> {
    pod.document.decode().ok()?.status
}
