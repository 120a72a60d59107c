//! Reaching the processes, also while they restart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ipc::{CallError, Network};
use tonic::transport::Channel;
use tonic::{Response, Status};
use topology::Process;

use crate::Failure;

/// How long a call may take, restarts of the process included.
const DEADLINE: Duration = Duration::from_secs(10);

/// Pause before a stream that broke is asked for again.
const REPEAT: Duration = Duration::from_millis(50);

/// Writes to standard output.
///
/// # Errors
/// When nobody reads it.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let written = std::io::Write::write_all(&mut std::io::stdout().lock(), text.as_bytes());
    written.map_err(|source| Failure::Local {
        action: "print",
        source,
    })
}

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

    /// A channel to a process.
    ///
    /// # Errors
    /// When nothing runs here, which a missing socket tells.
    pub(crate) fn channel(&self, process: Process) -> Result<Channel, Failure> {
        let socket = self.run_dir.join(process.socket_file_name());
        match std::os::unix::net::UnixStream::connect(&socket) {
            Ok(_) => Ok(self.network.channel(process)),
            Err(error) => match error.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
                    Err(Failure::NotRunning {
                        run_dir: self.run_dir.clone(),
                    })
                }
                _ => Err(Failure::Local {
                    action: "connect to the node agent",
                    source: error,
                }),
            },
        }
    }

    /// A call whose answer is a stream that ends, repeated from its beginning
    /// while the process restarts.
    pub(crate) async fn collect<T>(
        &self,
        process: Process,
        mut attempt: impl AsyncFnMut() -> Result<T, Status>,
    ) -> Result<T, Failure> {
        let until = tokio::time::Instant::now() + DEADLINE;
        loop {
            let status = match tokio::time::timeout_at(until, attempt()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => Some(status),
                Err(_) => None,
            };
            let error = match status {
                Some(status) if ipc::is_broken_connection(&status) => {
                    let last_failure = Some(status.message().to_owned());
                    CallError::Deadline {
                        deadline: DEADLINE,
                        last_failure,
                    }
                }
                Some(status) => {
                    let error = CallError::Refused(Box::new(status));
                    return Err(Failure::of_call(process, error));
                }
                None => CallError::Deadline {
                    deadline: DEADLINE,
                    last_failure: None,
                },
            };
            if tokio::time::Instant::now() + REPEAT >= until {
                return Err(Failure::of_call(process, error));
            }
            tokio::time::sleep(REPEAT).await;
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
}
