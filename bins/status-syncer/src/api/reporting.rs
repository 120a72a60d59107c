//! What is needed to report.

use std::sync::Arc;

use bulkhead_api::v1::SetNodeHealthRequest;
use clock::WallClock;
use ipc::Network;
use node_config::NodeConfig;
use process::Context;
use tokio::sync::watch;
use tokio::time::Instant;

/// What sync-loop reported last of the node's health, and when.
pub(crate) type ReportedHealth = Option<(SetNodeHealthRequest, Instant)>;

use super::awaited::AwaitedReports;

/// What is needed to report.
#[derive(Clone)]
pub(crate) struct Reporting {
    pub(crate) config: Arc<NodeConfig>,
    pub(crate) clock: WallClock,
    pub(crate) network: Network,
    pub(crate) awaited: AwaitedReports,
    pub(crate) health: watch::Receiver<ReportedHealth>,
}

impl Reporting {
    pub(crate) fn of(
        context: &Context,
        awaited: AwaitedReports,
        health: watch::Receiver<ReportedHealth>,
    ) -> Reporting {
        Reporting {
            health,
            config: Arc::clone(&context.config),
            clock: context.clock.clone(),
            network: context.network.clone(),
            awaited,
        }
    }
}
