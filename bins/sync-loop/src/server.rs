//! What sync-loop serves: the desired pods, the last decision about each, and
//! the state of the loop. Everything is asked of the loop itself.

use std::pin::Pin;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::sync_loop_server::SyncLoopServer;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::dispatcher::desired_pods::Uid;
use crate::dispatcher::{LoopSummary, SyncLoop};
use crate::peers::PeerBoard;

/// Longest list of problems or lines of text in one answer: the answer must stay
/// below 256 KiB.
const MAX_PROBLEMS_SHOWN: usize = 64;

/// Longest problem that is shown, in bytes.
const MAX_PROBLEM_BYTES: usize = 1 << 10;

/// A question to the loop, with the way back.
#[derive(Debug)]
pub(crate) enum Query {
    /// Uids of the desired pods, or of the one that is named.
    DesiredPods(Option<String>, oneshot::Sender<Vec<Uid>>),
    /// One desired pod.
    Describe(Uid, oneshot::Sender<Option<v1::DesiredPod>>),
    /// The loop as a whole.
    Summary(oneshot::Sender<(LoopSummary, u64, Duration)>),
}

/// What the loop lets a query see.
pub(crate) struct LoopState<'a> {
    pub(crate) sync_loop: &'a SyncLoop,
    pub(crate) iterations: u64,
    pub(crate) since_last_iteration: Duration,
}

impl Query {
    /// Answers; a caller that has gone away is no matter.
    pub(crate) fn answer(self, state: LoopState<'_>) {
        match self {
            Query::DesiredPods(uid, answer) => {
                drop(answer.send(state.sync_loop.desired_pods(uid.as_deref())));
            }
            Query::Describe(uid, answer) => drop(answer.send(state.sync_loop.describe(&uid))),
            Query::Summary(answer) => {
                let summary = state.sync_loop.summary();
                drop(answer.send((summary, state.iterations, state.since_last_iteration)));
            }
        }
    }
}

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    boot_id: String,
    queries: mpsc::Sender<Query>,
    peers: PeerBoard,
}

impl Server {
    pub(crate) fn new(boot_id: String, queries: mpsc::Sender<Query>, peers: PeerBoard) -> Server {
        Server {
            boot_id,
            queries,
            peers,
        }
    }

    pub(crate) fn routes(self) -> Routes {
        Routes::new(SyncLoopServer::new(self))
    }
}

async fn ask<T>(
    queries: &mpsc::Sender<Query>,
    query: impl FnOnce(oneshot::Sender<T>) -> Query,
) -> Result<T, Status> {
    let stopping = || Status::unavailable("sync-loop is stopping");
    let (answer, answered) = oneshot::channel();
    queries.send(query(answer)).await.map_err(|_| stopping())?;
    answered.await.map_err(|_| stopping())
}

#[tonic::async_trait]
impl v1::sync_loop_server::SyncLoop for Server {
    type ListDesiredPodsStream =
        Pin<Box<dyn Stream<Item = Result<v1::DesiredPod, Status>> + Send + 'static>>;

    async fn list_desired_pods(
        &self,
        request: Request<v1::ListDesiredPodsRequest>,
    ) -> Result<Response<Self::ListDesiredPodsStream>, Status> {
        let uid = Some(request.into_inner().pod_uid).filter(|uid| !uid.is_empty());
        let uids = ask(&self.queries, |answer| Query::DesiredPods(uid, answer)).await?;
        Ok(Response::new(Box::pin(describe_all(
            self.queries.clone(),
            uids,
        ))))
    }

    async fn get_loop_status(
        &self,
        _request: Request<v1::GetLoopStatusRequest>,
    ) -> Result<Response<v1::LoopStatus>, Status> {
        let (summary, iterations, since) = ask(&self.queries, Query::Summary).await?;
        let sources = summary.sources.into_iter().map(|source| v1::SourceStatus {
            name: source.name.to_owned(),
            ready: source.ready,
            pods: u32::try_from(source.pods).unwrap_or(u32::MAX),
            problems: source
                .problems
                .into_iter()
                .take(MAX_PROBLEMS_SHOWN)
                .map(shortened)
                .collect(),
        });
        Ok(Response::new(v1::LoopStatus {
            boot_id: self.boot_id.clone(),
            sources: sources.collect(),
            peers: self.peers.all(),
            iterations,
            millis_since_last_iteration: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            pleg_healthy: summary.pleg.healthy,
            pleg_reason: summary.pleg.reason,
            runtime_error: summary.runtime_error,
            work_queue_length: u32::try_from(summary.work_queue_length).unwrap_or(u32::MAX),
        }))
    }
}

fn shortened(mut text: String) -> String {
    ipc::limits::truncate(&mut text, MAX_PROBLEM_BYTES);
    text
}

/// The pods one after the other, each asked for when the reader wants it, so that
/// a slow reader holds one pod and not all of them.
fn describe_all(
    queries: mpsc::Sender<Query>,
    uids: Vec<Uid>,
) -> impl Stream<Item = Result<v1::DesiredPod, Status>> + Send {
    let left = (queries, uids.into_iter());
    futures_util::stream::unfold(left, |(queries, mut uids)| async move {
        loop {
            let uid = uids.next()?;
            match ask(&queries, |answer| Query::Describe(uid, answer)).await {
                // It went away meanwhile.
                Ok(None) => {}
                Ok(Some(pod)) => return Some((Ok(pod), (queries, uids))),
                Err(status) => return Some((Err(status), (queries, Vec::new().into_iter()))),
            }
        }
    })
}
