//! `fsGroup`: a pod's group gets its volumes. Blocking.
//!
//! Everything is reached by descriptor, name by name, so that a container which swaps
//! names for links meanwhile leads nowhere else. Links themselves get the group and
//! nothing more, and what is mounted below is left alone.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::dir::{Dir, OwningIter};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmodat};
use nix::unistd::{Gid, fchownat};
use pod::Pod;

use crate::descriptor::{beneath, magic_path, status};
use crate::directory::Directory;
use crate::error::IoContext as _;
use crate::error::NodeError;

/// How deep a volume may be: each level takes descriptors.
const MAX_LEVELS: usize = 256;

/// What the group may do with files, and more with directories.
const READ_WRITE: Mode = Mode::S_IRUSR
    .union(Mode::S_IWUSR)
    .union(Mode::S_IRGRP)
    .union(Mode::S_IWGRP);
const READ_ONLY: Mode = Mode::S_IRUSR.union(Mode::S_IRGRP);
const ENTER: Mode = Mode::S_IXUSR.union(Mode::S_IXGRP);

/// What containers do with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Write in it.
    ReadWrite,
    /// Only read it: a Secret, for example.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for volumes that are made of objects")
    )]
    ReadOnly,
}

/// `fsGroupChangePolicy`: whether what is in a volume is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangePolicy {
    /// Always.
    Always,
    /// Only if the volume's own directory is not the group's yet.
    OnRootMismatch,
}

/// Whose the volumes of a pod are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    group: Gid,
    /// What the pod wants for volumes that others may have filled.
    pub(crate) policy: ChangePolicy,
}

impl Ownership {
    /// What the pod says; `None` when it says nothing. A number that is none was refused
    /// when the pod was taken.
    pub(crate) fn of(pod: &Pod) -> Option<Ownership> {
        let context = pod.spec.as_ref()?.security_context.as_ref()?;
        let group = u32::try_from(context.fs_group?).ok()?;
        let policy = match context.fs_group_change_policy.as_deref() {
            Some("OnRootMismatch") => ChangePolicy::OnRootMismatch,
            _ => ChangePolicy::Always,
        };
        Some(Ownership {
            group: Gid::from_raw(group),
            policy,
        })
    }

    /// The pod's group.
    pub(crate) fn group(self) -> Gid {
        self.group
    }

    /// The same for a volume that is new or has been given to the group before: `emptyDir`
    /// and what is made of objects, for which the pod's own policy has no effect.
    pub(crate) fn once(self) -> Ownership {
        Ownership {
            policy: ChangePolicy::OnRootMismatch,
            ..self
        }
    }

    /// Gives a volume to the group. The volume's own directory comes last: if this
    /// process is killed before, the directory tells the next one to begin anew.
    pub(crate) fn apply(self, root: &Directory, access: Access) -> Result<(), NodeError> {
        if self.policy == ChangePolicy::OnRootMismatch && self.has(&root.status()?, access) {
            return Ok(());
        }
        let walk = Walk {
            group: self.group,
            access,
            path: root.path(),
        };
        let top = root.fd().try_clone().context("open", root.path())?;
        walk.run(top)
    }

    /// Whether a volume's directory is the group's already.
    fn has(self, root: &FileStat, access: Access) -> bool {
        let (mode, wanted) = (
            Mode::from_bits_truncate(root.st_mode),
            directory_mode(access),
        );
        root.st_gid == self.group.as_raw() && mode.contains(wanted)
    }
}

fn file_mode(access: Access) -> Mode {
    match access {
        Access::ReadWrite => READ_WRITE,
        Access::ReadOnly => READ_ONLY,
    }
}

/// New files in it are the group's too.
fn directory_mode(access: Access) -> Mode {
    file_mode(access) | ENTER | Mode::S_ISGID
}

fn kind(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT
}

/// One directory whose entries are being changed; its own turn comes after them.
struct Level {
    fd: OwnedFd,
    entries: OwningIter,
}

impl Level {
    /// `fd` is that of a directory, opened for reading.
    fn new(fd: OwnedFd) -> Result<Level, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let entries = Dir::openat(&fd, c".", flags, Mode::empty())?.into_iter();
        Ok(Level { fd, entries })
    }

    /// The name of the next entry.
    fn next(&mut self) -> Result<Option<CString>, Errno> {
        for entry in self.entries.by_ref() {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                return Ok(Some(entry.file_name().to_owned()));
            }
        }
        Ok(None)
    }
}

struct Walk<'a> {
    group: Gid,
    access: Access,
    /// For errors.
    path: &'a Path,
}

impl Walk<'_> {
    fn run(&self, top: OwnedFd) -> Result<(), NodeError> {
        let mut levels = vec![Level::new(top).context("read", self.path)?];
        while let Some(level) = levels.last_mut() {
            match level.next().context("read", self.path)? {
                Some(name) => {
                    let Some(inner) = self.entry(level, &name)? else {
                        continue;
                    };
                    if levels.len() == MAX_LEVELS {
                        let reason = format!("it is deeper than {MAX_LEVELS} directories");
                        return Err(NodeError::refused(self.path, reason));
                    }
                    levels.push(inner);
                }
                None => {
                    self.change(&level.fd)?;
                    levels.pop();
                }
            }
        }
        Ok(())
    }

    /// Changes one entry, or opens it if it is a directory.
    fn entry(&self, level: &Level, name: &CStr) -> Result<Option<Level>, NodeError> {
        let path = || self.path.join("...").join(name.to_string_lossy().as_ref());
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // A link itself may be opened so, but none is followed.
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV;
        let how = OpenHow::new().flags(flags).resolve(resolve);
        let found = match openat2(&level.fd, name, how) {
            Ok(found) => found,
            // Removed meanwhile, or something is mounted there.
            Err(Errno::ENOENT | Errno::EXDEV) => return Ok(None),
            Err(error) => return Err(NodeError::io("open", path(), error.into())),
        };
        if kind(&status(&found)?) != SFlag::S_IFDIR {
            return self.change(&found).map(|()| None);
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let how = OpenHow::new().flags(flags).resolve(beneath());
        let inner = openat2(&found, c".", how).and_then(Level::new);
        inner.map(Some).context("open", &path())
    }

    /// Gives one thing to the group. Its owner stays, and what its mode has besides.
    fn change(&self, thing: &OwnedFd) -> Result<(), NodeError> {
        let before = status(thing)?;
        let group = Some(self.group);
        if before.st_gid != self.group.as_raw() {
            fchownat(thing.as_fd(), c"", None, group, AtFlags::AT_EMPTY_PATH)
                .context("change the group in", self.path)?;
        }
        let wanted = match kind(&before) {
            SFlag::S_IFLNK => return Ok(()),
            SFlag::S_IFDIR => directory_mode(self.access),
            _ => file_mode(self.access),
        };
        // As before the change of the group, which takes some bits away.
        let mode = Mode::from_bits_truncate(before.st_mode) | wanted;
        if Mode::from_bits_truncate(status(thing)?.st_mode) != mode {
            let follow = FchmodatFlags::FollowSymlink;
            fchmodat(nix::fcntl::AT_FDCWD, &magic_path(thing), mode, follow)
                .context("change the mode in", self.path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
