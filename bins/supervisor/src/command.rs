//! What others ask of the main loop.

use tokio::sync::oneshot;
use topology::Process;

use crate::failure::Failure;

/// Commands that wait for the main loop: people and scripts, a few at a time.
pub(crate) const MAX_WAITING_COMMANDS: usize = 16;

/// Why a process is not restarted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestartError {
    /// The supervisor is restarted by whoever started it; or the node does not run it.
    #[error("{0} is not restarted by the supervisor")]
    NotSupervised(Process),
    /// Everything is being stopped.
    #[error("the supervisor is stopping")]
    Stopping,
}

/// Why the configuration in force stays.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    /// Everything is being stopped, and a reload would stop and start out of turn.
    #[error("the supervisor is stopping")]
    Stopping,
    /// The new one cannot be used.
    #[error(transparent)]
    Unusable(#[from] Failure),
}

/// What others ask of the main loop.
#[derive(Debug)]
pub(crate) enum Command {
    /// Restart a process now.
    Restart {
        process: Process,
        /// The pid that it had, or 0.
        reply: oneshot::Sender<Result<u32, RestartError>>,
    },
    /// Read the configuration again.
    Reload {
        reply: oneshot::Sender<Result<Vec<Process>, ReloadError>>,
    },
}
