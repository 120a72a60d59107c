//! What each process does to itself at its start, however it was started.

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::{Mode, umask};

use crate::child::UMASK;

/// Which step of sealing failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot seal the process: {step}")]
pub struct SealError {
    step: &'static str,
    source: nix::Error,
}

/// Gives up for good what a process of ours never needs: more privileges than
/// it has, core dumps, and being traced or read by its own user. Harmless when
/// repeated. Rules for files and system calls belong here too.
///
/// # Errors
/// When the kernel refuses; the caller must not go on.
pub fn seal() -> Result<(), SealError> {
    let at = |step| move |source| SealError { step, source };
    umask(Mode::from_bits_truncate(UMASK));
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(at("core dumps"))?;
    prctl::set_no_new_privs().map_err(at("no_new_privs"))?;
    prctl::set_dumpable(false).map_err(at("dumpable"))
}
