//! A file of the node's owner: read, checked for who may have written or read it, and
//! noticed when it changes. What stands in it is the reader's business.

use std::convert::Infallible;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::unistd::Uid;

/// How often a file is looked at. An owner who has granted something waits so long.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Permission bits by which others than the owner may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Those by which others may do anything.
const OPEN_TO_OTHERS: u32 = 0o077;

/// What a file has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Most bytes that it may have.
    pub max_bytes: usize,
    /// Whether others may not even read it.
    pub is_secret: bool,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The file system refused.
    #[error("cannot be read")]
    Io(#[source] io::Error),
    /// It is a directory, a pipe or the like.
    #[error("is not an ordinary file")]
    NotAFile,
    /// Another user than root owns it.
    #[error("belongs to the user {owner}; it must belong to root")]
    NotRoots { owner: u32 },
    /// Others than its owner may write it.
    #[error("can be written by others than root (mode {mode:04o}); chmod go-w")]
    WritableByOthers { mode: u32 },
    /// It is secret, and not its owner's alone.
    #[error("is open to others than root (mode {mode:04o}); chmod go=")]
    OpenToOthers { mode: u32 },
    /// It is larger than it may be.
    #[error("has more than {max_bytes} bytes")]
    TooLarge { max_bytes: usize },
    /// It is no text.
    #[error("is not UTF-8")]
    NotText,
}

/// Tells one state of the file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// There is no file.
    Absent,
    /// It cannot be looked at.
    Unreadable,
    /// Device, inode, size, and when content or permissions changed.
    Present([i128; 6]),
}

impl Stamp {
    /// The state of the file now. A link is followed: what it leads to counts.
    pub(crate) fn of(path: &Path) -> Stamp {
        match std::fs::metadata(path) {
            Ok(found) => Stamp::Present([
                found.dev().into(),
                found.ino().into(),
                found.size().into(),
                nanos(found.mtime(), found.mtime_nsec()),
                nanos(found.ctime(), found.ctime_nsec()),
                found.mode().into(),
            ]),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Stamp::Absent,
            Err(_) => Stamp::Unreadable,
        }
    }
}

fn nanos(seconds: i64, nanos: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
}

/// Has somebody look at a file, `what`, again and again.
pub(crate) async fn keep_looking(
    what: &str,
    look: impl Fn() + Clone + Send + 'static,
) -> Infallible {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        // A disk that hangs holds up this look and nothing else.
        if let Err(error) = blocking::spawn(look.clone()).await {
            tracing::error!(%error, "{what} cannot be looked at");
        }
    }
}

/// The text of a file, if there is one.
pub(crate) fn read_text(path: &Path, rules: Rules) -> Result<Option<String>, FileError> {
    let bytes = read(path, rules)?;
    let text = bytes.map(|bytes| String::from_utf8(bytes).map_err(|_| FileError::NotText));
    text.transpose()
}

/// What is in a file, if there is one. What is checked is what was opened, so that no
/// other file takes its place in between.
pub(crate) fn read(path: &Path, rules: Rules) -> Result<Option<Vec<u8>>, FileError> {
    // A pipe does not keep us waiting for who writes to it.
    let opened = File::options()
        .read(true)
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits())
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::Io(error)),
    };
    check(&file.metadata().map_err(FileError::Io)?, rules)?;
    let Rules { max_bytes, .. } = rules;
    let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(FileError::Io)?;
    if bytes.len() > max_bytes {
        return Err(FileError::TooLarge { max_bytes });
    }
    Ok(Some(bytes))
}

fn check(found: &Metadata, rules: Rules) -> Result<(), FileError> {
    if !found.is_file() {
        return Err(FileError::NotAFile);
    }
    // Where this process is not root, as in tests, its own user is as good.
    let owner = found.uid();
    if owner != 0 && owner != Uid::effective().as_raw() {
        return Err(FileError::NotRoots { owner });
    }
    let mode = found.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(FileError::WritableByOthers { mode });
    }
    if rules.is_secret && mode & OPEN_TO_OTHERS != 0 {
        return Err(FileError::OpenToOthers { mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const RULES: Rules = Rules {
        max_bytes: 1000,
        is_secret: false,
    };

    #[test]
    fn a_file_that_is_not_there_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert_eq!(read_text(&path, RULES).unwrap(), None);
        assert_eq!(Stamp::of(&path), Stamp::Absent);
    }

    #[test]
    fn a_file_that_others_may_write_or_know_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "x").unwrap();
        for (mode, good, good_for_secrets) in [
            (0o600, true, true),
            (0o400, true, true),
            (0o640, true, false),
            (0o604, true, false),
            (0o601, true, false),
            (0o644, true, false),
            (0o664, false, false),
            (0o646, false, false),
            (0o666, false, false),
        ] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            for (is_secret, good) in [(false, good), (true, good_for_secrets)] {
                let rules = Rules { is_secret, ..RULES };
                assert_eq!(read(&path, rules).is_ok(), good, "{mode:o} {is_secret}");
            }
        }
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        if !Uid::effective().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "x").unwrap();
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        let error = read_text(&path, RULES).unwrap_err();
        assert!(matches!(error, FileError::NotRoots { owner: 12345 }));
    }

    #[test]
    fn what_is_no_bounded_text_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert!(matches!(
            read_text(directory.path(), RULES),
            Err(FileError::NotAFile)
        ));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        assert!(matches!(read_text(&path, RULES), Err(FileError::NotAFile)));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, [0xff]).unwrap();
        assert!(matches!(read_text(&path, RULES), Err(FileError::NotText)));
        std::fs::write(&path, vec![b'#'; RULES.max_bytes + 1]).unwrap();
        assert!(matches!(
            read_text(&path, RULES),
            Err(FileError::TooLarge { .. })
        ));
        std::fs::write(&path, vec![b'#'; RULES.max_bytes]).unwrap();
        assert!(read_text(&path, RULES).is_ok());
    }

    #[test]
    fn every_change_of_the_file_changes_its_stamp() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut stamps = vec![Stamp::of(&path)];
        let mut changed = |what: &str| {
            let stamp = Stamp::of(&path);
            assert_ne!(stamps.last(), Some(&stamp), "{what}");
            stamps.push(stamp);
        };
        std::fs::write(&path, "a").unwrap();
        changed("made");
        std::fs::write(&path, "ab").unwrap();
        changed("written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        changed("made writable");
        let other = directory.path().join("other");
        std::fs::write(&other, "ab").unwrap();
        std::fs::rename(&other, &path).unwrap();
        changed("replaced");
        std::fs::remove_file(&path).unwrap();
        changed("removed");
        let target = directory.path().join("target");
        std::fs::write(&target, "").unwrap();
        symlink(&target, &path).unwrap();
        changed("made a link");
    }
}
