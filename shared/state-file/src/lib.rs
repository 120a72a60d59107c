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
use replacement::{WRITER_TRIES, check_type, replace, sync_directory, temporary};
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
    tries: u32,
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
            tries: WRITER_TRIES,
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
    /// [`StateFile::without_sync`] was chosen, and up to 2 s for other writers.
    ///
    /// # Errors
    /// When the file system refuses, another writer does not end, or the file would
    /// be larger than it may be; the old content is then still there.
    pub fn save<T: Serialize>(&self, content: &T) -> Result<(), StateFileError> {
        let io_error = |source| StateFileError::Io {
            action: "write",
            path: self.path.clone(),
            source,
        };
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
        replace(&self.path, &bytes, self.sync, self.tries, |_file| Ok(())).map_err(io_error)
    }

    /// Reads the content; `None` when there is no file or it has another version.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged: then it is renamed, with `.damaged` at
    /// its end. The caller reports it and goes on as if there were none.
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
            Err(source) => {
                return Err(StateFileError::Io {
                    action: "read",
                    path: self.path.clone(),
                    source,
                });
            }
        };
        let envelope: Envelope<'_> =
            serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if envelope.version != self.version {
            tracing::warn!(
                path = %self.path.display(),
                version = envelope.version,
                "a state file of another version is not used"
            );
            return Ok(None);
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
        let io_error = |path: &Path, source| StateFileError::Io {
            action: "remove",
            path: path.to_owned(),
            source,
        };
        let mut was_there = false;
        for path in [temporary(&self.path), self.path.clone()] {
            match std::fs::remove_file(&path) {
                Ok(()) => was_there = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io_error(&path, error)),
            }
        }
        match was_there && self.sync {
            true => sync_directory(&self.path).map_err(|error| io_error(&self.path, error)),
            false => Ok(()),
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
    check_type(&file)?;
    let too_large = || io::Error::other(format!("it is larger than {limit} bytes"));
    // So that nothing is read of what is far too large.
    if file.metadata()?.len() > limit {
        return Err(too_large());
    }
    let mut text = String::new();
    file.take(limit + 1).read_to_string(&mut text)?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > limit {
        return Err(too_large());
    }
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
    fn several_writers_at_once_never_mix_what_they_write() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = StateFile::new(directory.path().join("s.json"), 1).without_sync();
        // On a machine with much to do nobody is to give up.
        file.tries = u32::MAX;
        file.save(&Vec::<u64>::new()).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4_u64 {
                let file = file.clone();
                scope.spawn(move || {
                    for round in 0..50 {
                        let content = vec![writer; 1000 * (round % 3)];
                        file.save(&content).unwrap();
                        let read = file.load::<Vec<u64>>().unwrap().unwrap();
                        assert!(read.windows(2).all(|pair| pair[0] == pair[1]));
                    }
                });
            }
        });
        assert_eq!(names(directory.path()), ["s.json"]);
    }

    #[test]
    fn what_is_no_file_in_the_place_of_one_is_an_error_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("s.json"), 1);
        let (left, other) = (
            directory.path().join("s.json.new"),
            directory.path().join("other"),
        );
        std::fs::write(&other, "untouched").unwrap();
        let mode = nix::sys::stat::Mode::S_IRWXU;
        let things: [(&str, &dyn Fn()); 4] = [
            ("link", &|| {
                std::os::unix::fs::symlink(&other, &left).unwrap()
            }),
            ("dangling link", &|| {
                std::os::unix::fs::symlink(directory.path().join("new"), &left).unwrap();
            }),
            ("FIFO", &|| nix::unistd::mkfifo(&left, mode).unwrap()),
            ("socket", &|| drop(UnixListener::bind(&left).unwrap())),
        ];
        for (name, make) in things {
            make();
            let error = file.save(&1_u32).unwrap_err();
            let StateFileError::Io { source, .. } = error else {
                panic!("{name}: {error:?}");
            };
            assert!(
                source.to_string().contains("s.json.new: "),
                "{name}: {source}"
            );
            file.remove().unwrap();
            assert_eq!(names(directory.path()), ["other"], "{name}");
        }
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "untouched");
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
    fn a_writer_that_hangs_hangs_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = StateFile::new(directory.path().join("s.json"), 1);
        file.save(&1_u32).unwrap();
        let other = File::create(directory.path().join("s.json.new")).unwrap();
        other.lock().unwrap();
        file.tries = 2;
        let error = file.save(&2_u32).unwrap_err();
        let StateFileError::Io { source, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(source.kind(), io::ErrorKind::TimedOut);
        assert_eq!(file.load::<u32>().unwrap(), Some(1));
        drop(other);
        file.save(&3_u32).unwrap();
        assert_eq!(file.load::<u32>().unwrap(), Some(3));
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
    fn another_version_counts_as_absent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.json");
        StateFile::new(&path, 1).save(&1_u32).unwrap();
        assert_eq!(StateFile::new(&path, 2).load::<u32>().unwrap(), None);
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
        let edited = String::from_utf8(whole).unwrap().replace("abc", "abd");
        std::fs::write(file.path(), edited).unwrap();
        assert!(matches!(
            file.load::<String>(),
            Err(StateFileError::Damaged { .. })
        ));
    }
}
