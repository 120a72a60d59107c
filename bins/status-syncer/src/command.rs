//! What the main loop is asked for, by the services and by what reports the Node.

use bulkhead_api::v1;
use ipc::FeedWatch;
use pod::core::PodCondition;
use tokio::sync::oneshot;

use crate::registry::{KnownPods, Refusal};

/// What a call asks of the main loop, and where the answer goes.
#[derive(Debug)]
pub(crate) enum Command {
    SetVerdicts(Vec<v1::ProbeVerdict>, oneshot::Sender<()>),
    Reject(
        Box<v1::RejectPodRequest>,
        oneshot::Sender<Result<(), Refusal>>,
    ),
    ReportEvents(v1::ReportEventsRequest, oneshot::Sender<()>),
    Retain(KnownPods, oneshot::Sender<Result<(), Refusal>>),
    /// The API server holds these conditions of the pod with this UID, or has it no more.
    /// Nobody waits for that.
    SetHeld(String, Option<Vec<PodCondition>>),
    RecentEvents(Option<String>, oneshot::Sender<RecentEvents>),
}

/// Events up to now, and those that follow.
#[derive(Debug)]
pub(crate) struct RecentEvents {
    pub(crate) recent: Vec<v1::Event>,
    pub(crate) following: FeedWatch<v1::Event>,
}
