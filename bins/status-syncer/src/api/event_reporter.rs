//! Reports events, one after the other, in the order in which they came. What is lost while
//! the API server is away is lost, as with a kubelet, but for the newest.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::report_request::Report;
use ipc::{FeedItem, FeedWatch};
use pod::core::PodStatus;

use super::event::{self, EventName};
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
    loop {
        match events.next().await {
            FeedItem::Lost(count) => tracing::warn!(count, "events were not reported in time"),
            FeedItem::Item(event) if !filter.admits(&event, event.unix_nanos) => {}
            FeedItem::Item(event) => report(&node, &gateway, &event, &readers).await,
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
