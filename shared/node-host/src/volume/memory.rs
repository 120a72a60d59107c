//! File systems in memory, for volumes whose content no disk is to have.

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use super::MountTable;
use crate::directory::Directory;
use crate::error::{IoContext as _, NodeError};

const TMPFS: &str = "tmpfs";

/// Whether what is in memory may be written to the swap space of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Swap {
    /// As the node does with all memory.
    Allowed,
    /// Never, where the kernel can promise that (Linux 6.4).
    Avoided,
}

/// Mounts a file system of at most `bytes` in memory on the directory of this name, which
/// is made with this mode; or finds it mounted.
pub(super) fn mount_on(
    kind: &Directory,
    name: &str,
    mode: u32,
    mounts: &MountTable,
    bytes: u64,
    swap: Swap,
) -> Result<(), NodeError> {
    let path = kind.path().join(name);
    match mounts.filesystem(&kind.real_path()?.join(name)) {
        Some(TMPFS) => return Ok(()),
        Some(other) => {
            let reason = format!("{other} is mounted there");
            return Err(NodeError::refused(path, reason));
        }
        None => {}
    }
    kind.make_child(name, mode)?;
    let mounted = |options: &str| {
        let source = Some(TMPFS);
        mount(source, &path, source, MsFlags::empty(), Some(options))
    };
    let options = format!("size={bytes}");
    let made = match swap {
        Swap::Allowed => mounted(&options),
        // An older kernel does not know the option.
        Swap::Avoided => match mounted(&format!("{options},noswap")) {
            Err(Errno::EINVAL) => mounted(&options),
            made => made,
        },
    };
    made.context("mount", &path)
}
