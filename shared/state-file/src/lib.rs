//! Small state files that survive a SIGKILL at any instant.
//!
//! A file is a JSON envelope with a version and a checksum, written to a
//! temporary file beside it and renamed over it. A file is a cache of something
//! that can be found out again: deleting it at any time is safe, and one that
//! cannot be read is reported and treated as absent.
//!
//! [`StateFile`] reads and writes, and blocks for that. Who has something else to do
//! meanwhile has a [`Saver`] write.

mod error;
mod replacement;
mod saver;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

pub use error::{MAX_STATE_FILE_BYTES, StateFileError};
pub use replacement::{UNFINISHED, write_atomically};
use replacement::{remove, replace, sync_directory, temporary};
pub use saver::{NotSaved, SAVE_MAY_TAKE, Saver, Saving, Writer};

/// What the name of a damaged file that was set aside ends with.
const DAMAGED: &str = ".damaged";

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    version: u32,
    checksum: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

/// A state file of one type at one path.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
    version: u32,
    sync: bool,
    limit: u64,
}

impl StateFile {
    /// The file at `path`, whose content has the format `version`. Nothing is
    /// opened yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, version: u32) -> StateFile {
        StateFile {
            path: path.into(),
            version,
            sync: true,
            limit: MAX_STATE_FILE_BYTES,
        }
    }

    /// For one of many files: no more than so many bytes are written or read.
    #[must_use]
    pub fn at_most(mut self, bytes: u64) -> StateFile {
        self.limit = bytes.min(MAX_STATE_FILE_BYTES);
        self
    }

    /// For content that is worthless once the machine has crashed: [`save`] does
    /// not wait for the disk. It survives a SIGKILL of any process all the same.
    ///
    /// [`save`]: StateFile::save
    #[must_use]
    pub fn without_sync(mut self) -> StateFile {
        self.sync = false;
        self
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `content`, atomically: after a crash either the old or the new
    /// content is there. Blocks for the duration of two fsyncs, unless
    /// [`StateFile::without_sync`] was chosen. One writer at a time.
    ///
    /// # Errors
    /// When the file system refuses, or the file would be larger than it may be; the old
    /// content is then still there.
    pub fn save<T: Serialize>(&self, content: &T) -> Result<(), StateFileError> {
        let io_error = |source| self.io_error("write", source);
        let raw = to_raw_value(content).map_err(|error| io_error(error.into()))?;
        let envelope = Envelope {
            version: self.version,
            checksum: checksum(raw.get()),
            content: &raw,
        };
        let bytes = serde_json::to_vec(&envelope).map_err(|error| io_error(error.into()))?;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if length > self.limit {
            return Err(StateFileError::TooLarge {
                path: self.path.clone(),
                bytes: length,
                limit: self.limit,
            });
        }
        replace(&self.path, &bytes, self.sync, |_file| Ok(())).map_err(io_error)
    }

    /// Reads the content; `None` when there is no file.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged or of another version: then it is renamed,
    /// with `.damaged` at its end. The caller reports it and goes on as if there were none.
    pub fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, StateFileError> {
        let damaged = |reason: String| {
            self.set_aside();
            StateFileError::Damaged {
                path: self.path.clone(),
                reason,
            }
        };
        let text = match read(&self.path, self.limit) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(self.io_error("read", source)),
        };
        let envelope: Envelope<'_> =
            serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if envelope.version != self.version {
            return Err(damaged(format!("it is of version {}", envelope.version)));
        }
        if envelope.checksum != checksum(envelope.content.get()) {
            return Err(damaged("its checksum does not match".to_owned()));
        }
        serde_json::from_str(envelope.content.get())
            .map(Some)
            .map_err(|error| damaged(error.to_string()))
    }

    /// Out of the way of the next run, for people to look at.
    fn set_aside(&self) {
        let mut aside = self.path.as_os_str().to_owned();
        aside.push(DAMAGED);
        if let Err(error) = std::fs::rename(&self.path, aside) {
            tracing::debug!(%error, path = %self.path.display(), "cannot set a damaged file aside");
        }
    }

    /// Removes the file, and what a writer has left behind that was killed; absent is fine.
    /// Blocks for an fsync if there was anything, unless [`StateFile::without_sync`] was
    /// chosen.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn remove(&self) -> Result<(), StateFileError> {
        let removed = || {
            let was_there = remove(&temporary(&self.path))? | remove(&self.path)?;
            match was_there && self.sync {
                true => sync_directory(&self.path),
                false => Ok(()),
            }
        };
        removed().map_err(|source| self.io_error("remove", source))
    }

    fn io_error(&self, action: &'static str, source: io::Error) -> StateFileError {
        StateFileError::Io {
            action,
            path: self.path.clone(),
            source,
        }
    }
}

