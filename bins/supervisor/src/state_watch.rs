//! How much the processes keep in their state directories, so that none of them fills the
//! node's disk. It is looked at from outside every few seconds, since file systems seldom
//! have quotas.
//!
//! A process of ours keeps a few files of bounded size and replaces them whole, so only one
//! that is broken, or was broken into, goes beyond [`ProcessRow::state_max_bytes`]. It is
//! killed, and what is not its own is removed. pod-worker-pool has what the rest of the disk
//! allows, being root, so there it is only said.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::libc;
use node_config::NodeConfig;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::{mpsc, watch};
use topology::{Identities, Process, ProcessRow, row};

use crate::command::Command;

/// From one look to the next: a disk takes some gigabytes in this time.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long a process that was killed has until it is gone.
const END: Duration = Duration::from_secs(1);

/// Files and directories that are counted; more are too many whatever is in them.
pub(crate) const MAX_ENTRIES: u32 = 20_000;

/// Directories in each other that are looked into; deeper ones are too deep.
const MAX_DEPTH: u32 = 8;

/// What is in a state directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kept {
    /// What it takes on the disk.
    bytes: u64,
    entries: u32,
    /// Whether there was more than is counted.
    is_countless: bool,
}

impl Kept {
    fn is_too_much(self, row: &ProcessRow) -> bool {
        self.is_countless || self.bytes > row.state_max_bytes()
    }

    /// For people.
    fn told(self, row: &ProcessRow) -> String {
        let process = row.process;
        let most = row.state_max_bytes() >> 20;
        match self.is_countless {
            true => format!(
                "{process} keeps more than {MAX_ENTRIES} files, or too deep a tree, in its state directory"
            ),
            false => format!(
                "{process} keeps {} MiB in its state directory, more than its {most} MiB",
                self.bytes >> 20
            ),
        }
    }
}

/// The look-out for state directories.
#[derive(Debug)]
pub(crate) struct StateWatch {
    /// Each process's directory and user.
    directories: BTreeMap<Process, (PathBuf, u32)>,
}

impl StateWatch {
    pub(crate) fn new(config: &NodeConfig, identities: &Identities) -> StateWatch {
        let all = Process::ALL.into_iter().filter(|it| config.runs(*it));
        let directory = |process| {
            let directory = config.directories.state(process);
            (process, (directory, identities.uid(process)))
        };
        StateWatch {
            directories: all.map(directory).collect(),
        }
    }

    /// Looks from time to time, for ever; tells what is too much, and has it ended. A disk
    /// that hangs holds up nothing else.
    pub(crate) async fn run(
        self,
        told: watch::Sender<Vec<String>>,
        main_loop: mpsc::Sender<Command>,
    ) {
        let own = Arc::new(self);
        loop {
            let looking = Arc::clone(&own);
            let found = tokio::task::spawn_blocking(move || looking.look()).await;
            let found = found.unwrap_or_default();
            let texts: Vec<String> = found.iter().map(|(_, text)| text.clone()).collect();
            told.send_if_modified(|before| {
                let is_new = *before != texts;
                *before = texts;
                is_new
            });
            for (process, text) in found {
                own.end(process, &text, &main_loop).await;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Who keeps too much, in words.
    fn look(&self) -> Vec<(Process, String)> {
        let mut found = Vec::new();
        for (&process, (directory, _)) in &self.directories {
            let row = row(process);
            match kept(directory) {
                Ok(kept) if kept.is_too_much(row) => found.push((process, kept.told(row))),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(%process, %error, "cannot see what it keeps in its state directory");
                }
            }
        }
        found
    }

    /// Ends who keeps too much, and removes what is not its own.
    async fn end(
        self: &Arc<Self>,
        process: Process,
        text: &str,
        main_loop: &mpsc::Sender<Command>,
    ) {
        if row(process).root {
            return;
        }
        tracing::error!(%process, "{text}: killing it, and removing what is not its own");
        if main_loop
            .send(Command::StateTooLarge(process))
            .await
            .is_err()
        {
            return;
        }
        tokio::time::sleep(END).await;
        let own = Arc::clone(self);
        let cleared = tokio::task::spawn_blocking(move || {
            let found = own.directories.get(&process);
            found.map_or(Ok(()), |(directory, uid)| {
                clear(directory, &Own::of(row(process), *uid))
            })
        });
        if let Ok(Err(error)) = cleared.await {
            tracing::error!(%process, %error, "cannot remove what it has in its state directory");
        }
    }
}

/// What is in a directory, which its owner may change meanwhile: no link is followed.
fn kept(directory: &Path) -> io::Result<Kept> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty())?;
    let mut kept = Kept::default();
    count(&opened, MAX_DEPTH, &mut kept)?;
    Ok(kept)
}

fn count(directory: &OwnedFd, depth: u32, kept: &mut Kept) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        kept.entries += 1;
        if kept.entries > MAX_ENTRIES {
            kept.is_countless = true;
            return Ok(());
        }
        let found = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            found => found?,
        };
        kept.bytes += u64::try_from(found.st_blocks).unwrap_or(0) * 512;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            continue;
        }
        if depth == 0 {
            kept.is_countless = true;
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(directory, name, flags, Mode::empty()) {
            // It is gone, or something else by now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            inner => count(&inner?, depth - 1, kept)?,
        }
        if kept.is_countless {
            return Ok(());
        }
    }
    Ok(())
}

/// Removes all but a process's own state files, and empties those that are larger than it
/// reads: it then takes note that it has lost what was in them.
fn clear(directory: &Path, own: &Own<'_>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty())?;
    let cleared = tree_removal::remove_all(&opened, |name| {
        Ok(own.is_named(name) && is_kept(&directory.join(name), own)?)
    });
    cleared.map_err(|left| left.source)
}

