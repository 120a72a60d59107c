//! Directories by descriptor: everything in a pod's directories is reached name by
//! name from an opened directory, so that no link that a container or a mistake put
//! there leads anywhere else. Blocking.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::dir::{Dir, OwningIter};
use nix::errno::Errno;
use nix::fcntl::{
    AtFlags, OFlag, OpenHow, RenameFlags, ResolveFlag, open, openat2, readlinkat, renameat,
    renameat2,
};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use crate::descriptor::{self, beneath};
use crate::error::IoContext;
use crate::error::NodeError;

/// Longest file name.
const MAX_NAME_BYTES: usize = 255;

/// What the names of things that are on their way in or out begin with.
const TEMPORARY_PREFIX: &str = ".bulkhead-";

/// An opened directory. Names given to it are single ones, never paths.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    /// For errors, and for those who need a path: the runtime, the mount table.
    path: PathBuf,
}

impl Directory {
    /// Opens a directory that the operator chose; links on the way to it are followed.
    pub(crate) fn open(path: &Path) -> Result<Directory, NodeError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = open(path, flags, Mode::empty()).context("open", path)?;
        Ok(Directory {
            fd,
            path: path.to_owned(),
        })
    }

    /// The same, if there is one.
    pub(crate) fn open_if_there(path: &Path) -> Result<Option<Directory>, NodeError> {
        match Directory::open(path) {
            Err(NodeError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    /// Makes such a directory, and those above it, and opens it. One that is made
    /// has this mode after, whatever our own mask; one that is there keeps its own.
    pub(crate) fn open_or_make(path: &Path, mode: u32) -> Result<Directory, NodeError> {
        if path.is_dir() {
            return Directory::open(path);
        }
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode);
        builder
            .recursive(true)
            .create(path)
            .context("create", path)?;
        let made = Directory::open(path)?;
        fchmod(&made.fd, Mode::from_bits_truncate(mode))
            .context("change the mode of", &made.path)?;
        Ok(made)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The same path without links, as the mount table has it.
    pub(crate) fn real_path(&self) -> Result<PathBuf, NodeError> {
        descriptor::real_path(&self.fd)
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn status(&self) -> Result<FileStat, NodeError> {
        fstat(&self.fd).context("inspect", &self.path)
    }

    /// The directory of this name, if there is one.
    pub(crate) fn child(&self, name: &str) -> Result<Option<Directory>, NodeError> {
        let path = self.named(name)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        match openat2(
            &self.fd,
            name,
            OpenHow::new().flags(flags).resolve(beneath()),
        ) {
            Ok(fd) => Ok(Some(Directory { fd, path })),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(unexpected(path, error, "a directory")),
        }
    }

    /// The directory of this name, made if there is none; its mode is this one after.
    pub(crate) fn make_child(&self, name: &str, mode: u32) -> Result<Directory, NodeError> {
        let path = self.named(name)?;
        let mode = Mode::from_bits_truncate(mode);
        match mkdirat(&self.fd, name, mode) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(NodeError::io("create", path, error.into())),
        }
        let child = self
            .child(name)?
            .ok_or_else(|| NodeError::refused(path, "it was removed while it was made"))?;
        // The mode of a new directory is subject to our own mask.
        if Mode::from_bits_truncate(child.status()?.st_mode) != mode {
            fchmod(&child.fd, mode).context("change the mode of", &child.path)?;
        }
        Ok(child)
    }

    /// The directory of this name, or one made with this mode of which `prepare` made the
    /// rest: it gets its name last, so one that has it is left as who uses it changed it.
    pub(crate) fn child_or_make(
        &self,
        name: &str,
        mode: u32,
        prepare: impl FnOnce(&Directory) -> Result<(), NodeError>,
    ) -> Result<Directory, NodeError> {
        if let Some(child) = self.child(name)? {
            return Ok(child);
        }
        let path = self.named(name)?;
        let temporary = format!("{TEMPORARY_PREFIX}{name}");
        let made = self.make_child(&temporary, mode)?;
        prepare(&made)?;
        rename_to_new(&self.fd, &temporary, name).context("name", &path)?;
        Ok(Directory { path, ..made })
    }

    /// What is mounted on the thing of this name, if anything.
    pub(crate) fn mounted(&self, name: &str) -> Result<Option<OwnedFd>, NodeError> {
        let path = self.named(name)?;
        let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC);
        let unmounted = how.resolve(beneath() | ResolveFlag::RESOLVE_NO_XDEV);
        match openat2(&self.fd, name, unmounted) {
            Ok(_) | Err(Errno::ENOENT) => Ok(None),
            Err(Errno::EXDEV) => {
                let mounted = openat2(&self.fd, name, how.resolve(beneath()));
                mounted.map(Some).context("open", &path)
            }
            Err(error) => Err(unexpected(path, error, "a file or directory")),
        }
    }

    /// Something empty of this name for something to be mounted on: a directory or a
    /// file, which others may not enter or read. Nothing may be mounted there yet.
    pub(crate) fn make_mount_point(
        &self,
        name: &str,
        is_directory: bool,
    ) -> Result<OwnedFd, NodeError> {
        let path = self.named(name)?;
        // One of the other kind goes; one of this kind is as good as new.
        let other_kind = match is_directory {
            true => UnlinkatFlags::NoRemoveDir,
            false => UnlinkatFlags::RemoveDir,
        };
        match unlinkat(&self.fd, name, other_kind) {
            Ok(()) | Err(Errno::ENOENT | Errno::EISDIR | Errno::ENOTDIR) => {}
            Err(error) => return Err(NodeError::io("remove", path, error.into())),
        }
        if is_directory {
            match mkdirat(&self.fd, name, Mode::S_IRWXU) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(error) => return Err(NodeError::io("create", path, error.into())),
            }
        } else {
            self.create_file(name, 0o600)?;
        }
        descriptor::open_beneath(&self.fd, Path::new(name)).context("open", &path)
    }

    /// The regular file of this name opened for reading, if there is one. Never blocks:
    /// a pipe or device in its place is refused.
    pub(crate) fn open_file(&self, name: &str) -> Result<Option<File>, NodeError> {
        self.open_regular(name, OFlag::O_RDONLY)
    }

    /// The same opened for writing too.
    pub(crate) fn open_file_to_change(&self, name: &str) -> Result<Option<File>, NodeError> {
        self.open_regular(name, OFlag::O_RDWR)
    }

    fn open_regular(&self, name: &str, access: OFlag) -> Result<Option<File>, NodeError> {
        let path = self.named(name)?;
        let flags = access | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let opened = openat2(
            &self.fd,
            name,
            OpenHow::new().flags(flags).resolve(beneath()),
        );
        let file = match opened {
            Ok(fd) => File::from(fd),
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(unexpected(path, error, "a regular file")),
        };
        let kind = SFlag::from_bits_truncate(fstat(&file).context("inspect", &path)?.st_mode);
        if kind & SFlag::S_IFMT == SFlag::S_IFREG {
            Ok(Some(file))
        } else {
            Err(NodeError::refused(path, "it is not a regular file"))
        }
    }

    /// A new, empty file of this name and mode; one that is there is replaced.
    pub(crate) fn create_file(&self, name: &str, mode: u32) -> Result<File, NodeError> {
        let path = self.named(name)?;
        self.remove_file(name)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(mode);
        let how = OpenHow::new().flags(flags).mode(mode).resolve(beneath());
        let file = File::from(openat2(&self.fd, name, how).context("create", &path)?);
        fchmod(&file, mode).context("change the mode of", &path)?;
        Ok(file)
    }

    /// Gives the file of this name this content at once: a reader sees the old one or
    /// the new one.
    pub(crate) fn replace_file(
        &self,
        name: &str,
        content: &[u8],
        mode: u32,
    ) -> Result<(), NodeError> {
        let path = self.named(name)?;
        let temporary = format!("{TEMPORARY_PREFIX}{name}");
        let mut file = self.create_file(&temporary, mode)?;
        file.write_all(content).context("write", &path)?;
        renameat(&self.fd, temporary.as_str(), &self.fd, name).context("replace", &path)
    }

    /// Makes a link of this name, in place of one that is there.
    pub(crate) fn replace_link(&self, name: &str, target: &Path) -> Result<(), NodeError> {
        let path = self.named(name)?;
        let temporary = format!("{TEMPORARY_PREFIX}{name}");
        let temporary = &temporary[..temporary.floor_char_boundary(MAX_NAME_BYTES)];
        self.remove_file(temporary)?;
        symlinkat(target, &self.fd, temporary).context("link", &path)?;
        renameat(&self.fd, temporary, &self.fd, name).context("link", &path)
    }

    /// Where the link of this name points, if it is one.
    pub(crate) fn link_target(&self, name: &str) -> Result<Option<PathBuf>, NodeError> {
        let path = self.named(name)?;
        match readlinkat(&self.fd, name) {
            Ok(target) => Ok(Some(target.into())),
            Err(Errno::EINVAL | Errno::ENOENT) => Ok(None),
            Err(error) => Err(NodeError::io("read", path, error.into())),
        }
    }

    /// Removes the file or link of this name; fine if there is none.
    pub(crate) fn remove_file(&self, name: &str) -> Result<(), NodeError> {
        let path = self.named(name)?;
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(NodeError::io("remove", path, error.into())),
        }
    }

    /// How big the regular file of this name is; `None` if there is none.
    pub(crate) fn file_size(&self, name: &str) -> Result<Option<u64>, NodeError> {
        let status = self.file_status(name)?;
        Ok(status.map(|status| u64::try_from(status.st_size).unwrap_or(0)))
    }

    /// What is known of the regular file of this name; `None` if there is none. It is not
    /// opened: whoever holds a lease on it could keep that from happening.
    pub(crate) fn file_status(&self, name: &str) -> Result<Option<FileStat>, NodeError> {
        let path = self.named(name)?;
        let status = match fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(status) => status,
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(NodeError::io("inspect", path, error.into())),
        };
        let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
        match kind == SFlag::S_IFREG {
            true => Ok(Some(status)),
            false => Err(NodeError::refused(path, "it is not a regular file")),
        }
    }

    /// Renames a file or link; fine if there is none. Never over another one.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), NodeError> {
        self.named(from)?;
        let path = self.named(to)?;
        match rename_to_new(&self.fd, from, to) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(NodeError::io("rename to", path, error.into())),
        }
    }

    /// Names of what is in it, those that are no UTF-8 left out.
    pub(crate) fn names(&self) -> Result<Vec<String>, NodeError> {
        let entries = entries(&self.fd).context("read", &self.path)?;
        let names = entries
            .filter_map(Result::ok)
            .filter(|entry| !is_dot(entry.file_name()));
        Ok(names
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .collect())
    }

    /// Removes the directory of this name with all that is in it; fine if there is
    /// none. Follows no link and enters no mount; what cannot be removed is left, the
    /// rest goes, and the first refusal is the error.
    pub(crate) fn remove_tree(&self, name: &str) -> Result<(), NodeError> {
        let path = self.named(name)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let resolve = beneath() | ResolveFlag::RESOLVE_NO_XDEV;
        let top = match openat2(&self.fd, name, OpenHow::new().flags(flags).resolve(resolve)) {
            Ok(top) => top,
            Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::ENOTDIR | Errno::ELOOP) => return self.remove_file(name),
            Err(Errno::EXDEV) => {
                return Err(NodeError::refused(path, "something is mounted on it"));
            }
            Err(error) => return Err(NodeError::io("open", path, error.into())),
        };
        let emptied = tree_removal::remove_all(&top, |_| Ok(false));
        match unlinkat(&self.fd, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(match emptied {
                Err(left) if left.is_mount() => {
                    let path = path.join("...").join(left.name);
                    NodeError::refused(path, "something is mounted on it")
                }
                Err(left) => NodeError::io("remove", path.join("...").join(left.name), left.source),
                Ok(()) => NodeError::io("remove", path, error.into()),
            }),
        }
    }

    /// The path of a name in this directory, if it is one name and no path.
    fn named(&self, name: &str) -> Result<PathBuf, NodeError> {
        let good = !name.is_empty()
            && name != "."
            && name != ".."
            && name.len() <= MAX_NAME_BYTES
            && !name.contains(['/', '\0']);
        if good {
            Ok(self.path.join(name))
        } else {
            let name = &name[..name.floor_char_boundary(MAX_NAME_BYTES)];
            Err(NodeError::refused(
                &self.path,
                format!("{name:?} is not a file name"),
            ))
        }
    }
}

