//! Namespaces of their own for processes (namespaces(7)), made once and entered at each
//! start, which costs microseconds.
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

use crate::view::{self, View};

/// A namespace that a process is to have. It lives as long as this or a process in it.
#[derive(Debug)]
pub struct OwnNamespace {
    kind: Namespace,
    file: File,
}

impl OwnNamespace {
    /// Makes a new one of a kind, which nobody is in yet. In one of mounts there will be
    /// what `view` shows.
    ///
    /// To be called before [`seal`](crate::seal), which forbids it, but for mounts, to who
    /// needs namespaces.
    ///
    /// # Errors
    /// When the kernel has no such namespaces, or the caller may not make them.
    pub fn make(kind: Namespace, view: &View) -> io::Result<OwnNamespace> {
        // In a thread of its own, which is gone afterwards: the caller stays where it is.
        let make = || -> io::Result<File> {
            unshare(flag(kind))?;
            if kind == Namespace::Mount {
                view::enter(view)?;
            }
            let file = File::open(Path::new("/proc/thread-self/ns").join(kind.file_name()))?;
            // To enter one of mounts takes a capability more than to make it.
            enter((file.as_raw_fd(), flag(kind).bits()))?;
            Ok(file)
        };
        let panicked = |_| io::Error::other("the thread that makes namespaces panicked");
        let file = thread::scope(|scope| {
            let made = thread::Builder::new().spawn_scoped(scope, make)?;
            made.join().map_err(panicked)?
        })?;
        Ok(OwnNamespace { kind, file })
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Namespace {
        self.kind
    }

    /// What [`enter`] takes.
    pub(crate) fn entrance(&self) -> Entrance {
        (self.file.as_raw_fd(), flag(self.kind).bits())
    }
}

/// A namespace's descriptor, and its kind as the kernel numbers it.
pub(crate) type Entrance = (RawFd, libc::c_int);

/// The kinds that [`enter`] takes, as the kernel numbers them.
pub(crate) const ENTERED: [libc::c_int; 3] =
    [libc::CLONE_NEWNET, libc::CLONE_NEWIPC, libc::CLONE_NEWNS];

fn flag(kind: Namespace) -> CloneFlags {
    match kind {
        Namespace::Network => CloneFlags::CLONE_NEWNET,
        Namespace::Ipc => CloneFlags::CLONE_NEWIPC,
        Namespace::Mount => CloneFlags::CLONE_NEWNS,
    }
}

/// Puts the calling thread into a namespace. Takes `CAP_SYS_ADMIN`, and for one of mounts
/// `CAP_SYS_CHROOT` (setns(2)). Safe between fork and exec.
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
    use topology::Capability;

    use super::*;
    use crate::capabilities::{CapabilitySet, set_thread};

    #[test]
    fn every_kind_can_be_entered() {
        for kind in Namespace::ALL {
            assert!(ENTERED.contains(&flag(kind).bits()), "{kind:?}");
        }
    }

    #[test]
    fn none_is_made_that_cannot_be_entered() {
        let chroot = CapabilitySet::of([Capability("CAP_SYS_CHROOT")]).unwrap();
        let kept = CapabilitySet::available().unwrap().without(chroot);
        let make = move || {
            set_thread(kept, kept)?;
            OwnNamespace::make(Namespace::Mount, &View::default())
        };
        let refused = thread::spawn(make).join().unwrap().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
    }
}
