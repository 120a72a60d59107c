//! `Usage`: what pods use, for people who look at it.

use std::time::Duration;

use bulkhead_api::v1;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::shared::Shared;
use super::status;
use crate::usage::UsageReader;

/// How long an answer stands: however many ask, the runtime is asked twice a second.
const STANDS: Duration = Duration::from_millis(500);

/// How long a question may wait, behind others too: a runtime that hangs is heard of long
/// before its own deadline, and by all who ask.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Service {
    reader: UsageReader,
    /// The last answer, and when it was there. Held while the runtime is asked, so
    /// that who asks meanwhile gets the same.
    last: Mutex<Option<(Instant, Vec<v1::PodUsage>)>>,
}

impl Service {
    pub(super) fn new(shared: &Shared) -> Service {
        Service {
            reader: UsageReader::new(shared.runtime.reads.clone(), shared.relister.clone()),
            last: Mutex::default(),
        }
    }

    async fn pods(&self) -> Result<Vec<v1::PodUsage>, Status> {
        let mut last = self.last.lock().await;
        if let Some((at, pods)) = &*last
            && at.elapsed() < STANDS
        {
            return Ok(pods.clone());
        }
        let pods = self.reader.read().await;
        let pods = pods.map_err(|error| status::of_runtime(&error))?;
        *last = Some((Instant::now(), pods.clone()));
        Ok(pods)
    }
}

#[tonic::async_trait]
impl v1::usage_server::Usage for Service {
    async fn get_usage(
        &self,
        _request: Request<v1::GetUsageRequest>,
    ) -> Result<Response<v1::UsageReport>, Status> {
        let pods = tokio::time::timeout(PATIENCE, self.pods()).await;
        let late = |_elapsed| {
            let seconds = PATIENCE.as_secs();
            Status::deadline_exceeded(format!("the runtime gave no answer within {seconds} s"))
        };
        let pods = pods.map_err(late)??;
        Ok(Response::new(v1::UsageReport { pods, node: None }))
    }
}