/// Renames within a directory, and not over what is there.
fn rename_to_new(directory: &OwnedFd, from: &str, to: &str) -> nix::Result<()> {
    let flags = RenameFlags::RENAME_NOREPLACE;
    let by_kernel = renameat2(directory, from, directory, to, flags);
    rename_unless_done(by_kernel, directory, from, to)
}

/// What the kernel answered, unless the file system has no such call: NFS and ZFS before 2.2
/// refuse its flag. Only root writes in these directories, so what is looked for first does
/// not come in between, but for a log that the runtime makes in just that moment.
fn rename_unless_done(
    by_kernel: nix::Result<()>,
    directory: &OwnedFd,
    from: &str,
    to: &str,
) -> nix::Result<()> {
    let Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) = by_kernel else {
        return by_kernel;
    };
    match fstatat(directory, to, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EEXIST),
        Err(Errno::ENOENT) => renameat(directory, from, directory, to),
        Err(error) => Err(error),
    }
}

/// A link or a thing of another kind is no trouble of the operating system's.
fn unexpected(path: PathBuf, error: Errno, expected: &str) -> NodeError {
    match error {
        Errno::ELOOP => NodeError::refused(path, "it is a link"),
        Errno::ENOTDIR | Errno::ENXIO => NodeError::refused(path, format!("it is not {expected}")),
        error => NodeError::io("open", path, error.into()),
    }
}

fn is_dot(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// A stream of a directory's entries, on a descriptor of its own.
fn entries(directory: &OwnedFd) -> io::Result<OwningIter> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(Dir::openat(directory, c".", flags, Mode::empty())?.into_iter())
}

#[cfg(test)]
mod tests;
