//! Reaching the processes, also while they restart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ipc::Network;
use tonic::transport::Channel;
use tonic::{Response, Status};
use topology::Process;

use crate::Failure;

/// How long a call may take, restarts of the process included.
const DEADLINE: Duration = Duration::from_secs(10);

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
