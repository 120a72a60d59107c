//! The connection: a runtime at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use super::exec_output::CutAnswers;
use crate::proto::containerd::services::events::v1::events_client::EventsClient;
use crate::proto::containerd::services::tasks::v1::tasks_client::TasksClient;
use crate::proto::runtime::v1::{
    image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient,
};

/// Largest answer: the kubelet's own cap, about 11,000 containers in a list.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// More than a machine has processors for; a list takes some milliseconds.
pub(super) const LISTS_AT_A_TIME: usize = 8;

/// The endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Only Unix sockets are spoken to: whoever reaches the runtime is root.
    #[error("runtime endpoint {endpoint:?}: want unix:///PATH or /PATH")]
    NotAUnixSocket {
        /// As given.
        endpoint: String,
    },
}

/// Shown each connection on which calls are made, once it is there.
pub type OnConnection = Arc<dyn Fn(BorrowedFd<'_>) + Send + Sync>;

/// A runtime behind a CRI socket.
///
/// Connects when it is first used and again after each break, so it can be made while
/// the runtime is down. Cheap to clone: clones share the connection.
#[derive(Debug, Clone)]
pub struct CriClient {
    pub(super) runtime: RuntimeServiceClient<Channel>,
    /// Over the same connection: what commands print is cut while it comes in.
    pub(super) commands: RuntimeServiceClient<CutAnswers>,
    pub(super) images: ImageServiceClient<Channel>,
    pub(super) events: RuntimeServiceClient<Channel>,
    pub(super) containerd_events: EventsClient<Channel>,
    pub(super) tasks: TasksClient<Channel>,
    /// Held while the runtime is asked what something uses: one question at a time.
    /// containerd before 1.6.22 writes down each answer while others read what it writes,
    /// and ends with "concurrent map writes" (its pull request 8130).
    pub(super) usage: Arc<Semaphore>,
    /// Lists that are asked for at a time. Of a hundred workers that ask in one moment each
    /// would have its answer in memory, and the connection room for all, for good.
    pub(super) lists: Arc<Semaphore>,
}

impl CriClient {
    /// A client of the socket at `endpoint`: `unix:///run/containerd/containerd.sock`
    /// or just the absolute path. Needs a tokio runtime; does not connect yet.
    pub fn new(endpoint: &str) -> Result<CriClient, ConnectError> {
        CriClient::observed(endpoint, Arc::new(|_| {}))
    }

    /// The same, with somebody who is shown each connection on which calls are made.
    /// A runtime gives up the calls of a caller whose connection is closed, in the
    /// midst of what it does for them; a duplicate of the descriptor keeps it open.
    /// Events come over a connection of their own, which nobody is shown: kept
    /// without a reader, it would fill up.
    ///
    /// # Errors
    /// When the endpoint is not a Unix socket's.
    pub fn observed(
        endpoint: &str,
        on_connection: OnConnection,
    ) -> Result<CriClient, ConnectError> {
        let path = socket_path(endpoint).ok_or_else(|| ConnectError::NotAUnixSocket {
            endpoint: endpoint.to_owned(),
        })?;
        let calls = channel(path.clone(), on_connection);
        let events = channel(path, Arc::new(|_| {}));
        Ok(CriClient {
            runtime: RuntimeServiceClient::new(calls.clone())
                .max_decoding_message_size(MAX_ANSWER_BYTES),
            commands: RuntimeServiceClient::new(CutAnswers(calls.clone())),
            tasks: TasksClient::new(calls.clone()),
            images: ImageServiceClient::new(calls).max_decoding_message_size(MAX_ANSWER_BYTES),
            events: RuntimeServiceClient::new(events.clone())
                .max_decoding_message_size(MAX_ANSWER_BYTES),
            containerd_events: EventsClient::new(events)
                .max_decoding_message_size(MAX_ANSWER_BYTES),
            usage: Arc::new(Semaphore::new(1)),
            lists: Arc::new(Semaphore::new(LISTS_AT_A_TIME)),
        })
    }
}

fn channel(path: PathBuf, on_connection: OnConnection) -> Channel {
    let connector = service_fn(move |_: Uri| {
        let (path, on_connection) = (path.clone(), Arc::clone(&on_connection));
        async move {
            let stream = UnixStream::connect(path).await?;
            on_connection(stream.as_fd());
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    });
    // The name is nobody's: the connector knows where to go.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

/// The absolute path in an endpoint, if it is one of a Unix socket.
pub(super) fn socket_path(endpoint: &str) -> Option<PathBuf> {
    let path = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
    path.is_absolute().then(|| path.to_owned())
}
