//! `Observations`: what status-syncer asks for, and pods by reference.

use std::pin::Pin;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_observations_response::Message;
use futures_util::stream;
use ipc::{FeedItem, FeedWatch, StateEvent, StateWatch};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::node_facts;
use super::shared::Shared;

pub(super) struct Service(pub(super) Shared);

struct Watch {
    boot_id: String,
    observations: StateWatch<String, v1::PodObservation>,
    events: FeedWatch<v1::Event>,
}

#[tonic::async_trait]
impl v1::observations_server::Observations for Service {
    type WatchObservationsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchObservationsResponse, Status>> + Send>>;

    async fn watch_observations(
        &self,
        _request: Request<v1::WatchObservationsRequest>,
    ) -> Result<Response<Self::WatchObservationsStream>, Status> {
        let watch = Watch {
            boot_id: self.0.boot_id.clone(),
            observations: self.0.pool.publisher().observations().subscribe(),
            events: self.0.events.feed().subscribe_from_oldest(),
        };
        let messages = stream::unfold(watch, |mut watch| async move {
            let message = watch.next().await;
            let response = v1::WatchObservationsResponse {
                boot_id: watch.boot_id.clone(),
                message: Some(message),
            };
            Some((Ok(response), watch))
        });
        Ok(Response::new(Box::pin(messages)))
    }

    async fn get_observed_pod(
        &self,
        request: Request<v1::GetPodRequest>,
    ) -> Result<Response<v1::GetPodResponse>, Status> {
        let v1::GetPodRequest { pod_uid, hash } = request.into_inner();
        pod::identity::check_uid(&pod_uid)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let Some(pod) = self.0.pool.publisher().pod(&pod_uid) else {
            return Err(Status::not_found(format!("no worker has pod {pod_uid}")));
        };
        if !hash.is_empty() && hash != pod.hash() {
            let text = format!("pod {pod_uid} has another version by now");
            return Err(Status::aborted(text));
        }
        Ok(Response::new(v1::GetPodResponse {
            pod: Some(pod.to_message()),
        }))
    }

    async fn get_node_facts(
        &self,
        _request: Request<v1::GetNodeFactsRequest>,
    ) -> Result<Response<v1::NodeFacts>, Status> {
        Ok(Response::new(node_facts::facts(&self.0).await?))
    }
}

impl Watch {
    /// The next message. Only the server's stream polls it, and never drops it
    /// half-way.
    async fn next(&mut self) -> Message {
        loop {
            tokio::select! {
                // State before events, so that the snapshot comes whole; it is
                // bounded by the pods, so events are not starved.
                biased;
                // Cancel-safe: nothing is taken before it returns.
                event = self.observations.next() => return observation(event),
                // Cancel-safe: the position moves only when an event is returned.
                item = self.events.next() => match item {
                    FeedItem::Item(event) => return Message::Event(event),
                    FeedItem::Lost(count) => {
                        tracing::warn!(count, "events were not read in time");
                    }
                },
            }
        }
    }
}

fn observation(event: StateEvent<String, v1::PodObservation>) -> Message {
    match event {
        StateEvent::SnapshotBegin => Message::SnapshotBegin(v1::SnapshotBegin {}),
        StateEvent::Item(_, observation) => Message::Observation(observation),
        StateEvent::SnapshotEnd => Message::SnapshotEnd(v1::SnapshotEnd {}),
        StateEvent::Removed(uid) => Message::RemovedPodUid(uid),
    }
}
