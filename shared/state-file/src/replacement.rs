//! The content of a file is replaced: by one writer at a time, so that a reader sees all of
//! the old or all of the new, whenever a writer is killed.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;

/// So often writing is tried while somebody else writes the same file, with
/// [`WRITER_PAUSE`] before each further try: 2 s in all. A writer takes some
/// milliseconds. One that hangs with its disk must not make others hang for good, and
/// not for as long as a watchdog bears, 5 s.
pub(crate) const WRITER_TRIES: u32 = 400;

/// Between two tries.
const WRITER_PAUSE: Duration = Duration::from_millis(5);

/// Writes `bytes` to `path` so that a reader sees all of the old or all of the new
/// content, whenever the writer is killed. `prepare` gets the new file, of mode 0600
/// or as an earlier writer left it, before anything is in it: to set its owner and
/// mode. For what is made again at each start: nothing waits for the disk, and the
/// content may be lost with the machine.
///
/// # Errors
/// Whatever the file system or `prepare` says, or that another writer does not end;
/// the old content is then still there.
pub fn write_atomically(
    path: &Path,
    bytes: &[u8],
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    replace(path, bytes, false, WRITER_TRIES, prepare)
}

pub(crate) fn check_type(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is no regular file")),
    }
}

pub(crate) fn replace(
    path: &Path,
    bytes: &[u8],
    sync: bool,
    tries: u32,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary(path);
    let mut file = open_alone(&temporary, tries)?;
    let write = || {
        file.set_len(0)?;
        prepare(&file)?;
        file.write_all(bytes)?;
        if sync {
            file.sync_all()?;
        }
        std::fs::rename(&temporary, path)
    };
    if let Err(error) = write() {
        // Half a file helps nobody, least of all on a full disk. Still locked, it
        // is nobody else's.
        drop(std::fs::remove_file(&temporary));
        return Err(error);
    }
    match sync {
        true => sync_directory(path),
        false => Ok(()),
    }
}

/// Waits until the disk has what was renamed to this path, or that it was removed.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// What a file that is being written has after its name.
pub const UNFINISHED: &str = ".new";

/// Always the same name beside the file: what a writer leaves behind that was
/// killed is overwritten by the next one.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

/// Opens the file, and waits until nobody else writes it. What else has the name is
/// an error: it is none of ours, and through a link others' files would be changed.
fn open_alone(path: &Path, tries: u32) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    for _ in 0..tries {
        let opened = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags.bits())
            .open(path);
        let file = opened.map_err(|error| in_the_way(path, &error))?;
        check_type(&file).map_err(|error| in_the_way(path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                pause();
                continue;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let own = file.metadata()?;
        // Whoever had the lock before has renamed what we have opened.
        match std::fs::symlink_metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (own.dev(), own.ino()) => return Ok(file),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("{} is being written by somebody else", path.display()),
    ))
}

#[expect(
    clippy::disallowed_methods,
    reason = "callers block for the disk anyway, and files have no locks with a deadline"
)]
fn pause() {
    std::thread::sleep(WRITER_PAUSE);
}

/// An error about the temporary file, which its reader has not named.
fn in_the_way(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
