//! emptyDir volumes: a directory on the node's disk, or in memory.

use std::path::PathBuf;

use pod_volumes::{EmptyDir, Medium};

use super::memory::{self, Content, Swap};
use super::ownership::{Access, Ownership};
use crate::directory::Directory;
use crate::error::NodeError;

/// Anyone in the pod may write there, unless the pod says otherwise.
const MODE: u32 = 0o777;

/// What is made there belongs to the group that the directory has: the pod's `fsGroup`.
const OF_GROUP: u32 = 0o2000;

/// Makes the volume's directory in that of its kind; one in memory gets a file system
/// of its own, no larger than its limit and `memory_bytes`, what the node has for pods.
/// A directory on the disk that is there stays as its pod changed it.
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
    let root_mode = match wanted.medium {
        // Everybody may make files there, and nobody remove those of others.
        Medium::Memory { .. } => wanted.mode,
        _ => Some(mode),
    };
    memory::mount_on(kind, name, content, root_mode)?;
    let path = kind.path().join(name);
    let gone = || NodeError::refused(&*path, "it was removed meanwhile");
    give(&kind.child(name)?.ok_or_else(gone)?)?;
    Ok(path)
}
