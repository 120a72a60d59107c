//! Parts of volumes that containers mount (`subPath`): opened below the volume by
//! descriptor, and bound from that, so that no link that a container puts in the way leads
//! out of the volume, at whatever moment. Files that variables come from are read in the same
//! way.
//!
//! As with a kubelet, links that stay within the volume are followed (the files of a
//! ConfigMap are reached by some), and what is missing is made as a directory. A link that
//! begins with `/` is refused even where it would end in the volume: who could make one does
//! not know where the volume is on the node.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, SFlag, mkdirat};
use node_layout::paths::VOLUME_SUBPATHS;
use pod::identity::{check_container_name, check_label};
use pod_volumes::SubPath;

use super::POD_DIRECTORY_MODE;
use super::host_path::with_exact_modes;
use super::pinned::{self, Place};
use crate::descriptor;
use crate::directory::Directory;
use crate::error::{IoContext as _, NodeError};

/// Most names of a path.
const MAX_DEPTH: usize = 256;

/// How often a path is tried again while a container renames what is on it.
const MAX_TRIES: usize = 64;

/// To bind and to inspect it.
const HANDLE: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

/// The permissions among the bits of a mode.
const PERMISSIONS: u32 = 0o7777;

/// Binds a part of a volume for a mount of a container, or finds it bound, and says where.
/// `directory` is the pod's.
pub(crate) fn bind(
    directory: &Directory,
    container: &str,
    wanted: &SubPath,
    proc_dir: &Path,
) -> Result<PathBuf, NodeError> {
    check_container_name(container)?;
    check_label("volume name", &wanted.volume)?;
    let volume = volume_of(directory, &wanted.volume_path)?;
    let source = open(&volume, &wanted.path, wanted.makes_missing)?;
    let of_container = directory
        .make_child(VOLUME_SUBPATHS, POD_DIRECTORY_MODE)?
        .make_child(&wanted.volume, POD_DIRECTORY_MODE)?
        .make_child(container, POD_DIRECTORY_MODE)?;
    let place = Place {
        directory: &of_container,
        name: &wanted.index.to_string(),
        passes_back: wanted.passes_back,
    };
    pinned::bind(&source, &place, proc_dir)
}

/// What is in a regular file below a volume, of at most `limit` bytes; `None` when there is
/// none.
pub(crate) fn read(
    directory: &Directory,
    (volume_path, path): (&Path, &str),
    limit: usize,
) -> Result<Option<Vec<u8>>, NodeError> {
    let volume = volume_of(directory, volume_path)?;
    let path = Path::new(path);
    names(path)?;
    // A container may make a device there that it cannot open itself, and some devices act
    // when they are opened: what it is has to be known before.
    let handle = match within(&volume, path, HANDLE) {
        Ok(handle) => handle,
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
        Err(error) => return Err(refusal(path, error)),
    };
    let kind = SFlag::from_bits_truncate(descriptor::status(&handle)?.st_mode) & SFlag::S_IFMT;
    if kind != SFlag::S_IFREG {
        return Err(NodeError::refused(path, "it is not a regular file"));
    }
    // The same inode, whatever has its name by now.
    let file = File::open(descriptor::magic_path(&handle)).context("open", path)?;
    let mut content = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most)
        .read_to_end(&mut content)
        .context("read", path)?;
    match content.len() <= limit {
        true => Ok(Some(content)),
        false => Err(NodeError::refused(
            path,
            format!("it has more than {limit} bytes"),
        )),
    }
}

/// A volume by the path that it was made at, opened from the pod's directory.
fn volume_of(directory: &Directory, path: &Path) -> Result<OwnedFd, NodeError> {
    let relative = path.strip_prefix(directory.path());
    let relative = relative.map_err(|_| NodeError::refused(path, "it is no volume of the pod"))?;
    descriptor::open_beneath(directory.fd(), relative).context("open", path)
}

/// What is at a path below a volume. Directories that are missing get the permissions of
/// the volume, if they are made.
fn open(volume: &OwnedFd, path: &str, makes_missing: bool) -> Result<OwnedFd, NodeError> {
    let path = Path::new(path);
    let names = names(path)?;
    match within(volume, path, HANDLE) {
        Err(Errno::ENOENT) if makes_missing => {}
        opened => return opened.map_err(|error| refusal(path, error)),
    }
    let mode = descriptor::status(volume)?.st_mode & PERMISSIONS;
    let mut reached = PathBuf::new();
    let mut opened = volume.try_clone().context("open", path)?;
    for name in names {
        reached.push(name);
        opened = match within(volume, &reached, HANDLE) {
            Err(Errno::ENOENT) => {
                let mode = Mode::from_bits_truncate(mode);
                match with_exact_modes(|| Ok(mkdirat(&opened, name, mode)?)) {
                    // There by now; or a link that leads nowhere, which is opened no
                    // better than before.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    made => made.context("create", path)?,
                }
                within(volume, &reached, HANDLE).map_err(|error| refusal(path, error))?
            }
            opened => opened.map_err(|error| refusal(path, error))?,
        };
    }
    Ok(opened)
}

fn names(path: &Path) -> Result<Vec<&OsStr>, NodeError> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            _ => {
                let reason = "a subPath is relative, and has no '..'";
                return Err(NodeError::refused(path, reason));
            }
        }
    }
    match names.len() <= MAX_DEPTH {
        true => Ok(names),
        false => Err(NodeError::refused(path, "it is too deep")),
    }
}

/// Opens a path below a directory, following links as long as they stay there.
fn within(directory: &OwnedFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags).resolve(resolve);
    let mut tries = MAX_TRIES;
    loop {
        match openat2(directory, path, how) {
            // Something was renamed meanwhile, so the kernel could not be sure.
            Err(Errno::EAGAIN) if tries > 0 => tries -= 1,
            opened => return opened,
        }
    }
}

fn refusal(path: &Path, error: Errno) -> NodeError {
    match error {
        Errno::EXDEV => NodeError::refused(path, "it leads out of the volume"),
        Errno::ELOOP => NodeError::refused(path, "it is a link that leads nowhere"),
        error => NodeError::io("open", path, error.into()),
    }
}

#[cfg(test)]
mod tests;