/// All of a file, up to its bound. Never waits for what is no file, and follows no link:
/// none is made here, and what another leads to is none of ours.
fn read(path: &Path, limit: u64) -> io::Result<String> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if metadata.len() > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    let mut text = String::new();
    file.take(limit).read_to_string(&mut text)?;
    Ok(text)
}

/// FNV-1a: it guards against torn and edited files, not against an attacker,
/// who could write a fitting checksum anyway.
fn checksum(content: &str) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in content.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_is_saved_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("s.json"), 1);
        assert_eq!(file.load::<Vec<u32>>().unwrap(), None);
        file.save(&vec![1, 2, 3]).unwrap();
        file.save(&vec![4]).unwrap();
        assert_eq!(file.load::<Vec<u32>>().unwrap(), Some(vec![4]));
        let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file stays behind");
        file.remove().unwrap();
        file.remove().unwrap();
        assert_eq!(file.load::<Vec<u32>>().unwrap(), None);
    }

    #[test]
    fn hostile_files_are_refused_and_cost_little() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("s.json"), 1).at_most(1000);
        let large = vec!["x".repeat(2000)];
        let refused = file.save(&large).unwrap_err().to_string();
        assert!(refused.contains("more than the 1000"), "{refused}");
        // As somebody else would write them.
        StateFile::new(file.path(), 1).save(&large).unwrap();
        let error = file.load::<Vec<String>>().unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(cause, "it is larger than 1000 bytes");

        let file = StateFile::new(file.path(), 1);
        // Sparse: 100 MB take no room on disk, and must take none in memory.
        File::create(file.path())
            .unwrap()
            .set_len(100_000_000)
            .unwrap();
        assert!(file.load::<Vec<String>>().is_err());
        for nesting in ["[", "{\"a\":"] {
            let content = nesting.repeat(1_000_000);
            let whole = content.clone() + &"]".repeat(1_000_000);
            for content in [content, whole] {
                let sum = checksum(&content);
                let text =
                    format!("{{\"version\":1,\"checksum\":\"{sum}\",\"content\":{content}}}");
                std::fs::write(file.path(), text).unwrap();
                let loaded = file.load::<serde_json::Value>();
                assert!(matches!(loaded, Err(StateFileError::Damaged { .. })));
            }
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn what_a_killed_writer_has_left_is_gone_with_the_next_save_or_removal() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("s.json"), 1);
        let left = directory.path().join("s.json.new");
        std::fs::write(&left, "x".repeat(10_000)).unwrap();
        assert_eq!(file.load::<u32>().unwrap(), None);
        file.save(&1_u32).unwrap();
        assert_eq!(file.load::<u32>().unwrap(), Some(1));
        assert_eq!(names(directory.path()), ["s.json"]);
        file.save(&2_u32).unwrap();
        let mode = std::fs::metadata(file.path()).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600, "{mode:o}");
        std::fs::write(&left, "x").unwrap();
        file.remove().unwrap();
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn a_save_that_fails_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("s.json"), 1);
        // Nothing can be renamed over a directory that has something in it.
        std::fs::create_dir_all(directory.path().join("s.json/x")).unwrap();
        assert!(file.save(&1_u32).is_err());
        assert_eq!(names(directory.path()), ["s.json"]);
    }

    #[test]
    fn nothing_is_written_through_what_is_in_the_place_of_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("s.json"), 1);
        let (left, other) = (
            directory.path().join("s.json.new"),
            directory.path().join("other"),
        );
        std::fs::write(&other, "untouched").unwrap();
        let mode = nix::sys::stat::Mode::S_IRWXU;
        let things: [(&str, &dyn Fn()); 3] = [
            ("link", &|| {
                std::os::unix::fs::symlink(&other, &left).unwrap()
            }),
            ("FIFO", &|| nix::unistd::mkfifo(&left, mode).unwrap()),
            ("socket", &|| drop(UnixListener::bind(&left).unwrap())),
        ];
        for (name, make) in things {
            make();
            file.save(&1_u32).unwrap();
            assert_eq!(file.load::<u32>().unwrap(), Some(1), "{name}");
            file.remove().unwrap();
            assert_eq!(names(directory.path()), ["other"], "{name}");
        }
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "untouched");
        std::fs::create_dir(&left).unwrap();
        let error = file.save(&1_u32).unwrap_err();
        let StateFileError::Io { source, .. } = error else {
            panic!("{error:?}");
        };
        assert!(source.to_string().contains("s.json.new: "), "{source}");
        std::fs::remove_dir(&left).unwrap();
        nix::unistd::mkfifo(file.path(), mode).unwrap();
        assert!(matches!(file.load::<u32>(), Err(StateFileError::Io { .. })));
        // Nor is a link to one read, or written through.
        let elsewhere = StateFile::new(&other, 1);
        elsewhere.save(&7_u32).unwrap();
        file.remove().unwrap();
        std::os::unix::fs::symlink(&other, file.path()).unwrap();
        assert!(matches!(file.load::<u32>(), Err(StateFileError::Io { .. })));
        // And then it is one again.
        file.save(&2_u32).unwrap();
        assert_eq!(elsewhere.load::<u32>().unwrap(), Some(7));
        assert_eq!(file.load::<u32>().unwrap(), Some(2));
    }

    #[test]
    fn a_killed_writer_that_hangs_in_the_kernel_changes_no_later_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("s.json"), 1);
        let mut hangs = File::create(directory.path().join("s.json.new")).unwrap();
        file.save(&2_u32).unwrap();
        io::Write::write_all(&mut hangs, b"late").unwrap();
        assert_eq!(file.load::<u32>().unwrap(), Some(2));
    }

    #[test]
    fn who_may_read_a_file_is_settled_before_anything_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        // As a writer has left it that was killed.
        std::fs::write(directory.path().join("f.new"), "left over").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        let prepare = |file: &File| {
            assert_eq!(file.metadata()?.len(), 0);
            file.set_permissions(std::fs::Permissions::from_mode(0o640))
        };
        write_atomically(&path, b"new", prepare).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(mode(&path), 0o640);
        let refused = |_: &File| Err(io::Error::other("no such owner"));
        assert!(write_atomically(&path, b"newer", refused).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names(directory.path()), ["f"]);
    }

    #[test]
    fn without_sync_the_content_is_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("s.json"), 1);
        file.clone().without_sync().save(&7_u32).unwrap();
        assert_eq!(file.load::<u32>().unwrap(), Some(7));
    }

    #[test]
    fn what_nobody_would_read_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("s.json"), 1).without_sync();
        file.save(&String::new()).unwrap();
        let overhead = std::fs::metadata(file.path()).unwrap().len();
        let room = usize::try_from(MAX_STATE_FILE_BYTES - overhead).unwrap();
        let error = file.save(&"x".repeat(room + 1)).unwrap_err();
        let StateFileError::TooLarge { bytes, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(bytes, MAX_STATE_FILE_BYTES + 1);
        assert_eq!(file.load::<String>().unwrap().as_deref(), Some(""));
        assert_eq!(names(directory.path()), ["s.json"]);
    }

    #[test]
    fn a_damaged_file_is_an_error_never_a_value() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("s.json"), 1);
        file.save(&"abc".to_owned()).unwrap();
        let whole = std::fs::read(file.path()).unwrap();
        for length in 0..whole.len() {
            std::fs::write(file.path(), &whole[..length]).unwrap();
            assert!(file.load::<String>().is_err(), "cut to {length} bytes");
        }
        let whole = String::from_utf8(whole).unwrap();
        for (from, to) in [("abc", "abd"), ("\"version\":1", "\"version\":2")] {
            std::fs::write(file.path(), whole.replace(from, to)).unwrap();
            assert!(matches!(
                file.load::<String>(),
                Err(StateFileError::Damaged { .. })
            ));
            // It is set aside.
            assert_eq!(file.load::<String>().unwrap(), None);
            assert_eq!(names(directory.path()), ["s.json.damaged"]);
        }
    }
}
