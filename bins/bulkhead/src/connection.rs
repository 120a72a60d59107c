//! Reaching the processes, also while they restart.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipc::{CallError, Channel, Collected, Message, Network};
use node_config::{NODE_CONFIG_FILE, NodeConfig};
use tokio::time::Instant;
use tonic::{Code, Response, Status, Streaming};
use topology::Process;

use crate::Failure;
use crate::escape::plain;
use crate::output::note;

/// How long a call may take, restarts of the process included.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// What is kept of one list: pods of all sources have 24 MiB at most, and a status each.
const MAX_LIST_BYTES: usize = 40 << 20;

/// Messages of one list: a node has 2,000 pods and keeps 1,000 events at most.
const MAX_LIST_MESSAGES: usize = 4_096;

/// How long is waited for an answer that only adds to another.
pub(crate) const EXTRA_DEADLINE: Duration = Duration::from_secs(2);

/// Pause before a stream that broke is opened again.
pub(crate) const REOPEN: Duration = Duration::from_millis(100);

/// The way to the processes of one node.
#[derive(Debug)]
pub(crate) struct Connection {
    network: Network,
    run_dir: PathBuf,
}

impl Connection {
    pub(crate) fn new(run_dir: &Path) -> Connection {
        Connection {
            network: Network::unix(run_dir),
            run_dir: run_dir.to_owned(),
        }
    }

    /// Where the sockets are.
    pub(crate) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Whether this node is configured to run a process; false where that cannot be read.
    pub(crate) fn runs(&self, process: Process) -> bool {
        let config = NodeConfig::read(&self.run_dir.join(NODE_CONFIG_FILE));
        config.is_ok_and(|config| config.runs(process))
    }

    /// A channel to a process.
    ///
    /// # Errors
    /// When nothing runs here, which a missing socket tells, or the socket may
    /// not be used.
    pub(crate) fn channel(&self, process: Process) -> Result<Channel, Failure> {
        let socket = self.run_dir.join(process.socket_file_name());
        match UnixStream::connect(&socket) {
            Ok(_) => Ok(self.network.channel(process)),
            Err(error) => Err(match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::NotRunning {
                    run_dir: self.run_dir.clone(),
                },
                ErrorKind::PermissionDenied => Failure::NotPermitted {
                    source: error.into(),
                },
                _ => Failure::Local {
                    action: format!("connect to {}", socket.display()),
                    source: error,
                },
            }),
        }
    }

    /// One call, repeated while the process restarts.
    pub(crate) async fn call<T, F>(
        &self,
        process: Process,
        attempt: impl FnMut() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        ipc::call(DEADLINE, attempt)
            .await
            .map_err(|error| Failure::of_call(process, error))
    }

    /// All messages of a list, asked for again from its beginning when the
    /// process restarts in between. Fails when they have more bytes than a node has.
    pub(crate) async fn list<T, F>(
        &self,
        process: Process,
        deadline: Duration,
        mut open: impl FnMut() -> F,
    ) -> Result<Vec<T>, Failure>
    where
        T: Message,
        F: Future<Output = Result<Response<Streaming<T>>, Status>>,
    {
        let until = Instant::now() + deadline;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let opened = ipc::call(left, &mut open).await;
            let stream = opened.map_err(|error| Failure::of_call(process, error))?;
            let last_failure = match tokio::time::timeout_at(until, collect(stream)).await {
                Ok(Ok(messages)) => return Ok(messages),
                Ok(Err(status)) if !ipc::is_broken_connection(&status) => {
                    return Err(Failure::of_status(process, status));
                }
                Ok(Err(status)) => Some(status.message().to_owned()),
                Err(_) => None,
            };
            if Instant::now() + REOPEN >= until {
                let error = CallError::Deadline {
                    deadline,
                    last_failure,
                };
                return Err(Failure::of_call(process, error));
            }
            tokio::time::sleep(REOPEN).await;
        }
    }
}

/// What comes next of a stream.
pub(crate) enum Next<T> {
    Message(T),
    /// The process has said all that it had to say.
    Ended,
    /// The process restarts, or this was too slow to read all: open the stream again.
    Broken,
}

/// Waits for the next message of a stream of `process`.
///
/// # Errors
/// When the process refused; to ask again would be no use.
pub(crate) async fn next<T>(
    process: Process,
    stream: &mut Streaming<T>,
) -> Result<Next<T>, Failure> {
    match stream.message().await {
        Ok(Some(message)) => Ok(Next::Message(message)),
        Ok(None) => Ok(Next::Ended),
        Err(status) if ipc::is_broken_connection(&status) => Ok(Next::Broken),
        Err(status) if status.code() == Code::DataLoss => {
            note(&format!("some are left out: {}", plain(status.message())));
            Ok(Next::Broken)
        }
        Err(status) => Err(Failure::of_status(process, status)),
    }
}

/// What a list is gathered in.
pub(crate) fn room_for_a_list<T: Message>() -> Collected<T> {
    Collected::new(MAX_LIST_BYTES, MAX_LIST_MESSAGES)
}

async fn collect<T: Message>(mut stream: Streaming<T>) -> Result<Vec<T>, Status> {
    let mut messages = room_for_a_list();
    while let Some(message) = stream.message().await? {
        messages.push(message)?;
    }
    Ok(messages.into_messages())
}
