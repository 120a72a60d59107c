//! The content of a file is replaced, so that a reader sees all of the old or all of the
//! new, whenever a writer is killed.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What a file that is being written has after its name.
pub const UNFINISHED: &str = ".new";

/// Writes `bytes` to `path` so that a reader sees all of the old or all of the new
/// content, whenever the writer is killed. `prepare` gets the new file, of mode 0600,
/// before anything is in it: to set its owner and mode. For what is made again at each
/// start: nothing waits for the disk, and the content may be lost with the machine.
///
/// # Errors
/// Whatever the file system or `prepare` says; the old content is then still there.
pub fn write_atomically(
    path: &Path,
    bytes: &[u8],
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    replace(path, bytes, false, prepare)
}

pub(crate) fn replace(
    path: &Path,
    bytes: &[u8],
    sync: bool,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary(path);
    // What a killed writer has left, or anybody put there. A new file is nobody else's: a
    // write of that writer that hangs in the kernel cannot get into it.
    remove(&temporary)?;
    let mut options = File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    let write = || {
        prepare(&file)?;
        file.write_all(bytes)?;
        if sync {
            file.sync_all()?;
        }
        std::fs::rename(&temporary, path)
    };
    if let Err(error) = write() {
        // Half a file helps nobody, least of all on a full disk.
        drop(std::fs::remove_file(&temporary));
        return Err(error);
    }
    match sync {
        true => sync_directory(path),
        false => Ok(()),
    }
}

/// Removes a file; whether there was one.
pub(crate) fn remove(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => {
            let text = format!("{}: {error}", path.display());
            Err(io::Error::new(error.kind(), text))
        }
    }
}

/// Waits until the disk has what was renamed to this path, or that it was removed.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// Always the same name beside the file.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}
