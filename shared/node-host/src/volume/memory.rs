//! File systems in memory, for volumes whose content no disk is to have.

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs};
use nix::unistd::Gid;

use crate::directory::Directory;
use crate::error::{IoContext as _, NodeError};

const TMPFS: &str = "tmpfs";
const HUGETLBFS: &str = "hugetlbfs";

/// Of the directory that it is mounted on, which nobody sees after.
const MODE_BELOW: u32 = 0o777;

/// What a file system in memory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Memory as programs have it, that is never written to the swap space of the node where
    /// the kernel can promise that (Linux 6.4).
    Memory {
        /// Most bytes in it.
        bytes: u64,
    },
    /// Huge pages.
    HugePages {
        /// The size of a page.
        page_bytes: u64,
        /// Most bytes in it; absent: as many as there are.
        limit_bytes: Option<u64>,
    },
}

/// The file system's own directory. It is as it is to be from the moment on when it is
/// mounted, and after that as who uses it changed it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Root {
    /// Its mode; absent: the kernel's.
    pub(super) mode: Option<u32>,
    /// Its group; absent: our own.
    pub(super) group: Option<Gid>,
}

impl Root {
    fn options(self) -> String {
        let mode = self.mode.map(|mode| format!(",mode={mode:o}"));
        let group = self.group.map(|group| format!(",gid={group}"));
        format!("{}{}", mode.unwrap_or_default(), group.unwrap_or_default())
    }
}

/// Mounts a file system in memory on the directory of this name, which is made; or finds it
/// mounted.
pub(super) fn mount_on(
    kind: &Directory,
    name: &str,
    content: Content,
    root: Root,
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
    let mounted = |options: &str| {
        let options = format!("{options}{}", root.options());
        let source = Some(filesystem);
        mount(source, &path, source, MsFlags::empty(), Some(&*options))
    };
    let made = match content {
        Content::Memory { bytes } => {
            let options = format!("size={bytes}");
            match mounted(&format!("{options},noswap")) {
                // An older kernel does not know the option.
                Err(Errno::EINVAL) => mounted(&options),
                made => made,
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
