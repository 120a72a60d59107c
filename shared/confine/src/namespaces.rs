//! Namespaces of their own for processes (namespaces(7)), made once and entered at each
//! start: to enter one costs microseconds, and takes no right to make more.
//!
//! What does not live here: who has which (`topology`).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::thread;

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use topology::Namespace;

/// A namespace that a process is to have. It lives as long as this or a process in it.
#[derive(Debug)]
pub struct OwnNamespace {
    kind: Namespace,
    file: File,
}

impl OwnNamespace {
    /// Makes a new one of a kind, which nobody is in yet.
    ///
    /// To be called before [`seal`](crate::seal), which forbids it.
    ///
    /// # Errors
    /// When the kernel has no such namespaces, or the caller may not make them.
    pub fn make(kind: Namespace) -> io::Result<OwnNamespace> {
        // In a thread of its own, which is gone afterwards: the caller stays where it is.
        let made = thread::Builder::new().spawn(move || {
            unshare(flag(kind))?;
            File::open(Path::new("/proc/thread-self/ns").join(kind.file_name()))
        })?;
        let panicked = |_| io::Error::other("the thread that makes namespaces panicked");
        let file = made.join().map_err(panicked)??;
        Ok(OwnNamespace { kind, file })
    }

    /// What [`enter`] takes.
    pub(crate) fn entrance(&self) -> Entrance {
        (self.file.as_raw_fd(), flag(self.kind).bits())
    }
}

/// A namespace's descriptor, and its kind as the kernel numbers it.
pub(crate) type Entrance = (RawFd, libc::c_int);

/// The kinds that [`enter`] takes, as the kernel numbers them.
pub(crate) const ENTERED: [libc::c_int; 2] = [libc::CLONE_NEWNET, libc::CLONE_NEWIPC];

fn flag(kind: Namespace) -> CloneFlags {
    match kind {
        Namespace::Network => CloneFlags::CLONE_NEWNET,
        Namespace::Ipc => CloneFlags::CLONE_NEWIPC,
    }
}

/// Puts the calling thread into a namespace. Takes `CAP_SYS_ADMIN`. Safe between fork
/// and exec.
pub(crate) fn enter((descriptor, kind): Entrance) -> io::Result<()> {
    // SAFETY: takes integers only.
    if unsafe { libc::setns(descriptor, kind) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_can_be_entered() {
        for kind in [Namespace::Network, Namespace::Ipc] {
            assert!(ENTERED.contains(&flag(kind).bits()), "{kind:?}");
        }
    }
}
