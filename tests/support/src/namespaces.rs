//! A network and a mount namespace that live as long as their handle or a
//! process inside. Mounts and interfaces made inside vanish with them, so no
//! clean-up can be forgotten.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::panic;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// Where the changes are that are kept from the machine's directories.
const OVERLAYS: &str = "/run/.overlays";

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
    mount(none, "/run", none, MsFlags::MS_SHARED, none).context("/run")?;
    fs::create_dir("/run/lock").context("/run/lock")?;
    overlay("/var/lib")
}

/// Mounts over a directory so that it looks the same, and what is written to it
/// is in [`OVERLAYS`] instead. For a thread inside.
pub(crate) fn overlay(directory: &str) -> Result<()> {
    let [upper, work] = ["upper", "work"].map(|part| {
        let name = directory.trim_start_matches('/').replace('/', "-");
        format!("{OVERLAYS}/{name}/{part}{directory}")
    });
    for part in [&upper, &work] {
        fs::create_dir_all(part).with_context(|| part.clone())?;
    }
    let like = fs::metadata(directory).with_context(|| directory.to_owned())?;
    fs::set_permissions(&upper, like.permissions()).with_context(|| upper.clone())?;
    let options = format!("lowerdir={directory},upperdir={upper},workdir={work}");
    let kind = Some("overlay");
    mount(kind, directory, kind, MsFlags::empty(), Some(&*options))
        .with_context(|| format!("cannot mount an overlay on {directory}"))?;
    let none = None::<&str>;
    mount(none, directory, none, MsFlags::MS_SHARED, none).with_context(|| directory.to_owned())
}

/// What is below `/run` and was written below the directories that
/// [`overlay`] was mounted on. For a thread inside.
pub(crate) fn changes() -> Result<BTreeMap<PathBuf, String>> {
    let mut changes = BTreeMap::new();
    note_tree(Path::new("/run"), Path::new("/run"), &mut changes);
    for overlay in fs::read_dir(OVERLAYS).context(OVERLAYS)? {
        let upper = overlay?.path().join("upper");
        note_tree(&upper, Path::new("/"), &mut changes);
    }
    Ok(changes)
}

/// Notes what is in `directory`, which stands for `shown`. What vanishes
/// meanwhile is no change.
fn note_tree(directory: &Path, shown: &Path, changes: &mut BTreeMap<PathBuf, String>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if path == Path::new(OVERLAYS) {
            continue;
        }
        let shown = shown.join(entry.file_name());
        let (mode, owner) = (metadata.mode(), metadata.uid());
        let mut text = format!("{mode:o} of {owner}");
        if metadata.is_file() {
            let (size, time) = (metadata.size(), metadata.mtime());
            text += &format!(", {size} bytes, {time}.{}", metadata.mtime_nsec());
        }
        if metadata.is_dir() {
            note_tree(&path, &shown, changes);
        }
        changes.insert(shown, text);
    }
}

/// A namespace belongs to a thread: one that ends afterwards can change its
/// own without harm to others.
fn on_own_thread<T: Send>(action: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(action).join() {
        Ok(value) => value,
        Err(panicked) => panic::resume_unwind(panicked),
    })
}
