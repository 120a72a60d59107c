//! Binds what was opened on the node into a pod's directory, so that the runtime is
//! given a path that nobody but root can lead elsewhere.
//!
//! What is bound follows the node: a later mount below the volume's path shows in it. The
//! other way round only where a container asks for it (`mountPropagation: Bidirectional`).
//! What opened it and why it may be had is `host_path` and `sub_path`.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag};
use node_layout::paths::{HOST_PATH, VOLUMES};

use super::mount_table::{self, Mount, MountTable};
use crate::descriptor::{self, magic_path, open_beneath, real_path};
use crate::directory::Directory;
use crate::error::IoContext as _;
use crate::error::NodeError;

const NONE: Option<&str> = None;

/// Most mounts that are taken off one mount point: we make one.
const MAX_STACKED: usize = 16;

/// Where something is bound for a pod.
pub(super) struct Place<'a> {
    /// A directory of the pod.
    pub(super) directory: &'a Directory,
    /// The name in it.
    pub(super) name: &'a str,
    /// Whether what a container mounts in what is bound shows where it was bound from.
    pub(super) passes_back: bool,
}

/// Binds `source` at its place, or finds it bound, and says where.
///
/// When something else is bound there, the node's path leads to another file by now: a
/// socket, for example, that its server has made anew. Then the new one is bound for the
/// next containers, as with a kubelet; those that run keep what they have.
pub(super) fn bind(
    source: &OwnedFd,
    place: &Place<'_>,
    proc_dir: &Path,
) -> Result<PathBuf, NodeError> {
    let Place {
        directory: kind,
        name,
        passes_back,
    } = *place;
    let path = kind.path().join(name);
    let is_directory = is_directory(source)?;
    let peers = match passes_back {
        true => Some(peers_of(source, kind, proc_dir)?),
        false => None,
    };
    let is_right = |bound: &OwnedFd| -> Result<bool, NodeError> {
        Ok(is_same(bound, source)? && (peers.is_none() || peer_group(bound, proc_dir)? == peers))
    };
    let mut found = kind.mounted(name)?;
    for _ in 0..MAX_STACKED {
        match &found {
            Some(bound) if !is_right(bound)? => mount_table::unmount(bound, &path)?,
            _ => break,
        }
        found = kind.mounted(name)?;
    }
    let mut has_all_below = !is_directory;
    let bound = match found {
        Some(bound) => bound,
        None => {
            let place = kind.make_mount_point(name, is_directory)?;
            if holds(source, kind.fd())? {
                bind_one(source, &keep_to_itself(place, kind, name)?)
            } else {
                has_all_below = true;
                bind_all(source, &place)
            }
            .context("bind", &path)?;
            let bound = kind.mounted(name)?;
            bound.ok_or_else(|| NodeError::refused(&path, "it was unmounted while it was bound"))?
        }
    };
    if !is_right(&bound)? {
        return Err(NodeError::refused(path, "something else is mounted there"));
    }
    if passes_back {
        return Ok(path);
    }
    // Also for one that is found: whoever bound it may have been killed before this.
    follow_only(&bound).context("change the propagation of", &path)?;
    if !has_all_below {
        // Read now and not before: from here on new mounts arrive by themselves.
        bind_mounts_below(source, &bound, &MountTable::read(proc_dir)?)?;
    }
    Ok(path)
}

/// Makes a directory a mount of its own that passes nothing on. What is bound on it is a
/// directory above all pods, which holds this place too: without that it would arrive
/// in each other volume of that kind, where it would follow the node too, and the next
/// one would arrive in each of these.
fn keep_to_itself(place: OwnedFd, kind: &Directory, name: &str) -> Result<OwnedFd, NodeError> {
    let path = kind.path().join(name);
    bind_one(&place, &place).context("bind", &path)?;
    let place = kind.mounted(name)?;
    let place = place.ok_or_else(|| NodeError::refused(&path, "it was unmounted meanwhile"))?;
    // The runtime looks at this mount when it judges whether later mounts of the node
    // can arrive, so it has to follow the node too.
    follow_only(&place).context("change the propagation of", &path)?;
    Ok(place)
}

