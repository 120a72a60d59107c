//! The Services of the cluster, as api-gateway has them, for pod-worker-pool. Whatever happens
//! to either leaves those that were seen last as they are. The service that carries them
//! carries the Node too.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use bulkhead_api::v1;
use bulkhead_api::v1::api_objects_client::ApiObjectsClient;
use bulkhead_api::v1::services_server::Services as ServicesService;
use futures_util::{StreamExt as _, stream};
use ipc::limits::MAX_SERVICE_MESSAGE_BYTES;
use ipc::{Network, SubscriptionEvent, subscribe};
use local_objects::{ServiceReader, Services};
use tokio::sync::watch;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use topology::Process;

use crate::node;
use crate::publication::Publication;

/// The latest Services; none before all are known. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct ServicePublication {
    latest: watch::Sender<Option<Arc<Services>>>,
    /// They know the Node.
    sources: Publication,
}

/// Follows api-gateway for ever.
pub(crate) async fn follow(network: Network, publication: ServicePublication) -> Infallible {
    let client = ApiObjectsClient::new(network.channel(Process::ApiGateway))
        .max_decoding_message_size(MAX_SERVICE_MESSAGE_BYTES);
    let mut changes = subscribe("services of the API server", move || {
        let mut client = client.clone();
        async move {
            client
                .watch_api_services(v1::WatchApiServicesRequest {})
                .await
        }
    });
    let mut reader = ServiceReader::default();
    loop {
        match changes.next().await {
            SubscriptionEvent::Connected | SubscriptionEvent::Lost { .. } => reader.begin_anew(),
            SubscriptionEvent::Message(change) => {
                if reader.take(change) {
                    publication.set(reader.services());
                }
            }
        }
    }
}

impl ServicePublication {
    /// No Services are known yet.
    #[must_use]
    pub(crate) fn new(sources: Publication) -> Self {
        let latest = watch::Sender::new(None);
        Self { latest, sources }
    }

    fn set(&self, services: Option<&Services>) {
        self.latest.send_replace(services.cloned().map(Arc::new));
    }
}

/// A stream, and what it has been sent.
struct Consumer {
    services: watch::Receiver<Option<Arc<Services>>>,
    sent: Option<Arc<Services>>,
}

impl Consumer {
    /// What is new, as soon as something is.
    async fn next(&mut self) -> Option<Vec<v1::ServiceChange>> {
        loop {
            self.services.changed().await.ok()?;
            let services = self.services.borrow_and_update().clone();
            if let Some(services) = services {
                let changes = services.changes_since(self.sent.as_deref());
                self.sent = Some(services);
                return Some(changes);
            }
        }
    }
}

#[tonic::async_trait]
impl ServicesService for ServicePublication {
    type WatchServicesStream =
        Pin<Box<dyn Stream<Item = Result<v1::ServiceChange, Status>> + Send>>;
    type WatchNodeStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchNodeResponse, Status>> + Send>>;

    async fn watch_services(
        &self,
        _request: Request<v1::WatchServicesRequest>,
    ) -> Result<Response<Self::WatchServicesStream>, Status> {
        let mut services = self.latest.subscribe();
        services.mark_changed();
        let consumer = Consumer {
            services,
            sent: None,
        };
        let changes = stream::unfold(consumer, |mut consumer| async move {
            let changes = consumer.next().await?;
            Some((changes, consumer))
        });
        let changes = changes.flat_map(|changes| stream::iter(changes.into_iter().map(Ok)));
        Ok(Response::new(Box::pin(changes)))
    }

    async fn watch_node(
        &self,
        _request: Request<v1::WatchNodeRequest>,
    ) -> Result<Response<Self::WatchNodeStream>, Status> {
        let messages = node::watch(&self.sources).map(Ok);
        Ok(Response::new(Box::pin(messages)))
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_api::v1::service_change::Change;
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn nothing_is_sent_before_all_are_known_and_then_what_changes() {
        let publication = ServicePublication::new(Publication::new("boot", []));
        let request = Request::new(v1::WatchServicesRequest {});
        let sent = publication.watch_services(request).await.unwrap();
        let mut sent = sent.into_inner();
        assert!(sent.next().now_or_never().is_none());
        let mut reader = ServiceReader::default();
        let web = v1::Service::default();
        for change in [
            Change::SnapshotBegin(v1::SnapshotBegin {}),
            Change::SnapshotEnd(v1::SnapshotEnd {}),
            Change::Service(web),
        ] {
            let message = v1::ServiceChange {
                change: Some(change),
            };
            if reader.take(message.clone()) {
                publication.set(reader.services());
            }
            let mut last = None;
            while let Some(next) = sent.next().now_or_never() {
                last = next.transpose().unwrap();
            }
            let is_known = reader.services().is_some();
            assert_eq!(last, is_known.then_some(message));
        }
    }
}
