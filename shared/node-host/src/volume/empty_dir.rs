//! emptyDir volumes: a directory on the node's disk, or in memory.

use std::path::PathBuf;

use nix::mount::{MsFlags, mount};
use pod_volumes::Medium;

use super::MountTable;
use crate::directory::Directory;
use crate::error::IoContext;
use crate::error::NodeError;

/// Anyone in the pod may write there.
const MODE: u32 = 0o777;

const TMPFS: &str = "tmpfs";

/// Makes the volume's directory in that of its kind; one in memory gets a file system
/// of its own, no larger than its limit and `memory_bytes`, what the node has for pods.
pub(super) fn make(
    kind: &Directory,
    name: &str,
    medium: Medium,
    mounts: &MountTable,
    memory_bytes: u64,
) -> Result<PathBuf, NodeError> {
    let path = kind.path().join(name);
    match medium {
        Medium::Disk => {
            kind.make_child(name, MODE)?;
        }
        Medium::Memory { limit_bytes } => match mounts.filesystem(&kind.real_path()?.join(name)) {
            Some(TMPFS) => {}
            Some(other) => {
                return Err(NodeError::refused(
                    path,
                    format!("{other} is mounted there"),
                ));
            }
            None => {
                kind.make_child(name, MODE)?;
                let size = limit_bytes.map_or(memory_bytes, |limit| limit.min(memory_bytes));
                let options = format!("size={size}");
                let source = Some(TMPFS);
                let none = MsFlags::empty();
                mount(source, &path, source, none, Some(options.as_str()))
                    .context("mount", &path)?;
            }
        },
    }
    Ok(path)
}
