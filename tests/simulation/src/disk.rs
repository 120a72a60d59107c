//! The disk of a simulated node: a directory in which its thread stands. All paths are
//! relative to it, so that they, and the UIDs that come from them, are the same each time.

use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

/// In memory, because a node writes much and nothing has to outlive it.
const MEMORY: &str = "/dev/shm";

/// Where a thread stands while its disk refuses.
const REFUSES: &str = "refuses";

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

/// While it lives the disk refuses all that this thread does with what is there: it stands
/// elsewhere, where each name leads back to itself.
#[derive(Debug)]
pub(crate) struct Refusal(());

impl Refusal {
    #[expect(
        clippy::unwrap_used,
        reason = "a test cannot go on where nothing would be refused"
    )]
    pub(crate) fn begin() -> Refusal {
        let refuses = Path::new(REFUSES);
        std::fs::create_dir_all(refuses).unwrap();
        for entry in std::fs::read_dir(".").unwrap() {
            let name = entry.unwrap().file_name();
            match symlink(&name, refuses.join(&name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => panic!("{error}"),
                _ => {}
            }
        }
        std::env::set_current_dir(refuses).unwrap();
        Refusal(())
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        drop(std::env::set_current_dir(".."));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, read_to_string, remove_file, write};

    use super::*;

    #[test]
    fn a_disk_refuses_until_its_refusal_ends() {
        let _disk = Disk::new().unwrap();
        create_dir("state").unwrap();
        write("state/saved", "before").unwrap();
        let refusal = Refusal::begin();
        for refused in [
            write("state/saved", "meanwhile"),
            write("state/new", "meanwhile"),
            read_to_string("state/saved").map(drop),
            remove_file("state/saved"),
        ] {
            // What is not there would be an answer.
            assert_ne!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        drop(refusal);
        assert_eq!(read_to_string("state/saved").unwrap(), "before");
        // Once more, where the links are already.
        drop(Refusal::begin());
        write("state/saved", "afterwards").unwrap();
    }
}
