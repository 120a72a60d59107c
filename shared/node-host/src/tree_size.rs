//! How much a tree of files takes. Blocking.
//!
//! Containers change the tree meanwhile and may mean harm: no link is followed, no mount
//! is entered, a file with several names counts once, and a tree that is deeper than
//! there are descriptors is gone through in parts.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::time::Instant;

use nix::dir::{Dir, OwningIter, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use node_layout::TreeSize;

use crate::descriptor::beneath;

/// How many levels are open at once: two descriptors each.
const MAX_OPEN_LEVELS: usize = 64;

/// How deep a tree is gone into. Nothing sensible is deeper, and each part that begins
/// deeper costs as many steps.
const MAX_DEPTH: usize = 4096;

/// Parts that wait. A tree with more deep parts than this was made to cost time.
const MAX_PARTS: usize = 4096;

/// Names on the ways to all parts that wait: it is they that take memory, up to 300
/// bytes each. A chain of directories with long names has thousands for each part.
const MAX_WAITING_NAMES: usize = 1 << 16;

/// Files with several names that are told apart; those beyond count once a name.
const MAX_LINKED_FILES: usize = 100_000;

/// Bytes of one block of `st_blocks`, whatever the file system's own are.
pub(super) const BLOCK_BYTES: u64 = 512;

/// How much of a tree was gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    /// All of it.
    Whole,
    /// As much as there was time for.
    OutOfTime,
    /// Not what lies too deep: somebody made it so that it costs time to measure it.
    TooDeep,
}

