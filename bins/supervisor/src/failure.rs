//! Why the supervisor cannot start or go on, what to do about it, and its exit
//! codes, which `--help` lists.

use config_files::bulkhead::Protection;
use std::io;
use std::path::{Path, PathBuf};

use process::UsersError;
use topology::{IdentityError, Process};

/// An exit code of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExitCode {
    /// The code itself.
    pub(crate) code: u8,
    /// What it says.
    pub(crate) meaning: &'static str,
    /// Whether what it says may be over by itself, so that starting again is of use.
    pub(crate) may_pass: bool,
}

const fn passing(code: u8, meaning: &'static str) -> ExitCode {
    ExitCode {
        code,
        meaning,
        may_pass: true,
    }
}

const fn lasting(code: u8, meaning: &'static str) -> ExitCode {
    ExitCode {
        may_pass: false,
        ..passing(code, meaning)
    }
}

/// All exit codes; see [`Failure::exit_code`].
pub(crate) const EXIT_CODES: [ExitCode; 12] = [
    passing(0, "stopped as asked; containers keep running"),
    passing(1, "an unexpected failure"),
    lasting(2, "wrong usage"),
    lasting(10, "not started as root"),
    passing(11, "the container runtime's socket does not exist"),
    passing(
        12,
        "the container runtime's socket is stale: nothing listens on it",
    ),
    passing(
        13,
        "another supervisor, or bulkhead.target, runs with the same --run-dir",
    ),
    lasting(
        14,
        "a program is missing in --bin-dir, or cannot be run by its user",
    ),
    lasting(
        15,
        "a user is missing (create the users, or give --uid-base)",
    ),
    // A full disk, or one that is not mounted yet, has this code too.
    passing(16, "a directory is unsafe or cannot be used"),
    lasting(17, "the machine lacks something of minimumConfinement"),
    lasting(78, "bad configuration"),
];

/// The exit codes, for `--help`.
pub(crate) fn exit_codes_help() -> String {
    let mut help = "Exit codes (*: starting again does not help):".to_owned();
    for row in EXIT_CODES {
        let mark = if row.may_pass { ' ' } else { '*' };
        help.push_str(&format!("\n  {:<2}{mark} {}", row.code, row.meaning));
    }
    help
}

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
    /// The lock is held, or the sockets are.
    #[error(
        "another supervisor, or bulkhead.target, runs with {path}: stop it, or give this one its own --run-dir, --state-dir, --root-dir and --log-dir", path = path.display()
    )]
    SecondInstance {
        /// The run directory.
        path: PathBuf,
    },
    /// The machine does not confine as the configuration asks.
    #[error(
        "minimumConfinement of the Bulkhead configuration asks for {protection}, which this machine does not give: {reason}"
    )]
    Confinement {
        /// What is asked for.
        protection: Protection,
        /// Why it is missing.
        reason: String,
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
    /// A user is missing, or cannot be looked up.
    #[error("the users of the processes cannot be used")]
    Users(#[source] UsersError),
    /// A directory or a file that others could change, or that is not usable.
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
    /// What makes an error of the system into a failure to do this with a path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Failure {
        let path = path.to_owned();
        move |source| Failure::Io {
            action,
            path: path.clone(),
            source,
        }
    }

    /// The exit code; see [`EXIT_CODES`].
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::System { .. }
            | Failure::Serve(_)
            | Failure::Users(UsersError::LookUp { .. }) => 1,
            Failure::NotRoot => 10,
            Failure::NoRuntimeSocket { .. } => 11,
            Failure::StaleRuntimeSocket { .. } => 12,
            Failure::SecondInstance { .. } => 13,
            Failure::Binary { .. } => 14,
            Failure::Users(UsersError::Identity(IdentityError::BaseOutOfRange { .. }))
            | Failure::Configuration(_) => 78,
            Failure::Users(UsersError::Identity(_)) => 15,
            Failure::Confinement { .. } => 17,
            Failure::Directory { .. } | Failure::Io { .. } => 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_up_that_failed_is_tried_again_and_a_missing_user_is_not() {
        let user = "bulkhead-pleg";
        let failed = UsersError::LookUp {
            user: user.to_owned(),
            source: nix::errno::Errno::EIO,
        };
        let missing = UsersError::from(IdentityError::MissingUser {
            user,
            process: Process::Pleg,
        });
        for (error, expected) in [(failed, true), (missing, false)] {
            let code = Failure::Users(error).exit_code();
            let row = EXIT_CODES.iter().find(|row| row.code == code).unwrap();
            assert_eq!(row.may_pass, expected, "{code}");
        }
    }
}
