//! The two gRPC services: thin, they hand everything to the main loop.

use std::pin::Pin;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::list_events_response::Message as EventMessage;
use bulkhead_api::v1::list_pod_statuses_response::Message as StatusMessage;
use bulkhead_api::v1::status_reports_server::{StatusReports, StatusReportsServer};
use bulkhead_api::v1::statuses_server::{Statuses, StatusesServer};
use futures_util::{Stream, StreamExt, stream};
use ipc::limits::MAX_POD_MESSAGE_BYTES;
use ipc::{FeedItem, FeedWatch, StateEvent, StateHub};
use pod::PodSource;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::api::{AwaitedReports, ReportedHealth};
use crate::command::{Command, RecentEvents};
use crate::publication::PublishedPod;
use crate::registry::{KnownPods, Refusal};

/// Both services.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) boot_id: String,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) statuses: StateHub<String, PublishedPod>,
    pub(crate) awaited: AwaitedReports,
    pub(crate) health: watch::Sender<ReportedHealth>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    /// The routes that serve both.
    pub(crate) fn routes(self) -> Routes {
        let reports =
            StatusReportsServer::new(self.clone()).max_decoding_message_size(MAX_POD_MESSAGE_BYTES);
        Routes::new(reports).add_service(StatusesServer::new(self))
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Status> {
        let stopping = || Status::unavailable("status-syncer is stopping");
        let (sender, answer) = oneshot::channel();
        self.commands
            .send(command(sender))
            .await
            .map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }
}

/// The one place where refusals become statuses of calls.
impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        let message = telemetry::chain(&refusal);
        match refusal {
            Refusal::Pod(_) | Refusal::ListOfNoTime => Status::invalid_argument(message),
            Refusal::TooManyPods => Status::resource_exhausted(message),
            Refusal::StillEnds { .. } => Status::aborted(message),
            Refusal::AlreadyRuns { .. } => Status::failed_precondition(message),
        }
    }
}

#[tonic::async_trait]
impl StatusReports for Service {
    async fn set_probe_verdicts(
        &self,
        request: Request<v1::SetProbeVerdictsRequest>,
    ) -> Result<Response<v1::SetProbeVerdictsResponse>, Status> {
        let verdicts = request.into_inner().verdicts;
        self.ask(|answer| Command::SetVerdicts(verdicts, answer))
            .await?;
        Ok(Response::new(v1::SetProbeVerdictsResponse {
            boot_id: self.boot_id.clone(),
        }))
    }

    async fn reject_pod(
        &self,
        request: Request<v1::RejectPodRequest>,
    ) -> Result<Response<v1::RejectPodResponse>, Status> {
        let request = Box::new(request.into_inner());
        self.ask(|answer| Command::Reject(request, answer))
            .await??;
        Ok(Response::new(v1::RejectPodResponse {
            boot_id: self.boot_id.clone(),
        }))
    }

    async fn set_node_health(
        &self,
        request: Request<v1::SetNodeHealthRequest>,
    ) -> Result<Response<v1::SetNodeHealthResponse>, Status> {
        let told = (request.into_inner(), Instant::now());
        self.health.send_replace(Some(told));
        Ok(Response::new(v1::SetNodeHealthResponse {
            boot_id: self.boot_id.clone(),
        }))
    }

    async fn report_events(
        &self,
        request: Request<v1::ReportEventsRequest>,
    ) -> Result<Response<v1::ReportEventsResponse>, Status> {
        let request = request.into_inner();
        self.ask(|answer| Command::ReportEvents(request, answer))
            .await?;
        Ok(Response::new(v1::ReportEventsResponse {
            boot_id: self.boot_id.clone(),
        }))
    }

    async fn remove_orphaned_statuses(
        &self,
        request: Request<v1::RemoveOrphanedStatusesRequest>,
    ) -> Result<Response<v1::RemoveOrphanedStatusesResponse>, Status> {
        let request = request.into_inner();
        let listed_at = request.listed_at_nanos_since_boot;
        let delivered = request.delivered_sources.iter();
        let known = KnownPods {
            uids: request.known_pod_uids.into_iter().collect(),
            delivered: delivered
                .filter_map(|name| PodSource::parse(name))
                .collect(),
            listed_at: Duration::from_nanos(listed_at.ok_or(Refusal::ListOfNoTime)?),
        };
        self.ask(|answer| Command::Retain(known, answer)).await??;
        Ok(Response::new(v1::RemoveOrphanedStatusesResponse {
            boot_id: self.boot_id.clone(),
        }))
    }
}

