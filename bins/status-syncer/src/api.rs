//! What is reported to the API server: statuses of pods and their end, mirrors of static pods,
//! the Node and its Lease, events. All by reports to api-gateway, which makes the requests.
//!
//! - `held`: what the API server holds (pure);
//! - `pod_report`: what is to be reported of a pod now, `status_patch`: as which patch, and
//!   `mirror`: as which mirror (pure);
//! - `node`: the Node object and its status, `not_ready`: why it is not ready,
//!   `node_events`: what happens to it, `event`: an Event, and `spam`: which events are too many (pure);
//! - `event_queue`: which event is reported next (pure);
//! - `awaited`: which reports of pods are not taken yet, for people;
//! - `pod_reporter`, `node_reporter` and `event_reporter` carry that out, by `gateway`.
//!
//! Everything is decided anew from what is published here and what is held there, so that a
//! report that was lost, or made twice, is put right by the next one.

mod awaited;
mod event;
mod event_queue;
mod event_reporter;
mod gateway;
mod held;
mod mirror;
mod node;
mod node_events;
mod node_reporter;
mod not_ready;
mod pod_report;
mod pod_reporter;
mod reporting;
mod spam;
mod status_patch;

use std::convert::Infallible;
use std::sync::Arc;

pub(crate) use awaited::AwaitedReports;
use bulkhead_api::v1;
use gateway::Gateway;
use held::HeldPods;
use ipc::FeedWatch;
use pod_reporter::Known;
pub(crate) use reporting::{ReportedHealth, Reporting};
use tokio::sync::{mpsc, watch};

use crate::command::Command;
use crate::publication::LocalReaders;

/// Reports for ever what is published here, where there is an API server.
pub(crate) async fn report(
    reporting: Reporting,
    readers: LocalReaders,
    events: FeedWatch<v1::Event>,
    known: Known,
    commands: mpsc::Sender<Command>,
) -> Infallible {
    if reporting.config.api_server.is_none() {
        return std::future::pending().await;
    }
    let gateway = Gateway::new(&reporting.network, reporting.awaited.clone());
    let node_name: Arc<str> = reporting.config.node_name.as_str().into();
    let events = event_reporter::run(
        Arc::clone(&node_name),
        gateway.clone(),
        events,
        readers.clone(),
    );
    let (node, held_node) = watch::channel(None);
    let held = HeldPods::new(node);
    let pods = pod_reporter::run(
        node_name,
        gateway.clone(),
        readers,
        known,
        commands.clone(),
        held,
    );
    let node = node_reporter::run(&reporting, gateway, held_node, commands);
    tokio::select! {
        never = pods => never,
        never = node => never,
        never = events => never,
    }
}
