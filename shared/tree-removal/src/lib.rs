//! Removes what is in a directory, which may be a tree of any depth that somebody made
//! who wants it to stay: no recursion, a bounded number of descriptors, no link is
//! followed and no mount entered. Blocking.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use nix::dir::{Dir, OwningIter, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// How deep removal goes before it moves a directory up: two descriptors a level.
const MAX_OPEN_LEVELS: usize = 64;

/// What the names of directories that were moved up begin with.
const MOVED_PREFIX: &str = ".removed-";

/// Something was left where it is.
#[derive(Debug)]
pub struct NotRemoved {
    /// Its name in the directory where it is, which may be any one of the tree.
    pub name: OsString,
    /// Why it could not be removed.
    pub source: io::Error,
}

impl NotRemoved {
    fn new(name: &CStr, error: impl Into<io::Error>) -> NotRemoved {
        NotRemoved {
            name: OsString::from_vec(name.to_bytes().to_vec()),
            source: error.into(),
        }
    }

    /// Whether something is mounted on it.
    #[must_use]
    pub fn is_mount(&self) -> bool {
        let errno = self.source.raw_os_error().map(Errno::from_raw);
        matches!(errno, Some(Errno::EXDEV | Errno::EBUSY))
    }
}

/// Removes what is in a directory, but for what is kept of the names directly in it.
///
/// # Errors
/// The first refusal, after the rest has been removed: of the file system, or of
/// `is_kept`, whose failure keeps the name.
pub fn remove_all(
    top: &OwnedFd,
    is_kept: impl Fn(&OsStr) -> io::Result<bool>,
) -> Result<(), NotRemoved> {
    let mut removal = TreeRemoval {
        top,
        is_kept,
        progress: 0,
        moved: 0,
        first_left: None,
    };
    // A stream of entries may miss some while others are removed, so one pass is not
    // enough: until nothing is left, or nothing gives way any more.
    loop {
        removal.progress = 0;
        removal.first_left = None;
        removal
            .pass()
            .map_err(|error| NotRemoved::new(c".", error))?;
        if removal.progress == 0 {
            return removal.first_left.map_or(Ok(()), Err);
        }
    }
}

/// One directory that is being emptied.
struct Level {
    fd: OwnedFd,
    entries: OwningIter,
    /// Its name in the level above.
    name: CString,
}

/// The tree may be deeper than there are descriptors: what lies too deep is moved up to
/// the top, and its turn comes there.
struct TreeRemoval<'a, IsKept> {
    top: &'a OwnedFd,
    is_kept: IsKept,
    /// How many things went or moved in this pass.
    progress: u64,
    moved: u64,
    first_left: Option<NotRemoved>,
}

impl<IsKept: Fn(&OsStr) -> io::Result<bool>> TreeRemoval<'_, IsKept> {
    fn pass(&mut self) -> io::Result<()> {
        let fd = self.top.try_clone()?;
        let mut levels = vec![Level {
            entries: entries(&fd)?,
            fd,
            name: c".".to_owned(),
        }];
        while let Some(level) = levels.last_mut() {
            match level.entries.next() {
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if [c".", c".."].contains(&name) {
                        continue;
                    }
                    let name = name.to_owned();
                    if let Some(inner) = self.remove(&levels, name, entry.file_type()) {
                        levels.push(inner);
                    }
                }
                Some(Err(error)) => {
                    self.left(c"", error);
                    self.leave(&mut levels);
                }
                None => self.leave(&mut levels),
            }
        }
        Ok(())
    }

    /// Removes one entry of the innermost level; a directory to empty first is the next
    /// level.
    fn remove(&mut self, levels: &[Level], name: CString, kind: Option<Type>) -> Option<Level> {
        let level = levels.last()?;
        if levels.len() == 1 {
            match (self.is_kept)(OsStr::from_bytes(name.to_bytes())) {
                Ok(true) => return None,
                Ok(false) => {}
                Err(error) => {
                    self.left(&name, error);
                    return None;
                }
            }
        }
        if kind != Some(Type::Directory) {
            match unlinkat(&level.fd, name.as_c_str(), UnlinkatFlags::NoRemoveDir) {
                Ok(()) => {
                    self.progress += 1;
                    return None;
                }
                Err(Errno::ENOENT) => return None,
                // A directory after all: some file systems do not tell.
                Err(Errno::EISDIR) => {}
                Err(error) => {
                    self.left(&name, error);
                    return None;
                }
            }
        }
        if levels.len() >= MAX_OPEN_LEVELS {
            self.move_up(level, &name);
            return None;
        }
        match open_level(&level.fd, &name) {
            Ok((fd, entries)) => Some(Level { fd, entries, name }),
            Err(error) => {
                self.left(&name, error);
                None
            }
        }
    }

    fn move_up(&mut self, level: &Level, name: &CStr) {
        let temporary = format!("{MOVED_PREFIX}{}-{}", std::process::id(), self.moved);
        self.moved += 1;
        match renameat(&level.fd, name, self.top, temporary.as_str()) {
            Ok(()) => self.progress += 1,
            Err(error) => self.left(name, error),
        }
    }

    /// The innermost level has been gone through: remove it from the one above.
    fn leave(&mut self, levels: &mut Vec<Level>) {
        let Some(done) = levels.pop() else { return };
        let Some(above) = levels.last() else { return };
        match unlinkat(&above.fd, done.name.as_c_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) => self.progress += 1,
            Err(Errno::ENOENT) => {}
            Err(error) => self.left(&done.name, error),
        }
    }

    fn left(&mut self, name: &CStr, error: impl Into<io::Error>) {
        self.first_left
            .get_or_insert_with(|| NotRemoved::new(name, error));
    }
}

/// A stream of a directory's entries, on a descriptor of its own.
fn entries(directory: impl AsFd) -> nix::Result<OwningIter> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(Dir::openat(directory, c".", flags, Mode::empty())?.into_iter())
}

fn open_level(parent: &OwnedFd, name: &CStr) -> nix::Result<(OwnedFd, OwningIter)> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
        | ResolveFlag::RESOLVE_NO_XDEV;
    let how = OpenHow::new().flags(flags).resolve(resolve);
    let fd = match openat2(parent, name, how) {
        // In a unit with RestrictSUIDSGID=: its filter does not see what is asked for.
        Err(Errno::ENOSYS) => open_on_the_mount(parent, name)?,
        opened => opened?,
    };
    let entries = entries(&fd)?;
    Ok((fd, entries))
}

/// The same without openat2(2), for a name of a directory's entry.
fn open_on_the_mount(parent: &OwnedFd, name: &CStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let fd = openat(parent, name, flags, Mode::empty())?;
    match mount_of(&fd) {
        Some(mount) if mount_of(parent).as_ref() == Some(&mount) => Ok(fd),
        _ => Err(Errno::EXDEV),
    }
}

/// The number of the mount that it is on (proc_pid_fdinfo(5)).
fn mount_of(fd: &OwnedFd) -> Option<String> {
    let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let number = told.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    Some(number.trim().to_owned())
}

#[cfg(test)]
mod tests;
