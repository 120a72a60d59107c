//! emptyDir volumes: a directory on the node's disk, or in memory.

use std::path::PathBuf;

use pod_volumes::Medium;

use super::MountTable;
use super::memory::{self, Swap};
use crate::directory::Directory;
use crate::error::NodeError;

/// Anyone in the pod may write there.
const MODE: u32 = 0o777;

/// What is made there belongs to the group that the directory has: the pod's `fsGroup`.
const OF_GROUP: u32 = 0o2000;

/// Makes the volume's directory in that of its kind; one in memory gets a file system
/// of its own, no larger than its limit and `memory_bytes`, what the node has for pods.
/// `is_for_group` is said of a volume that the pod's group is given after.
pub(super) fn make(
    kind: &Directory,
    name: &str,
    medium: Medium,
    mounts: &MountTable,
    memory_bytes: u64,
    is_for_group: bool,
) -> Result<PathBuf, NodeError> {
    let mode = if is_for_group { MODE | OF_GROUP } else { MODE };
    match medium {
        Medium::Disk => {
            kind.make_child(name, mode)?;
        }
        Medium::Memory { limit_bytes } => {
            let bytes = limit_bytes.map_or(memory_bytes, |limit| limit.min(memory_bytes));
            memory::mount_on(kind, name, MODE, mounts, bytes, Swap::Allowed)?;
        }
    }
    Ok(kind.path().join(name))
}
