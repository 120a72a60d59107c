//! A network and a mount namespace that live as long as their handle or a
//! process inside. Mounts and interfaces made inside vanish with them, so no
//! clean-up can be forgotten.

use std::fs::File;
use std::io;
use std::panic;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// Handles of a network and a mount namespace.
#[derive(Debug)]
pub struct Namespaces {
    network: File,
    mount: File,
}

impl Namespaces {
    /// Makes both. Inside, every mount is shared among the processes of the
    /// namespace, as on a node under systemd, and none reaches the outside;
    /// `/run` is empty and changes below `/var/lib` stay inside.
    ///
    /// # Errors
    /// When the kernel refuses, usually for want of privilege.
    pub fn create() -> Result<Self> {
        on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
                .context("cannot make a network and a mount namespace (are you root?)")?;
            let root = Path::new("/");
            let none = None::<&str>;
            mount(
                none,
                root,
                none,
                MsFlags::MS_REC | MsFlags::MS_PRIVATE,
                none,
            )
            .context("cannot detach the mounts from the machine's")?;
            mount(none, root, none, MsFlags::MS_REC | MsFlags::MS_SHARED, none)
                .context("cannot share the mounts among the processes of the node")?;
            hide_system_state()?;
            Ok(Self {
                network: File::open("/proc/thread-self/ns/net").context("network namespace")?,
                mount: File::open("/proc/thread-self/ns/mnt").context("mount namespace")?,
            })
        })
    }

    /// Runs `action` on a thread inside; processes that it starts are inside
    /// too.
    ///
    /// # Errors
    /// When the namespaces cannot be entered; `action`'s own result otherwise.
    pub fn run<T: Send>(&self, action: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_own_thread(|| {
            // A thread can change its mount namespace only when its working
            // directory is its own.
            unshare(CloneFlags::CLONE_FS)?;
            setns(&self.network, CloneFlags::CLONE_NEWNET)?;
            setns(&self.mount, CloneFlags::CLONE_NEWNS)?;
            Ok(action())
        })
    }
}

/// The runtime keeps its sockets and state in fixed places of `/run`, network
/// plugins theirs in `/var/lib`. A tmpfs over both keeps instances apart and
/// the machine clean.
fn hide_system_state() -> Result<()> {
    let none = None::<&str>;
    mount(
        Some("tmpfs"),
        "/run",
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=0755"),
    )
    .context("cannot mount a tmpfs on /run")?;
    for directory in ["/run/lock", "/run/.var-lib/upper", "/run/.var-lib/work"] {
        std::fs::create_dir_all(directory).context(directory)?;
    }
    mount(
        Some("overlay"),
        "/var/lib",
        Some("overlay"),
        MsFlags::empty(),
        Some("lowerdir=/var/lib,upperdir=/run/.var-lib/upper,workdir=/run/.var-lib/work"),
    )
    .context("cannot mount an overlay on /var/lib")?;
    mount(none, "/run", none, MsFlags::MS_SHARED, none).context("/run")?;
    mount(none, "/var/lib", none, MsFlags::MS_SHARED, none).context("/var/lib")
}

/// A namespace belongs to a thread: one that ends afterwards can change its
/// own without harm to others.
fn on_own_thread<T: Send>(action: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(action).join() {
        Ok(value) => value,
        Err(panicked) => panic::resume_unwind(panicked),
    })
}
