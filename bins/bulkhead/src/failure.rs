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
    #[error("no node agent runs with --run-dir {run_dir}: start it (bulkhead.service or bulkhead.target, or the supervisor itself), or give the --run-dir that it was started with", run_dir = run_dir.display())]
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
    /// A process refuses this user, or its socket does.
    #[error("not permitted: run it as root")]
    NotPermitted {
        /// What was said.
        source: Box<dyn std::error::Error + Send + Sync>,
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
    /// A container that has not started has no log.
    #[error("{0}")]
    NoLog(String),
    /// The command in a container was not run, or nobody knows how it ended.
    #[error("{0}")]
    NotRun(String),
    /// A session that was opened cannot be had, or broke.
    #[error("the session failed")]
    Session {
        /// The cause.
        source: remote_command::Error,
    },
    /// What was asked has no single answer.
    #[error("{0}")]
    Ambiguous(String),
    /// A program of systemd does not answer.
    #[error("cannot {action}")]
    Silent {
        /// What was tried.
        action: String,
        /// How long.
        source: io::Error,
    },
    /// This machine refused.
    #[error("cannot {action}")]
    Local {
        /// What was tried.
        action: String,
        /// The cause.
        source: io::Error,
    },
    /// Nobody reads the answer any more (`bulkhead ... | head`): no failure.
    #[error("nobody reads the answer")]
    ReaderGone,
}

impl Failure {
    /// A failed call, seen from the caller.
    #[must_use]
    pub fn of_call(process: Process, error: CallError) -> Failure {
        match error.code() {
            Some(tonic::Code::PermissionDenied) => Failure::NotPermitted {
                source: error.into(),
            },
            Some(tonic::Code::NotFound) => Failure::NotFound(match error {
                CallError::Refused(status) => status.message().to_owned(),
                CallError::Deadline { .. } => error.to_string(),
            }),
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

    /// A stream that a process ended with a refusal.
    #[must_use]
    pub fn of_status(process: Process, status: tonic::Status) -> Failure {
        Failure::of_call(process, CallError::Refused(Box::new(status)))
    }

    /// The exit code, as `--help` lists them.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::ReaderGone => 0,
            Failure::Refused { .. }
            | Failure::NoLog(_)
            | Failure::NotRun(_)
            | Failure::Session { .. }
            | Failure::Local { .. } => 1,
            Failure::Ambiguous(_) => 2,
            Failure::NotRunning { .. } | Failure::Unreachable { .. } | Failure::Silent { .. } => 3,
            Failure::NotPermitted { .. } => 4,
            Failure::NotFound(_) => 5,
        })
    }
}