/// The state files of a process.
struct Own<'a> {
    names: &'a [&'a str],
    /// The size of the largest that it reads.
    max_bytes: u64,
    uid: u32,
}

impl Own<'_> {
    fn of(row: &ProcessRow, uid: u32) -> Own<'static> {
        Own {
            names: row.state_files(),
            max_bytes: row.state_file_max_bytes(),
            uid,
        }
    }

    /// A state file, or the one that a writer replaces it by.
    fn is_named(&self, name: &OsStr) -> bool {
        let name = name.to_string_lossy();
        self.names
            .contains(&name.strip_suffix(".new").unwrap_or(&name))
    }
}

/// Whether what has the name of a state file is one. One that is too large is empty
/// afterwards.
fn is_kept(path: &Path, own: &Own<'_>) -> io::Result<bool> {
    let opened = fs::File::options()
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    // A link, a directory, a FIFO.
    let Ok(file) = opened else {
        return Ok(false);
    };
    let found = file.metadata()?;
    // By another name it may be a file of somebody else.
    if !found.is_file() || found.uid() != own.uid || found.nlink() != 1 {
        return Ok(false);
    }
    if found.len() > own.max_bytes {
        file.set_len(0)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const MAX_BYTES: u64 = 1000;

    /// Of the user of this test, or of the next.
    fn own<'a>(names: &'a [&'a str], other_user: bool) -> Own<'a> {
        Own {
            names,
            max_bytes: MAX_BYTES,
            uid: nix::unistd::getuid().as_raw() + u32::from(other_user),
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_below_is_counted_and_no_link_followed() {
        let directory = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::write(other.path().join("large"), vec![1; 1 << 20]).unwrap();
        assert_eq!(kept(path).unwrap(), Kept::default());
        fs::write(path.join("a"), vec![1; 100_000]).unwrap();
        fs::create_dir_all(path.join("d/e")).unwrap();
        fs::write(path.join("d/e/b"), vec![1; 50_000]).unwrap();
        symlink(other.path(), path.join("link")).unwrap();
        symlink(other.path(), path.join("d/link")).unwrap();
        // Sparse: it takes no room.
        fs::File::create(path.join("s"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let found = kept(path).unwrap();
        assert_eq!((found.entries, found.is_countless), (7, false));
        assert!((150_000..400_000).contains(&found.bytes), "{found:?}");
        assert!(kept(&path.join("link")).is_err(), "it is a link itself");
    }

    #[test]
    fn what_is_too_deep_or_too_many_to_count_is_too_much() {
        let directory = tempfile::tempdir().unwrap();
        let deep = vec!["d"; 1 + MAX_DEPTH as usize].join("/");
        fs::create_dir_all(directory.path().join(deep)).unwrap();
        let found = kept(directory.path()).unwrap();
        assert!(found.is_countless && found.is_too_much(row(Process::Prober)));
        let flat = tempfile::tempdir().unwrap();
        for number in 0..=MAX_ENTRIES {
            symlink("x", flat.path().join(number.to_string())).unwrap();
        }
        assert!(kept(flat.path()).unwrap().is_countless);
    }

    #[test]
    fn more_than_the_row_says_is_too_much() {
        for process in Process::ALL {
            let row = row(process);
            let kept = |bytes| Kept {
                bytes,
                ..Kept::default()
            };
            let most = row.state_max_bytes();
            assert!(!kept(most).is_too_much(row), "{process}");
            assert!(kept(most + 1).is_too_much(row), "{process}");
            let told = kept(most * 2).told(row);
            assert!(told.starts_with(process.name()), "{told}");
        }
    }

    #[test]
    fn state_files_stay_and_everything_else_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for name in ["own.json", "own.json.new", "other", "own.json.new.new"] {
            fs::write(path.join(name), "x").unwrap();
        }
        fs::create_dir_all(path.join("d/e")).unwrap();
        fs::write(path.join("d/e/f"), "x").unwrap();
        symlink("/etc", path.join("link")).unwrap();
        clear(path, &own(&["own.json"], false)).unwrap();
        assert_eq!(names(path), ["own.json", "own.json.new"]);
        assert_eq!(fs::read(path.join("own.json")).unwrap(), b"x");
        // Nothing is its own.
        clear(path, &own(&[], false)).unwrap();
        assert_eq!(names(path), [""; 0]);
    }

    #[test]
    fn a_state_file_that_nobody_would_read_is_emptied() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let file = path.join("own.json");
        for (length, left) in [(MAX_BYTES, MAX_BYTES), (MAX_BYTES + 1, 0)] {
            fs::File::create(&file).unwrap().set_len(length).unwrap();
            clear(path, &own(&["own.json"], false)).unwrap();
            assert_eq!(fs::metadata(&file).unwrap().len(), left, "{length}");
        }
    }

    #[test]
    fn no_file_of_somebody_else_is_emptied_by_another_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let (state, other) = (path.join("state"), path.join("precious"));
        fs::create_dir(&state).unwrap();
        let large = MAX_BYTES + 1;
        let file = state.join("own.json");
        let ways: [&dyn Fn(); 2] = [&|| fs::hard_link(&other, &file).unwrap(), &|| {
            symlink(&other, &file).unwrap()
        }];
        for way in ways {
            fs::File::create(&other).unwrap().set_len(large).unwrap();
            way();
            clear(&state, &own(&["own.json"], false)).unwrap();
            assert_eq!(names(&state), [""; 0]);
            assert_eq!(fs::metadata(&other).unwrap().len(), large);
        }
        fs::write(&file, "x").unwrap();
        clear(&state, &own(&["own.json"], true)).unwrap();
        assert_eq!(names(&state), [""; 0], "of another user");
    }
}
