//! File systems in memory, for volumes whose content no disk is to have.

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs};

use crate::directory::Directory;
use crate::error::{IoContext as _, NodeError};

const TMPFS: &str = "tmpfs";
const HUGETLBFS: &str = "hugetlbfs";

/// Of the directory that it is mounted on, which nobody sees after.
const MODE_BELOW: u32 = 0o777;

/// Whether what is in memory may be written to the swap space of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Swap {
    /// As the node does with all memory.
    Allowed,
    /// Never, where the kernel can promise that (Linux 6.4).
    Avoided,
}

/// What a file system in memory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Memory as programs have it.
    Memory {
        /// Most bytes in it.
        bytes: u64,
        /// Whether it may leave the memory.
        swap: Swap,
    },
    /// Huge pages.
    HugePages {
        /// The size of a page.
        page_bytes: u64,
        /// Most bytes in it; absent: as many as there are.
        limit_bytes: Option<u64>,
    },
}

/// Mounts a file system in memory on the directory of this name, which is made; or finds it
/// mounted. `mode` is that of the file system's own directory; without it the kernel's.
pub(super) fn mount_on(
    kind: &Directory,
    name: &str,
    content: Content,
    mode: Option<u32>,
) -> Result<(), NodeError> {
    let path = kind.path().join(name);
    let (filesystem, magic) = match content {
        Content::Memory { .. } => (TMPFS, TMPFS_MAGIC),
        Content::HugePages { .. } => (HUGETLBFS, HUGETLBFS_MAGIC),
    };
    if let Some(mounted) = kind.mounted(name)? {
        let found = fstatfs(&mounted).context("ask for the file system of", &path)?;
        return match found.filesystem_type() == magic {
            true => Ok(()),
            false => Err(NodeError::refused(
                path,
                "another file system is mounted there",
            )),
        };
    }
    kind.make_child(name, MODE_BELOW)?;
    let mode = mode.map(|mode| format!(",mode={mode:o}"));
    let mode = mode.unwrap_or_default();
    let mounted = |options: &str| {
        let options = format!("{options}{mode}");
        let source = Some(filesystem);
        mount(source, &path, source, MsFlags::empty(), Some(&*options))
    };
    let made = match content {
        Content::Memory { bytes, swap } => {
            let options = format!("size={bytes}");
            match swap {
                Swap::Allowed => mounted(&options),
                // An older kernel does not know the option.
                Swap::Avoided => match mounted(&format!("{options},noswap")) {
                    Err(Errno::EINVAL) => mounted(&options),
                    made => made,
                },
            }
        }
        Content::HugePages {
            page_bytes,
            limit_bytes,
        } => {
            let size = limit_bytes.map(|limit| format!(",size={limit}"));
            let size = size.unwrap_or_default();
            mounted(&format!("pagesize={page_bytes}{size}"))
        }
    };
    made.context("mount", &path)
}
