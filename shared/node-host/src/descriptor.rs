//! What the kernel tells of an opened descriptor, and its path for calls that take none:
//! mount(2) knows descriptors only by their links in `/proc`.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, fstat};

use crate::error::IoContext as _;
use crate::error::NodeError;

/// No step of a path may be a link, or leave the directory.
pub(crate) fn beneath() -> ResolveFlag {
    ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
}

/// What is at a relative path below a directory, without opening it for reading: good
/// for anything that exists. Mounts on the way are entered, links are not.
pub(crate) fn open_beneath(directory: &OwnedFd, path: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    openat2(
        directory,
        path,
        OpenHow::new().flags(flags).resolve(beneath()),
    )
}

/// A path that stands for what is opened, wherever that is moved to.
pub(crate) fn magic_path(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// The path of what is opened, without links.
pub(crate) fn real_path(fd: &OwnedFd) -> Result<PathBuf, NodeError> {
    let link = magic_path(fd);
    fs::read_link(&link).context("read", &link)
}

pub(crate) fn status(fd: &OwnedFd) -> Result<FileStat, NodeError> {
    fstat(fd).context("inspect", &magic_path(fd))
}

/// The number of the mount that it was reached by, as in the first column of
/// `mountinfo`.
pub(crate) fn mount_id(fd: &OwnedFd) -> Result<u64, NodeError> {
    let path = PathBuf::from(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()));
    let text = fs::read_to_string(&path).context("read", &path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let id = line.and_then(|id| id.trim().parse().ok());
    id.ok_or_else(|| NodeError::refused(path, "there is no mnt_id in it"))
}
