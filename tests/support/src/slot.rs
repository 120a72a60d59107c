//! Numbers for test nodes. A slot is a lock that its owner holds while it
//! lives, and in it the name of what the owner made, so what a killed owner
//! left is known for certain and is removed by the next one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::cgroup;
use crate::processes;
use crate::wait::wait_in_any_case;

/// Not below the build directory: the processes of a node run as users that
/// may not be able to reach that. Short, for the sake of socket paths, and on
/// a disk rather than a tmpfs, for container root file systems.
pub(crate) const BASE: &str = "/var/tmp/bulkhead-test";

/// How the names of nodes begin, and so of their cgroups.
const NAME_PREFIX: &str = "bulkhead-test-";

/// Slots number subnets, so there are at most as many as fit into one octet.
const MAX_SLOTS: u8 = 200;

/// How long the kernel may take to let go of what was killed.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// A slot that this process owns.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) index: u8,
    /// Of its directory, its cgroups and the mark of its processes. Unlike the
    /// index it is not used again by the next owner, so that what is left of
    /// one node is never taken for another's.
    pub(crate) name: String,
    _lock: File,
}

impl Slot {
    /// Takes the first free slot, after removing what dead owners left.
    pub(crate) fn acquire() -> Result<Self> {
        reap_dead_owners()?;
        for index in 0..MAX_SLOTS {
            if let Some(mut lock) = try_lock(index)? {
                // A dead owner's remains may have appeared since the reaping.
                destroy_recorded(&mut lock)?;
                let name = new_name(index);
                lock.set_len(0)
                    .context("cannot empty the lock of a test node")?;
                lock.rewind()
                    .context("cannot write the lock of a test node")?;
                // Before anything has that name.
                lock.write_all(name.as_bytes())
                    .context("cannot write the lock of a test node")?;
                let directory = directory(&name);
                fs::create_dir_all(&directory)
                    .with_context(|| format!("cannot make {}", directory.display()))?;
                return Ok(Self {
                    index,
                    name,
                    _lock: lock,
                });
            }
        }
        bail!("all {MAX_SLOTS} test nodes are in use")
    }

    pub(crate) fn directory(&self) -> PathBuf {
        directory(&self.name)
    }

    /// Ends and removes everything of this slot; may be called again.
    pub(crate) fn destroy(&self) -> Result<()> {
        destroy(&self.name)
    }

    /// Gives the slot back. Only after [`Slot::destroy`].
    pub(crate) fn release(&self) {
        forget(self.index);
    }
}

/// Removes what is left of every slot whose owner is dead.
///
/// # Errors
/// When something cannot be removed.
pub(crate) fn reap_dead_owners() -> Result<()> {
    let entries = match fs::read_dir(BASE) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context(BASE),
    };
    for entry in entries.flatten() {
        let file_name = entry.file_name();
        let Some(index) = file_name.to_str().and_then(|name| {
            name.strip_suffix(".lock")
                .unwrap_or(name)
                .parse::<u8>()
                .ok()
        }) else {
            continue;
        };
        if let Some(mut lock) = try_lock(index)? {
            destroy_recorded(&mut lock)?;
            forget(index);
        }
    }
    Ok(())
}

/// Removes the lock's name, while the lock is held: nobody locks a file that
/// has none.
fn forget(index: u8) {
    let _ = fs::remove_file(lock_path(index));
    // Fails while other slots are in use.
    let _ = fs::remove_dir(BASE);
}

fn directory(name: &str) -> PathBuf {
    Path::new(BASE).join(name.trim_start_matches(NAME_PREFIX))
}

fn lock_path(index: u8) -> PathBuf {
    Path::new(BASE).join(format!("{index}.lock"))
}

fn new_name(index: u8) -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    format!("{NAME_PREFIX}{index}-{}-{number}", std::process::id())
}

/// The lock of a slot, or nothing when a living process holds it.
fn try_lock(index: u8) -> Result<Option<File>> {
    let path = lock_path(index);
    loop {
        fs::create_dir_all(BASE).context(BASE)?;
        let file = match OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
        {
            Ok(file) => file,
            // The base directory was removed in between by its last user.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        // The former owner may have removed the name between open and lock.
        let same = fs::metadata(&path)
            .is_ok_and(|named| file.metadata().is_ok_and(|held| named.ino() == held.ino()));
        if same {
            return Ok(Some(file));
        }
    }
}

/// Ends and removes what the former owner of a lock made.
fn destroy_recorded(lock: &mut File) -> Result<()> {
    let mut name = String::new();
    lock.read_to_string(&mut name)
        .context("cannot read the lock of a test node")?;
    // Empty: its owner ended before it made anything.
    if name.starts_with(NAME_PREFIX) && !name.contains(['/', '.']) {
        destroy(&name)?;
    }
    Ok(())
}

fn destroy(name: &str) -> Result<()> {
    let directory = directory(name);
    processes::kill_all(name)?;
    wait_in_any_case(
        "the cgroups of the test node to become empty",
        RELEASE_TIMEOUT,
        || cgroup::remove(name),
    )?;
    // Mounts of the node are in its own mount namespace: nothing but plain
    // files is seen from here.
    wait_in_any_case(
        "the directory of the test node to be removed",
        RELEASE_TIMEOUT,
        || match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("{}: {error}", directory.display()))
            }
            _ => Ok(()),
        },
    )?;
    Ok(())
}
