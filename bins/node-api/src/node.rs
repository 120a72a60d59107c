//! What the other processes of the node are asked for.

use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::api_reviews_client::ApiReviewsClient;
use bulkhead_api::v1::container_logs_client::ContainerLogsClient;
use bulkhead_api::v1::list_pod_statuses_response::Message as StatusMessage;
use bulkhead_api::v1::sessions_client::SessionsClient;
use bulkhead_api::v1::statuses_client::StatusesClient;
use bulkhead_api::v1::sync_loop_client::SyncLoopClient;
use bulkhead_api::v1::usage_client::UsageClient;
use ipc::limits::{MAX_DESIRED_BYTES, MAX_POD_MESSAGE_BYTES, MAX_PODS, MAX_USAGE_BYTES};
use ipc::{CallError, Channel, Collected, Message, Network};
use tonic::{Response, Status, Streaming};
use topology::Process;

/// Deadlines of the protocol, for a call whose server may restart meanwhile.
const DEADLINE: Duration = Duration::from_secs(10);
const COMMAND_DEADLINE: Duration = Duration::from_secs(120);
const HEALTH_DEADLINE: Duration = Duration::from_secs(2);

/// Largest output of a command.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// The other processes.
pub(crate) struct Node {
    sync_loop: Channel,
    statuses: Channel,
    pool: Channel,
    gateway: Channel,
}

impl Node {
    pub(crate) fn new(network: &Network) -> Node {
        Node {
            sync_loop: network.channel(Process::SyncLoop),
            statuses: network.channel(Process::StatusSyncer),
            pool: network.channel(Process::PodWorkerPool),
            gateway: network.channel(Process::ApiGateway),
        }
    }

    /// Whose a token is; none for nobody's.
    pub(crate) async fn review_token(&self, token: &str) -> Result<Option<v1::ApiUser>, CallError> {
        let reviewed = ipc::call(DEADLINE, || {
            let mut client = ApiReviewsClient::new(self.gateway.clone());
            let token = token.to_owned();
            async move { client.review_token(v1::ReviewTokenRequest { token }).await }
        });
        Ok(reviewed.await?.user)
    }

    /// Whether a user may do this with this part of the Node.
    pub(crate) async fn review_access(
        &self,
        user: &v1::ApiUser,
        verb: &str,
        subresource: &str,
    ) -> Result<bool, CallError> {
        let reviewed = ipc::call(DEADLINE, || {
            let mut client = ApiReviewsClient::new(self.gateway.clone());
            let request = v1::ReviewAccessRequest {
                user: Some(user.clone()),
                verb: verb.to_owned(),
                subresource: subresource.to_owned(),
            };
            async move { client.review_access(request).await }
        });
        Ok(reviewed.await?.allowed)
    }

    /// A one-time address of the runtime.
    pub(crate) async fn open_session(
        &self,
        request: &v1::OpenSessionRequest,
    ) -> Result<v1::OpenSessionResponse, CallError> {
        ipc::call(DEADLINE, || {
            let mut client = SessionsClient::new(self.pool.clone());
            let request = request.clone();
            async move { client.open_session(request).await }
        })
        .await
    }

    /// The output of a command.
    pub(crate) async fn run_command(
        &self,
        request: &v1::RunCommandRequest,
    ) -> Result<v1::RunCommandResponse, CallError> {
        // Once: it may have run when the connection breaks.
        let mut client = SessionsClient::new(self.pool.clone())
            .max_decoding_message_size(MAX_OUTPUT_BYTES + (64 << 10));
        let answered =
            tokio::time::timeout(COMMAND_DEADLINE, client.run_command(request.clone())).await;
        match answered {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(CallError::Refused(Box::new(status))),
            Err(_) => Err(CallError::Deadline {
                deadline: COMMAND_DEADLINE,
                last_failure: None,
            }),
        }
    }

    /// The log of a container, as it comes.
    pub(crate) async fn read_logs(
        &self,
        request: &v1::ReadLogsRequest,
    ) -> Result<Streaming<v1::ReadLogsResponse>, CallError> {
        ipc::call(DEADLINE, || {
            let mut client = ContainerLogsClient::new(self.pool.clone());
            let request = request.clone();
            async move { client.read_logs(request).await }
        })
        .await
    }

    /// What pods and the node use.
    pub(crate) async fn usage(&self) -> Result<v1::UsageReport, CallError> {
        ipc::call(DEADLINE, || {
            let mut client =
                UsageClient::new(self.pool.clone()).max_decoding_message_size(MAX_USAGE_BYTES);
            async move { client.get_usage(v1::GetUsageRequest {}).await }
        })
        .await
    }

    /// The loop's own state.
    pub(crate) async fn loop_status(&self) -> Result<v1::LoopStatus, CallError> {
        ipc::call(HEALTH_DEADLINE, || {
            let mut client = SyncLoopClient::new(self.sync_loop.clone());
            async move { client.get_loop_status(v1::GetLoopStatusRequest {}).await }
        })
        .await
    }

    /// All desired pods.
    pub(crate) async fn desired_pods(&self) -> Result<Vec<v1::DesiredPod>, CallError> {
        list(|| {
            let mut client = SyncLoopClient::new(self.sync_loop.clone())
                .max_decoding_message_size(MAX_POD_MESSAGE_BYTES);
            let request = v1::ListDesiredPodsRequest::default();
            async move { client.list_desired_pods(request).await }
        })
        .await
    }

    /// The statuses of all pods, or of one that is named.
    pub(crate) async fn statuses(
        &self,
        pod: Option<&v1::PodReference>,
    ) -> Result<Vec<v1::Pod>, CallError> {
        let messages = list(|| {
            let mut client = StatusesClient::new(self.statuses.clone())
                .max_decoding_message_size(MAX_POD_MESSAGE_BYTES);
            let request = v1::ListPodStatusesRequest {
                watch: false,
                pod: pod.cloned(),
            };
            async move { client.list_pod_statuses(request).await }
        });
        let entries = messages.await?.into_iter().filter_map(|it| it.message);
        Ok(entries
            .filter_map(|message| match message {
                StatusMessage::Entry(entry) => entry.pod,
                StatusMessage::SnapshotComplete(_) | StatusMessage::RemovedPodUid(_) => None,
            })
            .collect())
    }
}

/// All messages of a list.
async fn list<T, F>(mut open: impl FnMut() -> F) -> Result<Vec<T>, CallError>
where
    T: Message,
    F: Future<Output = Result<Response<Streaming<T>>, Status>>,
{
    ipc::call(DEADLINE, || {
        let opened = open();
        async move {
            let mut stream = opened.await?.into_inner();
            // The end of the snapshot is a message too.
            let mut messages = Collected::new(MAX_DESIRED_BYTES, MAX_PODS + 1);
            while let Some(message) = stream.message().await? {
                messages.push(message)?;
            }
            Ok(Response::new(messages.into_messages()))
        }
    })
    .await
}
