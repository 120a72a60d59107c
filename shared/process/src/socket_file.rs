//! Whether the name of a listening socket still leads to it, where systemd has made it.
//!
//! A socket does not tell to which file it is bound. So root notes which one it is when
//! systemd has just made it, and a run of the process compares. Not here: what our supervisor
//! does, which makes the sockets itself and remembers their files.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Notes which file the name of this socket is. To be called when the socket was made.
///
/// # Errors
/// When the file system refuses.
pub fn note_socket_file(socket: &Path) -> io::Result<()> {
    fs::write(note(socket), file(socket)?)
}

/// Whether this name of a socket is still the file that was noted, or of which nothing was.
///
/// # Errors
/// When that cannot be found out.
pub(crate) fn has_its_name(socket: &Path) -> io::Result<bool> {
    let found = match file(socket) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    // An earlier version has made a socket without a note, and it may live on.
    Ok(fs::read_to_string(note(socket)).map_or(true, |noted| noted == found))
}

fn note(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".file");
    PathBuf::from(name)
}

/// Device and inode.
fn file(path: &Path) -> io::Result<String> {
    let file = fs::symlink_metadata(path)?;
    Ok(format!("{} {}\n", file.dev(), file.ino()))
}
