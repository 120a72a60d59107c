//! emptyDir volumes: a directory on the node's disk, or in memory.

use std::path::PathBuf;

use nix::sys::stat::{Mode, fchmod};
use pod_volumes::{EmptyDir, Medium};

use super::memory::{self, Content, Root, Swap};
use super::ownership::{Access, Ownership};
use crate::directory::Directory;
use crate::error::{IoContext as _, NodeError};

/// Anyone in the pod may write there, unless the pod says otherwise.
const MODE: u32 = 0o777;

/// Nobody removes files of others there.
const STICKY: u32 = 0o1000;

/// What is made there belongs to the group that the directory has: the pod's `fsGroup`.
const OF_GROUP: u32 = 0o2000;

/// And the group may do there what it likes.
const FOR_GROUP: u32 = OF_GROUP | 0o770;

/// Makes the volume's directory in that of its kind; one in memory gets a file system
/// of its own, no larger than its limit and `memory_bytes`, what the node has for pods.
/// One that is there stays as its pod changed it.
pub(super) fn make(
    kind: &Directory,
    name: &str,
    wanted: &EmptyDir,
    memory_bytes: u64,
    ownership: Option<Ownership>,
) -> Result<PathBuf, NodeError> {
    let give = |volume: &Directory| match ownership {
        Some(ownership) => ownership.once().apply(volume, Access::ReadWrite),
        None => Ok(()),
    };
    let mode = wanted.mode.unwrap_or(MODE);
    let content = match wanted.medium {
        Medium::Disk => {
            let mode = ownership.map_or(mode, |_| mode | OF_GROUP);
            kind.child_or_make(name, mode, give)?;
            return Ok(kind.path().join(name));
        }
        Medium::Memory { limit_bytes } => Content::Memory {
            bytes: limit_bytes.map_or(memory_bytes, |limit| limit.min(memory_bytes)),
            swap: Swap::Allowed,
        },
        Medium::HugePages {
            page_bytes,
            limit_bytes,
        } => Content::HugePages {
            page_bytes,
            limit_bytes,
        },
    };
    // Everybody may make files in memory, and nobody remove those of others.
    let mode = match (wanted.medium, wanted.mode) {
        (Medium::Memory { .. }, None) => STICKY | MODE,
        (_, _) => mode,
    };
    let root = Root {
        mode: Some(ownership.map_or(mode, |_| mode | FOR_GROUP)),
        group: ownership.map(Ownership::group),
    };
    memory::mount_on(kind, name, content, root)?;
    let path = kind.path().join(name);
    if ownership.is_some() && matches!(wanted.medium, Medium::HugePages { .. }) {
        let gone = || NodeError::refused(&*path, "it was removed meanwhile");
        give_to_group(&kind.child(name)?.ok_or_else(gone)?)?;
    }
    Ok(path)
}

/// A mount of huge pages takes all of a mode but this.
fn give_to_group(volume: &Directory) -> Result<(), NodeError> {
    let mode = Mode::from_bits_truncate(volume.status()?.st_mode);
    if mode.contains(Mode::S_ISGID) {
        return Ok(());
    }
    fchmod(volume.fd(), mode | Mode::S_ISGID).context("change the mode of", volume.path())
}
