//! The disk of a simulated node: a directory in which its thread stands. All paths are
//! relative to it, so that they, and the UIDs that come from them, are the same each time.

use std::io;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

/// In memory, because a node writes much and nothing has to outlive it.
const MEMORY: &str = "/dev/shm";

/// A directory of its own, removed in the end.
#[derive(Debug)]
pub(crate) struct Disk {
    _directory: TempDir,
}

impl Disk {
    /// Makes one, and has this thread, and no other one, stand in it.
    ///
    /// # Errors
    /// When there cannot be a directory.
    pub(crate) fn new() -> io::Result<Disk> {
        let directory = match Path::new(MEMORY).is_dir() {
            true => TempDir::new_in(MEMORY),
            false => TempDir::new(),
        }?;
        // From now on this thread has a working directory of its own.
        unshare(CloneFlags::CLONE_FS)?;
        std::env::set_current_dir(directory.path())?;
        Ok(Disk {
            _directory: directory,
        })
    }
}
