//! `Usage`: what pods and the node use, for people who look at it.

use std::time::Duration;

use bulkhead_api::v1;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::shared::Shared;
use super::status;
use crate::node_usage::NodeUsageReader;
use crate::usage::UsageReader;

/// How long an answer stands: however many ask, the runtime is asked twice a second.
const STANDS: Duration = Duration::from_millis(500);

/// How long a question may wait, behind others too: a runtime that hangs is heard of long
/// before its own deadline, and by all who ask.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Service {
    reader: UsageReader,
    node: NodeUsageReader,
    /// The last answer, and when it was there. Held while the runtime is asked, so
    /// that who asks meanwhile gets the same.
    last: Mutex<Option<(Instant, v1::UsageReport)>>,
}

impl Service {
    pub(super) fn new(shared: &Shared) -> Service {
        Service {
            reader: UsageReader::new(shared.runtime.reads.clone(), shared.relister.clone()),
            node: NodeUsageReader::new(
                shared.runtime.reads.clone(),
                shared.host.clone(),
                shared.clock.clone(),
            ),
            last: Mutex::default(),
        }
    }

    async fn report(&self) -> Result<v1::UsageReport, Status> {
        let mut last = self.last.lock().await;
        if let Some((at, report)) = &*last
            && at.elapsed() < STANDS
        {
            return Ok(report.clone());
        }
        let (pods, node) = tokio::join!(self.reader.read(), self.node.read());
        let report = v1::UsageReport {
            pods: pods.map_err(|error| status::of_runtime(&error))?,
            node: Some(node),
        };
        *last = Some((Instant::now(), report.clone()));
        Ok(report)
    }
}

#[tonic::async_trait]
impl v1::usage_server::Usage for Service {
    async fn get_usage(
        &self,
        _request: Request<v1::GetUsageRequest>,
    ) -> Result<Response<v1::UsageReport>, Status> {
        let report = tokio::time::timeout(PATIENCE, self.report()).await;
        let late = |_elapsed| {
            let seconds = PATIENCE.as_secs();
            Status::deadline_exceeded(format!("the runtime gave no answer within {seconds} s"))
        };
        Ok(Response::new(report.map_err(late)??))
    }
}
