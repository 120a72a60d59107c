//! Remembers for the next run that a file is being read. Who wrote it may have been broken
//! into, and have made it such that its reader is killed for its memory, run after run: even
//! a small one may become large in memory.

use std::fs::{File, remove_file};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// So many runs in a row may end while they read a file, before it is discarded. Kills at
/// random instants do not hit these milliseconds three times in a row.
pub(crate) const ATTEMPTS: u64 = 3;

/// A file is being read, for as long as this lives.
pub(crate) struct Attempt {
    /// Has a byte for each run that has begun to read.
    mark: PathBuf,
}

impl Attempt {
    /// Begins to read the file; `None` when it is to be discarded. Where nothing can be
    /// written, nothing is remembered.
    pub(crate) fn begin(file: &Path) -> Option<Attempt> {
        let mut mark = file.as_os_str().to_owned();
        mark.push(".reading");
        let attempt = Attempt { mark: mark.into() };
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let opened = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(flags.bits())
            .open(&attempt.mark);
        let Ok(mut opened) = opened else {
            // What cannot be counted has the name.
            let is_there = attempt.mark.symlink_metadata().is_ok();
            return (!is_there).then_some(attempt);
        };
        let counts = |found: std::fs::Metadata| found.is_file() && found.len() < ATTEMPTS;
        if !opened.metadata().is_ok_and(counts) {
            return None;
        }
        drop(opened.write_all(b"x"));
        Some(attempt)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        drop(remove_file(&self.mark));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::sys::stat::Mode;

    use super::*;
    use crate::{StateFile, StateFileError};

    fn saved(directory: &Path) -> StateFile {
        let file = StateFile::new(directory.join("s.json"), 1).discarded_after_attempts();
        file.save(&1_u32).unwrap();
        file
    }

    #[test]
    fn a_file_that_three_runs_did_not_survive_counts_as_lost_until_the_next_save() {
        let directory = tempfile::tempdir().unwrap();
        let file = saved(directory.path());
        for killed in 0..ATTEMPTS {
            let load = || file.load::<u32>().unwrap();
            if killed == 1 {
                // One that ends in another way counts no more.
                assert_eq!(load(), Some(1));
                std::mem::forget(Attempt::begin(file.path()).unwrap());
            }
            std::mem::forget(Attempt::begin(file.path()).unwrap());
        }
        // A run that ends before it has saved anything leaves the loss to the next one.
        for _run in 0..2 {
            let refused = file.load::<u32>().unwrap_err();
            assert!(matches!(refused, StateFileError::Damaged { .. }));
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
        file.save(&2_u32).unwrap();
        assert_eq!(file.load::<u32>().unwrap(), Some(2));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_hinders_the_count_has_the_file_discarded() {
        let ways: [&dyn Fn(&Path); 3] = [
            &|mark| nix::unistd::mkfifo(mark, Mode::S_IRWXU).unwrap(),
            &|mark| std::os::unix::fs::symlink("s.json", mark).unwrap(),
            &|mark| fs::create_dir_all(mark.join("in-the-way")).unwrap(),
        ];
        for (number, hinder) in ways.into_iter().enumerate() {
            let directory = tempfile::tempdir().unwrap();
            let file = saved(directory.path());
            hinder(&directory.path().join("s.json.reading"));
            assert!(file.load::<u32>().is_err(), "{number}");
            assert_eq!(file.path().metadata().unwrap().len(), 0, "{number}");
        }
    }
}