/// How much the directory takes with all that is in it, as far as that is found out
/// `until` then: a tree that was not gone through as a whole takes at least so much. What
/// goes away meanwhile is not counted.
pub(super) fn tree_size(top: &OwnedFd, until: Instant) -> nix::Result<(TreeSize, Extent)> {
    let status = fstat(top)?;
    let mut walk = Walk {
        size: TreeSize::default(),
        extent: Extent::Whole,
        device: status.st_dev,
        until,
        linked: HashSet::new(),
        parts: vec![Vec::new()],
        waiting_names: 0,
    };
    walk.count(&status);
    while let Some(part) = walk.parts.pop() {
        if walk.is_over() {
            break;
        }
        walk.waiting_names -= part.len();
        match descend(top, &part) {
            Ok(Some(directory)) => walk.part(directory, part)?,
            Ok(None) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((walk.size, walk.extent))
}

/// The directory at the end of these names, if it is there still.
fn descend(top: &OwnedFd, names: &[CString]) -> nix::Result<Option<OwnedFd>> {
    let mut directory = top.try_clone().map_err(|_| Errno::EMFILE)?;
    for name in names {
        match open_directory(&directory, name) {
            Ok(inner) => directory = inner,
            Err(error) if is_gone(error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(directory))
}

/// Whether it was removed, or became something else, or is another file system's.
fn is_gone(error: Errno) -> bool {
    matches!(
        error,
        Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV
    )
}

fn open_directory(parent: &OwnedFd, name: &CStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let resolve = beneath() | ResolveFlag::RESOLVE_NO_XDEV;
    openat2(parent, name, OpenHow::new().flags(flags).resolve(resolve))
}

/// One directory that is being gone through.
struct Level {
    fd: OwnedFd,
    entries: OwningIter,
}

impl Level {
    fn new(fd: OwnedFd) -> nix::Result<Level> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let entries = Dir::openat(&fd, c".", flags, Mode::empty())?.into_iter();
        Ok(Level { fd, entries })
    }
}

struct Walk {
    size: TreeSize,
    extent: Extent,
    device: u64,
    until: Instant,
    linked: HashSet<u64>,
    /// Directories whose turn comes once those that are open are closed.
    parts: Vec<Vec<CString>>,
    /// In all of them.
    waiting_names: usize,
}

impl Walk {
    /// Whether the time is over, while something is left.
    fn is_over(&mut self) -> bool {
        let is_over = Instant::now() >= self.until;
        if is_over {
            self.extent = self.extent.max(Extent::OutOfTime);
        }
        is_over
    }

    fn count(&mut self, status: &FileStat) {
        if status.st_dev != self.device {
            return;
        }
        let is_directory = is_directory(status);
        if !is_directory && status.st_nlink > 1 {
            if self.linked.contains(&status.st_ino) {
                return;
            }
            if self.linked.len() < MAX_LINKED_FILES {
                self.linked.insert(status.st_ino);
            }
        }
        let blocks = u64::try_from(status.st_blocks).unwrap_or(0);
        self.size += TreeSize {
            bytes: blocks.saturating_mul(BLOCK_BYTES),
            inodes: 1,
        };
    }

    /// Leaves a directory for later, where the bounds allow that.
    fn wait(&mut self, above: &[CString], name: CString) {
        let names = above.len() + 1;
        let fits = self.waiting_names + names <= MAX_WAITING_NAMES;
        if fits && above.len() < MAX_DEPTH && self.parts.len() < MAX_PARTS {
            let mut part = above.to_vec();
            part.push(name);
            self.waiting_names += names;
            self.parts.push(part);
        } else {
            self.extent = Extent::TooDeep;
        }
    }

    /// Goes through a directory as deep as may be open at once. `above` are the names on
    /// the way to it.
    fn part(&mut self, directory: OwnedFd, above: Vec<CString>) -> nix::Result<()> {
        let mut levels = vec![Level::new(directory)?];
        let mut names = above.clone();
        loop {
            let open = levels.len();
            let Some(level) = levels.last_mut() else {
                return Ok(());
            };
            if self.is_over() {
                return Ok(());
            }
            let Some(entry) = level.entries.next() else {
                levels.pop();
                if names.len() > above.len() {
                    names.pop();
                }
                continue;
            };
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let status = match fstatat(&level.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(status) => status,
                Err(error) if is_gone(error) => continue,
                Err(error) => return Err(error),
            };
            self.count(&status);
            let may_enter = entry.file_type().is_none_or(|kind| kind == Type::Directory);
            if !may_enter || !is_directory(&status) || status.st_dev != self.device {
                continue;
            }
            let name = name.to_owned();
            if open >= MAX_OPEN_LEVELS {
                self.wait(&names, name);
                continue;
            }
            match open_directory(&level.fd, &name) {
                Ok(inner) => {
                    levels.push(Level::new(inner)?);
                    names.push(name);
                }
                Err(error) if is_gone(error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_directory(status: &FileStat) -> bool {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::time::Duration;

    use nix::sys::stat::mkdirat;

    use super::*;

    fn size_of(path: &Path) -> TreeSize {
        let until = Instant::now() + Duration::from_secs(60);
        let (size, extent) = tree_size(&File::open(path).unwrap().into(), until).unwrap();
        assert_eq!(extent, Extent::Whole);
        size
    }

    #[test]
    fn a_tree_that_takes_too_long_takes_what_was_found_until_then() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), "").unwrap();
        let top = File::open(directory.path()).unwrap().into();
        let (size, extent) = tree_size(&top, Instant::now()).unwrap();
        assert_eq!((size.inodes, extent), (1, Extent::OutOfTime));
        assert_eq!(size_of(directory.path()).inodes, 2);
    }

    #[test]
    fn files_count_by_their_blocks_and_once_whatever_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        let empty = size_of(top);
        assert_eq!(empty.inodes, 1);
        fs::create_dir(top.join("d")).unwrap();
        fs::write(top.join("d/file"), vec![1; 100_000]).unwrap();
        let one = size_of(top);
        assert_eq!(one.inodes, 3);
        assert!(
            (100_000..150_000).contains(&(one.bytes - empty.bytes)),
            "{one:?}"
        );
        fs::hard_link(top.join("d/file"), top.join("again")).unwrap();
        assert_eq!(size_of(top), one);
        // A file that is large and empty takes no blocks.
        File::create(top.join("sparse"))
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
        let sparse = size_of(top);
        assert_eq!(sparse.inodes, 4);
        assert!(sparse.bytes - one.bytes < 10_000, "{sparse:?}");
    }

    #[test]
    fn a_link_leads_nowhere() {
        let (inner, outer) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outer.path().join("large"), vec![1; 1 << 20]).unwrap();
        symlink(outer.path(), inner.path().join("link")).unwrap();
        let size = size_of(inner.path());
        assert_eq!(size.inodes, 2);
        assert!(size.bytes < 1 << 20, "{size:?}");
    }

    #[test]
    fn what_lies_deep_counts_too() {
        let directory = tempfile::tempdir().unwrap();
        let mut deep = directory.path().to_owned();
        for _ in 0..3 * MAX_OPEN_LEVELS {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
        }
        fs::write(deep.join("large"), vec![1; 1 << 20]).unwrap();
        let size = size_of(directory.path());
        assert_eq!(size.inodes, 3 * MAX_OPEN_LEVELS as u64 + 2);
        assert!(size.bytes > 1 << 20, "{size:?}");
    }

    /// What lies deeper than anybody goes is not said to take nothing.
    #[test]
    fn a_tree_that_is_too_deep_is_not_said_to_be_measured() {
        const BELOW: usize = MAX_DEPTH + 100;
        let directory = tempfile::tempdir().unwrap();
        let top: OwnedFd = File::open(directory.path()).unwrap().into();
        let mut deep = top.try_clone().unwrap();
        for _ in 0..BELOW {
            mkdirat(&deep, "d", Mode::S_IRWXU).unwrap();
            deep = open_directory(&deep, c"d").unwrap();
        }
        let until = Instant::now() + Duration::from_secs(60);
        let (size, extent) = tree_size(&top, until).unwrap();
        tree_removal::remove_all(&top, |_| Ok(false)).unwrap();
        assert_eq!(extent, Extent::TooDeep);
        assert!(size.inodes > MAX_DEPTH as u64, "{size:?}");
        assert!(size.inodes <= BELOW as u64, "{size:?}");
    }

    #[test]
    fn directories_that_wait_take_bounded_memory_however_deep_they_lie() {
        let top = tempfile::tempdir().unwrap();
        let mut walk = Walk {
            size: TreeSize::default(),
            extent: Extent::Whole,
            device: 0,
            until: Instant::now(),
            linked: HashSet::new(),
            parts: Vec::new(),
            waiting_names: 0,
        };
        let name = CString::new("n".repeat(255)).unwrap();
        let above = vec![name.clone(); MAX_DEPTH - 1];
        for _ in 0..MAX_PARTS {
            walk.wait(&above, name.clone());
        }
        assert_eq!(walk.parts.len(), MAX_WAITING_NAMES / MAX_DEPTH);
        assert_eq!(walk.waiting_names, MAX_WAITING_NAMES);
        assert_eq!(walk.extent, Extent::TooDeep);
        // What waits is gone through all the same.
        assert!(size_of(top.path()).inodes == 1);
    }
}