/// Binds the mounts that are below `source` on the node, each in its place below `bound`
/// unless it is there: what [`bind_all`] does, but for hostPath volumes. Of two pods with
/// the volume `/`, each would hold the mounts of the other, a third those of both, and
/// so on.
fn bind_mounts_below(
    source: &OwnedFd,
    bound: &OwnedFd,
    mounts: &MountTable,
) -> Result<(), NodeError> {
    let (from, to) = (real_path(source)?, real_path(bound)?);
    for Mount { id, point, .. } in mounts.below(&from) {
        let relative = point.strip_prefix(&from).unwrap_or(Path::new(""));
        let is_there = || mounts.filesystem(&to.join(relative)).is_some();
        if relative.as_os_str().is_empty() || is_in_host_path_volume(&point) || is_there() {
            continue;
        }
        // What cannot be reached is unmounted by now, or hidden by another mount.
        let Some(mounted) = reach(source, relative, &point)? else {
            continue;
        };
        if descriptor::mount_id(&mounted)? != id {
            continue;
        }
        let Some(place) = reach(bound, relative, &point)? else {
            continue;
        };
        match bind_one(&mounted, &place) {
            Ok(()) => {}
            // Unmounted by now, or one that may not be bound.
            Err(Errno::EINVAL | Errno::ENOENT) => continue,
            Err(error) => return Err(NodeError::io("bind", &*point, error.into())),
        }
        if let Some(bound) = reach(bound, relative, &point)? {
            match follow_only(&bound) {
                Ok(()) | Err(Errno::EINVAL) => {}
                Err(error) => {
                    let action = "change the propagation of the bound";
                    return Err(NodeError::io(action, &*point, error.into()));
                }
            }
        }
    }
    Ok(())
}

fn reach(directory: &OwnedFd, relative: &Path, point: &Path) -> Result<Option<OwnedFd>, NodeError> {
    match open_beneath(directory, relative) {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES | Errno::ESTALE) => {
            Ok(None)
        }
        Err(error) => Err(NodeError::io("open", point, error.into())),
    }
}

/// The group of mounts that what is mounted in `source` shows in: so that it shows on the
/// node, what is bound has to be in it.
fn peers_of(source: &OwnedFd, kind: &Directory, proc_dir: &Path) -> Result<u64, NodeError> {
    let refused = |reason| Err(NodeError::refused(real_path(source)?, reason));
    if holds(source, kind.fd())? {
        // Each volume of that kind would be mounted in each other.
        return refused("the pods' own directories are in it, so it cannot be Bidirectional");
    }
    match peer_group(source, proc_dir)? {
        Some(group) => Ok(group),
        None => refused(
            "it is not on a shared mount, so what a container mounts there would not be seen on \
             the node",
        ),
    }
}

fn peer_group(opened: &OwnedFd, proc_dir: &Path) -> Result<Option<u64>, NodeError> {
    let id = descriptor::mount_id(opened)?;
    Ok(MountTable::read(proc_dir)?.peer_group(id))
}

/// With the mounts below it, at once. One by one takes a look at all mounts of the node, and
/// where mounts are passed back it would mount them on the node too, where they are already.
fn bind_all(source: &OwnedFd, place: &OwnedFd) -> nix::Result<()> {
    let (source, place) = (magic_path(source), magic_path(place));
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(&source), &place, NONE, flags, NONE)
}

fn bind_one(source: &OwnedFd, place: &OwnedFd) -> nix::Result<()> {
    let (source, place) = (magic_path(source), magic_path(place));
    mount(Some(&source), &place, NONE, MsFlags::MS_BIND, NONE)
}

/// Mounts and unmounts on the node show in what is bound, and not the other way round.
fn follow_only(bound: &OwnedFd) -> nix::Result<()> {
    let flags = MsFlags::MS_SLAVE | MsFlags::MS_REC;
    mount(NONE, &magic_path(bound), NONE, flags, NONE)
}

/// Whether a directory is below what is to be bound, or is it. Told by the directories
/// themselves: what is bound may be reached by a path that does not say so, as a part of
/// another bind.
fn holds(source: &OwnedFd, directory: &OwnedFd) -> Result<bool, NodeError> {
    let above = Path::new("..");
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let sought = inode(source)?;
    let mut directory = directory.try_clone().context("open", above)?;
    let mut here = inode(&directory)?;
    while here != sought {
        let next = openat(&directory, above, flags, Mode::empty()).context("open", above)?;
        let there = inode(&next)?;
        // The root is above itself.
        if there == here && descriptor::mount_id(&directory)? == descriptor::mount_id(&next)? {
            return Ok(false);
        }
        (directory, here) = (next, there);
    }
    Ok(true)
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> Result<bool, NodeError> {
    Ok(inode(one)? == inode(other)?)
}

/// Which file it is: the numbers of its file system and in it.
fn inode(opened: &OwnedFd) -> Result<(u64, u64), NodeError> {
    let status = descriptor::status(opened)?;
    Ok((status.st_dev, status.st_ino))
}

fn is_directory(opened: &OwnedFd) -> Result<bool, NodeError> {
    let kind = SFlag::from_bits_truncate(descriptor::status(opened)?.st_mode);
    Ok(kind & SFlag::S_IFMT == SFlag::S_IFDIR)
}

/// Whether a mount point is in a hostPath volume of a pod, of whatever agent.
fn is_in_host_path_volume(point: &Path) -> bool {
    let names: Vec<_> = point.iter().collect();
    names.windows(2).any(|pair| pair == [VOLUMES, HOST_PATH])
}

#[cfg(test)]
mod tests;
