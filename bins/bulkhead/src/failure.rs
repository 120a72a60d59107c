//! What can go wrong, told once, with what to do about it.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use ipc::CallError;
use topology::Process;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// There is no socket: nothing runs here.
    #[error("no node agent runs with --run-dir {run_dir}: start the supervisor, or give the --run-dir that it was started with", run_dir = run_dir.display())]
    NotRunning {
        /// Where it was looked for.
        run_dir: PathBuf,
    },
    /// A process does not answer.
    #[error("{process} does not answer: `bulkhead status` tells why")]
    Unreachable {
        /// Which.
        process: Process,
        /// What was tried.
        source: CallError,
    },
    /// A process refuses this user.
    #[error("not permitted: run it as root")]
    NotPermitted {
        /// What it said.
        source: CallError,
    },
    /// A process refuses.
    #[error("{process} refused")]
    Refused {
        /// Which.
        process: Process,
        /// What it said.
        source: CallError,
    },
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// This machine refused.
    #[error("cannot {action}")]
    Local {
        /// What was tried.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl Failure {
    /// A failed call, seen from the caller.
    #[must_use]
    pub fn of_call(process: Process, error: CallError) -> Failure {
        match error.code() {
            Some(tonic::Code::PermissionDenied) => Failure::NotPermitted { source: error },
            Some(tonic::Code::NotFound) => Failure::NotFound(error.to_string()),
            Some(_) => Failure::Refused {
                process,
                source: error,
            },
            None => Failure::Unreachable {
                process,
                source: error,
            },
        }
    }

    /// The failure with its causes on one line.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }

    /// The exit code, as `--help` lists them.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::NotRunning { .. } | Failure::Unreachable { .. } => 3,
            Failure::NotPermitted { .. } => 4,
            Failure::NotFound(_) => 5,
            Failure::Refused { .. } | Failure::Local { .. } => 1,
        })
    }
}
