//! Reading manifests from the disk, and only manifests: a name in the directory
//! may be a FIFO that blocks, a device that acts when it is opened, or a link to
//! a file that only root may see. So each file is looked at without opening it
//! (`O_PATH`), resolved beneath the directory, opened without blocking, and
//! looked at again. What was found is somebody else's to judge.
//!
//! Everything here blocks for as long as the file system does.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clock::UnixNanos;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use pod_manifest::MAX_MANIFEST_BYTES;

/// Most manifest files that are read: one for each pod that a source may have.
pub const MAX_FILES: usize = ipc::limits::MAX_PODS;

/// Most names that are listed of a directory. Sorting so many takes some
/// milliseconds; a directory with more is no manifest directory.
pub const MAX_NAMES: usize = 200_000;

/// A file whose content changed less than this ago may be half written, unless
/// its writer has been seen closing it.
const SETTLING_NANOS: i128 = 50_000_000;

/// Times in file systems have the granularity of the kernel's tick, some even
/// of a second: a file that changed less than this ago may change again without
/// its times showing it.
const RACY_NANOS: i128 = 2_000_000_000;

/// What `staticPodPath` names.
#[derive(Debug)]
pub enum Place {
    /// A directory of manifests.
    Directory(OwnedFd),
    /// One manifest.
    File,
    /// Nothing.
    Absent,
}

/// Why the manifests cannot be listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The operating system refused.
    #[error("cannot {action}: {}", .source.desc())]
    System {
        /// What was tried.
        action: &'static str,
        /// The cause.
        source: Errno,
    },
    /// It is neither a directory nor a file.
    #[error("is {0}, neither a directory nor a file")]
    WrongType(&'static str),
    /// It is a link, or below one, that leads to nothing that this process can see.
    #[error(
        "leads nowhere: a link on the way to it has no target, or none that this process can see"
    )]
    LeadsNowhere,
    /// There are too many names in it.
    #[error("has more than {MAX_NAMES} names in it")]
    TooManyNames,
}

/// Opens what the path names, following links: the path is the operator's word.
///
/// # Errors
/// When it cannot be opened, or is something else than a directory or a file.
pub fn open_place(path: &Path) -> Result<Place, ListError> {
    let system = |action| move |source| ListError::System { action, source };
    let handle = match open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) {
        Ok(handle) => handle,
        Err(Errno::ENOENT) if leads_nowhere(path) => return Err(ListError::LeadsNowhere),
        Err(Errno::ENOENT) => return Ok(Place::Absent),
        Err(error) => return Err(system("open it")(error)),
    };
    let status = fstat(&handle).map_err(system("look at it"))?;
    match file_type(&status) {
        SFlag::S_IFREG => Ok(Place::File),
        SFlag::S_IFDIR => {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            match open(path, flags, Mode::empty()) {
                Ok(directory) => Ok(Place::Directory(directory)),
                Err(error) => Err(system("open it")(error)),
            }
        }
        other => Err(ListError::WrongType(type_name(other))),
    }
}

/// Whether a link is what is in the way: nobody has removed anything.
fn leads_nowhere(path: &Path) -> bool {
    let nearest = path.ancestors().find(|it| it.symlink_metadata().is_ok());
    nearest.is_some_and(|it| it.is_symlink() && it.metadata().is_err())
}

/// The names of a directory that may be manifests, sorted. Hidden ones are not:
/// editors and kubelets' atomic updates keep their working files so.
///
/// # Errors
/// When the directory cannot be read or has too many names.
pub fn names(directory: &OwnedFd) -> Result<BTreeSet<OsString>, ListError> {
    let system = |source| ListError::System {
        action: "read it",
        source,
    };
    // Another descriptor, for its own position.
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut listing = Dir::openat(directory, ".", flags, Mode::empty()).map_err(system)?;
    let mut names = BTreeSet::new();
    for entry in listing.iter() {
        let entry = entry.map_err(system)?;
        let name = entry.file_name().to_bytes();
        if name.starts_with(b".") {
            continue;
        }
        if names.len() == MAX_NAMES {
            return Err(ListError::TooManyNames);
        }
        names.insert(OsStr::from_bytes(name).to_owned());
    }
    Ok(names)
}

/// Where a manifest is.
#[derive(Debug, Clone, Copy)]
pub enum Location<'a> {
    /// A name in an opened directory.
    Beneath(&'a OwnedFd, &'a OsStr),
    /// A path of its own.
    Path(&'a Path),
}

/// Tells whether a file is still the one that was read. Times are nanoseconds
/// since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    /// The file system.
    pub device: u64,
    /// The file in it.
    pub inode: u64,
    /// Bytes.
    pub size: i64,
    /// When its content last changed.
    pub modified: i128,
    /// When anything about it last changed.
    pub changed: i128,
}

/// Why what is in the place of a manifest is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is not a file.
    #[error("is {0} and is not read")]
    WrongType(&'static str),
    /// It was a file, and another thing a moment later.
    #[error("is no longer a file")]
    Replaced,
    /// It is larger than a manifest may be.
    #[error("has more than {MAX_MANIFEST_BYTES} bytes")]
    TooLarge,
    /// It is a link to somewhere else.
    #[error("is a link that leaves the directory, or begins with /")]
    Leaves,
    /// It is a link to nothing, or to itself.
    #[error("is a link that leads nowhere")]
    Dangles,
    /// The operating system refused.
    #[error("cannot be read: {}", .0.desc())]
    System(Errno),
}

