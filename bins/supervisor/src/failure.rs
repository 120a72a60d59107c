//! Why the supervisor cannot start or go on, what to do about it, and its exit
//! codes, which `--help` lists.

use std::io;
use std::path::PathBuf;

use topology::{IdentityError, Process};

/// Exit codes beside 0 (stopped as asked) and 2 (usage); see [`Failure`].
pub(crate) const EXIT_CODES_HELP: &str = "\
Exit codes:
  0   stopped as asked; containers keep running
  1   an unexpected failure
  2   wrong usage
  10  not started as root
  11  the container runtime's socket does not exist
  12  the container runtime's socket is stale: nothing listens on it
  13  another supervisor runs with the same --run-dir
  14  a program is missing in --bin-dir, or cannot be run by its user
  15  a user is missing (create the users, or give --uid-base)
  16  a directory is unsafe or cannot be used
  78  bad configuration";

/// Why the supervisor ends.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Without root there is nothing to drop.
    #[error("the supervisor must be started as root: it starts each process as its own user")]
    NotRoot,
    /// No runtime.
    #[error(
        "there is no container runtime socket {path}: start containerd, or name its socket with --container-runtime-endpoint", path = path.display()
    )]
    NoRuntimeSocket {
        /// The socket.
        path: PathBuf,
    },
    /// A socket file that nobody serves.
    #[error(
        "nothing listens on the container runtime socket {path}, it is left over from a runtime that ended: start containerd again", path = path.display()
    )]
    StaleRuntimeSocket {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The lock is held.
    #[error(
        "another supervisor runs with {path}: stop it, or give this one its own --run-dir, --state-dir, --root-dir and --log-dir", path = path.display()
    )]
    SecondInstance {
        /// The run directory.
        path: PathBuf,
    },
    /// A program is missing.
    #[error(
        "cannot run {path} for {process}: {reason}; install it there, or name the directory of the programs with --bin-dir", path = path.display()
    )]
    Binary {
        /// Whose.
        process: Process,
        /// Where it should be.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A user is missing.
    #[error("the users of the processes cannot be used")]
    Users(#[source] IdentityError),
    /// A directory that others could change, or that is not usable.
    #[error("{path} cannot be used: {reason}", path = path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The file system refused.
    #[error("cannot {action} {path}", path = path.display())]
    Io {
        /// create, write ...
        action: &'static str,
        /// What.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Flags or files say something that cannot be.
    #[error("the configuration cannot be used")]
    Configuration(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The operating system refused something that always works.
    #[error("cannot {action}")]
    System {
        /// What.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// Its own socket failed.
    #[error("the supervisor's own server failed")]
    Serve(#[source] ipc::ServeError),
}

impl Failure {
    /// The exit code; see [`EXIT_CODES_HELP`].
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::System { .. } | Failure::Serve(_) => 1,
            Failure::NotRoot => 10,
            Failure::NoRuntimeSocket { .. } => 11,
            Failure::StaleRuntimeSocket { .. } => 12,
            Failure::SecondInstance { .. } => 13,
            Failure::Binary { .. } => 14,
            Failure::Users(IdentityError::BaseOutOfRange { .. }) | Failure::Configuration(_) => 78,
            Failure::Users(_) => 15,
            Failure::Directory { .. } | Failure::Io { .. } => 16,
        }
    }
}