#[tonic::async_trait]
impl Statuses for Service {
    type ListPodStatusesStream = Answers<v1::ListPodStatusesResponse>;

    async fn list_pod_statuses(
        &self,
        request: Request<v1::ListPodStatusesRequest>,
    ) -> Result<Response<Self::ListPodStatusesStream>, Status> {
        let v1::ListPodStatusesRequest { watch, pod: wanted } = request.into_inner();
        let answer = |message| v1::ListPodStatusesResponse {
            message: Some(message),
        };
        let awaited = self.awaited.clone();
        let messages = self.statuses.subscribe().into_stream();
        let messages = messages.filter_map(move |event| {
            std::future::ready(match event {
                StateEvent::SnapshotBegin => None,
                StateEvent::Item(_, pod) => {
                    let identity = pod.document.identity();
                    let is_wanted = wanted.as_ref().is_none_or(|wanted| {
                        wanted.namespace == identity.namespace() && wanted.name == identity.name()
                    });
                    if !is_wanted {
                        return std::future::ready(None);
                    }
                    let awaited = awaited.text(identity.namespace(), identity.name());
                    Some(StatusMessage::Entry(v1::PodStatusEntry {
                        awaited_report: awaited,
                        ..(&pod).into()
                    }))
                }
                StateEvent::SnapshotEnd => Some(StatusMessage::SnapshotComplete(true)),
                StateEvent::Removed(uid) => Some(StatusMessage::RemovedPodUid(uid)),
            })
        });
        let messages = until_complete(messages, watch);
        Ok(Response::new(Box::pin(
            messages.map(move |message| Ok(answer(message))),
        )))
    }

    type ListEventsStream = Answers<v1::ListEventsResponse>;

    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Result<Response<Self::ListEventsStream>, Status> {
        let v1::ListEventsRequest { watch, pod_uid } = request.into_inner();
        let pod_uid = (!pod_uid.is_empty()).then_some(pod_uid);
        let wanted = pod_uid.clone();
        let RecentEvents { recent, following } = self
            .ask(|answer| Command::RecentEvents(wanted, answer))
            .await?;
        let answer = |message| v1::ListEventsResponse {
            message: Some(message),
        };
        let first = stream::iter(recent)
            .map(EventMessage::Event)
            .chain(stream::iter([EventMessage::SnapshotComplete(true)]))
            .map(Ok);
        let messages: Answers<EventMessage> = if watch {
            Box::pin(first.chain(follow(following, pod_uid)))
        } else {
            Box::pin(first)
        };
        let answers = messages.map(move |message| message.map(&answer));
        Ok(Response::new(Box::pin(answers)))
    }
}

/// All of `messages`, or only the snapshot: its end is then the last message.
fn until_complete(
    messages: impl Stream<Item = StatusMessage> + Send,
    watch: bool,
) -> impl Stream<Item = StatusMessage> + Send {
    // The end must be seen without waiting for a further message.
    messages
        .flat_map(move |message| {
            let last = !watch && matches!(message, StatusMessage::SnapshotComplete(_));
            stream::iter(std::iter::once(Some(message)).chain(last.then_some(None)))
        })
        .take_while(|message| std::future::ready(message.is_some()))
        .filter_map(std::future::ready)
}

/// Events from now on; ends with an error when the reader falls behind, so that
/// it begins again with what is there.
fn follow(
    watch: FeedWatch<v1::Event>,
    pod_uid: Option<String>,
) -> impl Stream<Item = Result<EventMessage, Status>> + Send {
    let items = stream::unfold(watch, |mut watch| async move {
        Some((watch.next().await, watch))
    });
    items.filter_map(move |item| {
        std::future::ready(match item {
            FeedItem::Lost(count) => Some(Err(Status::data_loss(format!(
                "{count} events were dropped because the reader is slow; call again"
            )))),
            FeedItem::Item(event) => {
                let uid = event.pod.as_ref().map(|pod| pod.uid.as_str());
                let wanted = pod_uid.is_none() || pod_uid.as_deref() == uid;
                wanted.then(|| Ok(EventMessage::Event(event)))
            }
        })
    })
}