/// What was found at a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It is the one that was read before.
    Unchanged,
    /// It was read.
    Content {
        /// All of it.
        bytes: Vec<u8>,
        /// By which it is recognised, if that is safe.
        fingerprint: Option<Fingerprint>,
    },
    /// It cannot or must not be read.
    Unreadable(Unreadable),
    /// It is being written: to be looked at again shortly.
    Settling,
    /// Nothing that could be a manifest: a directory.
    Directory,
    /// Nothing any more.
    Gone,
}

/// What the reader knows of a file before it reads it.
#[derive(Debug, Clone, Copy)]
pub struct Expectation {
    /// By which the file would be recognised.
    pub fingerprint: Option<Fingerprint>,
    /// Whether its writer has been seen closing it.
    pub settled: bool,
    /// Now.
    pub now: UnixNanos,
}

/// Looks at a file and reads it if it is a manifest that is not known yet.
#[must_use]
pub fn read(location: Location<'_>, expected: Expectation) -> Found {
    let handle = match location.open(OFlag::O_PATH) {
        Ok(handle) => handle,
        // The name is there: it is a link that dangles.
        Err(Errno::ENOENT) if location.open(OFlag::O_PATH | OFlag::O_NOFOLLOW).is_ok() => {
            return Found::Unreadable(Unreadable::Dangles);
        }
        Err(error) => return failed(error),
    };
    let status = match fstat(&handle) {
        Ok(status) => status,
        Err(error) => return failed(error),
    };
    match file_type(&status) {
        SFlag::S_IFREG => {}
        SFlag::S_IFDIR => return Found::Directory,
        other => return Found::Unreadable(Unreadable::WrongType(type_name(other))),
    }
    if status.st_size > MAX_MANIFEST_BYTES as i64 {
        return Found::Unreadable(Unreadable::TooLarge);
    }
    let fingerprint = fingerprint(&status);
    if expected.fingerprint == Some(fingerprint) {
        return Found::Unchanged;
    }
    if !expected.settled && (0..SETTLING_NANOS).contains(&age(fingerprint.modified, expected.now)) {
        return Found::Settling;
    }
    drop(handle);
    match content(location) {
        Err(error) => failed(error),
        Ok((_, after)) if file_type(&after) != SFlag::S_IFREG => {
            Found::Unreadable(Unreadable::Replaced)
        }
        Ok((bytes, _)) if bytes.len() > MAX_MANIFEST_BYTES => {
            Found::Unreadable(Unreadable::TooLarge)
        }
        Ok((bytes, after)) => {
            let after = self::fingerprint(&after);
            if after != fingerprint && !expected.settled {
                return Found::Settling;
            }
            let safe = age(after.changed, expected.now) >= RACY_NANOS;
            let fingerprint = Some(after).filter(|_| safe);
            Found::Content { bytes, fingerprint }
        }
    }
}

/// All of a file, and its state after it was read.
fn content(location: Location<'_>) -> Result<(Vec<u8>, FileStat), Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::from(location.open(flags)?);
    if file_type(&fstat(&file)?) != SFlag::S_IFREG {
        return Ok((Vec::new(), fstat(&file)?));
    }
    let mut bytes = Vec::new();
    (&file)
        .take(MAX_MANIFEST_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    let after = fstat(&file)?;
    Ok((bytes, after))
}

impl Location<'_> {
    fn open(self, flags: OFlag) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlag::O_CLOEXEC;
        match self {
            Location::Path(path) => openat(AT_FDCWD, path, flags, Mode::empty()),
            Location::Beneath(directory, name) => {
                let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
                let how = OpenHow::new().flags(flags).resolve(resolve);
                match openat2(directory.as_fd(), name, how) {
                    // Kernels before 5.6: no links at all.
                    Err(Errno::ENOSYS) => {
                        openat(directory, name, flags | OFlag::O_NOFOLLOW, Mode::empty())
                    }
                    result => result,
                }
            }
        }
    }
}

fn failed(error: Errno) -> Found {
    match error {
        Errno::ENOENT => Found::Gone,
        Errno::EXDEV => Found::Unreadable(Unreadable::Leaves),
        Errno::ELOOP => Found::Unreadable(Unreadable::Dangles),
        other => Found::Unreadable(Unreadable::System(other)),
    }
}

/// How long ago something was, in nanoseconds; negative for the future.
fn age(then: i128, now: UnixNanos) -> i128 {
    i128::from(now.0) - then
}

fn fingerprint(status: &FileStat) -> Fingerprint {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Fingerprint {
        device: status.st_dev,
        inode: status.st_ino,
        size: status.st_size,
        modified: nanos(status.st_mtime, status.st_mtime_nsec),
        changed: nanos(status.st_ctime, status.st_ctime_nsec),
    }
}

fn file_type(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits())
}

fn type_name(kind: SFlag) -> &'static str {
    match kind {
        SFlag::S_IFIFO => "a FIFO",
        SFlag::S_IFSOCK => "a socket",
        SFlag::S_IFCHR => "a character device",
        SFlag::S_IFBLK => "a block device",
        SFlag::S_IFDIR => "a directory",
        SFlag::S_IFLNK => "a link",
        _ => "no file",
    }
}

/// The files of a directory that are read: those that are known first, so that
/// new ones never displace them. Returns how many were left out.
#[must_use]
pub fn chosen(
    names: BTreeSet<OsString>,
    is_known: impl Fn(&OsStr) -> bool,
) -> (Vec<OsString>, usize) {
    let (known, new): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_known(name));
    let total = known.len() + new.len();
    let mut chosen: Vec<_> = known.into_iter().chain(new).take(MAX_FILES).collect();
    chosen.sort();
    let left_out = total - chosen.len();
    (chosen, left_out)
}

/// The path of a name in the directory, as text.
#[must_use]
pub fn display_path(directory: &Path, name: &OsStr) -> String {
    PathBuf::from(directory).join(name).display().to_string()
}

#[cfg(test)]
mod tests;
