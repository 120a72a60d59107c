//! Numbers for test nodes. A slot is a directory and a lock that its owner
//! holds while it lives, so what a killed owner left is known for certain and
//! is removed by the next one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::cgroup;
use crate::processes;
use crate::wait::wait_for;

/// Not below the build directory: the processes of a node run as users that
/// may not be able to reach that. Short, for the sake of socket paths, and on
/// a disk rather than a tmpfs, for container root file systems.
const BASE: &str = "/var/tmp/bulkhead-test";

/// Slots number subnets, so there are at most as many as fit into one octet.
const MAX_SLOTS: u8 = 200;

/// How long the kernel may take to let go of what was killed.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// A slot that this process owns.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) index: u8,
    /// Unique over time too, unlike the index.
    pub(crate) marker: String,
    _lock: File,
}

impl Slot {
    /// Takes the first free slot, after removing what dead owners left.
    pub(crate) fn acquire() -> Result<Self> {
        reap_dead_owners()?;
        for index in 0..MAX_SLOTS {
            if let Some(lock) = try_lock(index)? {
                // A dead owner's remains may have appeared since the reaping.
                destroy(index)?;
                let directory = directory(index);
                fs::create_dir_all(&directory)
                    .with_context(|| format!("cannot make {}", directory.display()))?;
                let marker = new_marker(index)?;
                fs::write(directory.join("marker"), &marker).context("cannot write the marker")?;
                return Ok(Self {
                    index,
                    marker,
                    _lock: lock,
                });
            }
        }
        bail!("all {MAX_SLOTS} test nodes are in use")
    }

    pub(crate) fn name(&self) -> String {
        name(self.index)
    }

    pub(crate) fn directory(&self) -> PathBuf {
        directory(self.index)
    }

    /// Ends and removes everything of this slot; may be called again.
    pub(crate) fn destroy(&self) -> Result<()> {
        destroy(self.index)
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
        if let Some(_lock) = try_lock(index)? {
            destroy(index)?;
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

fn name(index: u8) -> String {
    format!("bulkhead-test-{index}")
}

fn directory(index: u8) -> PathBuf {
    Path::new(BASE).join(index.to_string())
}

fn lock_path(index: u8) -> PathBuf {
    Path::new(BASE).join(format!("{index}.lock"))
}

fn new_marker(index: u8) -> Result<String> {
    let boot_relative = fs::read_to_string("/proc/uptime").context("/proc/uptime")?;
    let uptime = boot_relative.split(' ').next().unwrap_or("0");
    Ok(format!("{index}-{}-{uptime}", std::process::id()))
}

/// The lock of a slot, or nothing when a living process holds it.
fn try_lock(index: u8) -> Result<Option<File>> {
    let path = lock_path(index);
    loop {
        fs::create_dir_all(BASE).context(BASE)?;
        let file = match OpenOptions::new()
            .create(true)
            .truncate(false)
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

fn destroy(index: u8) -> Result<()> {
    let directory = directory(index);
    let name = name(index);
    let marker = fs::read_to_string(directory.join("marker")).unwrap_or_else(|_| name.clone());
    processes::kill_all(&name, &marker)?;
    wait_for(
        "the cgroups of the test node to become empty",
        RELEASE_TIMEOUT,
        || cgroup::remove(&name),
    )?;
    // Mounts of the node are in its own mount namespace: nothing but plain
    // files is seen from here.
    wait_for(
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
