//! What each process does to itself at its start, however it was started.

use std::io;

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::{Mode, umask};

use crate::child::UMASK;
use crate::files::{self, Files};
use crate::system_calls::{self, Calls};

/// Which step of sealing failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot seal the process: {step}")]
pub struct SealError {
    step: &'static str,
    source: io::Error,
}

/// What a process may do once it is sealed.
#[derive(Clone, Debug)]
pub struct Permitted {
    /// The files that it may open, if the kernel is to hold it to them.
    pub files: Option<Files>,
    /// The system calls that it needs.
    pub calls: Calls,
}

/// Gives up for good what a process of ours never needs: more privileges than
/// it has, core dumps, being traced or read by its own user, and other files and system
/// calls than are permitted. Holds for the calling thread and for all that it starts.
///
/// A kernel without Landlock enforces nothing of `files`
/// ([`landlock_lacks`](crate::landlock_lacks)).
///
/// # Errors
/// When the kernel refuses; the caller must not go on.
pub fn seal(permitted: &Permitted) -> Result<(), SealError> {
    let at = |step| {
        move |source: nix::Error| SealError {
            step,
            source: source.into(),
        }
    };
    umask(Mode::from_bits_truncate(UMASK));
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(at("core dumps"))?;
    prctl::set_no_new_privs().map_err(at("no_new_privs"))?;
    prctl::set_dumpable(false).map_err(at("dumpable"))?;
    if let Some(files) = &permitted.files {
        files::restrict(files, permitted.calls.internet).map_err(|error| SealError {
            step: "files",
            source: files::system_error(&error),
        })?;
    }
    system_calls::restrict(permitted.calls).map_err(|error| SealError {
        step: "system calls",
        source: io::Error::other(error.to_string()),
    })
}
