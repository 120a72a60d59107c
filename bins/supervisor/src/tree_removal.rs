//! Removes what a process has in its state directory. Who was broken into may have made a
//! tree of any depth, so this takes four descriptors and no recursion: what lies deeper is
//! moved up first. No link is followed.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Removes all that is in a directory and not kept. What cannot be removed is left, the
/// rest goes, and the first refusal is the error.
pub(crate) fn remove_all(
    directory: &Path,
    is_kept: impl Fn(&OsStr) -> io::Result<bool>,
) -> io::Result<()> {
    let top = open(CWD, directory)?;
    let mut removal = Removal {
        top: &top,
        // So that nothing that is there already has the name.
        prefix: format!("removed-{:016x}-", rand::random::<u64>()),
        moved: 0,
        outcome: Ok(()),
    };
    removal.each_entry(&top, |removal, name| {
        match is_kept(OsStr::from_bytes(name.to_bytes())) {
            Ok(true) => Ok(()),
            Ok(false) => removal.remove_tree(name),
            Err(error) => Err(error),
        }
    });
    let mut number = 0;
    // Each may have others moved up.
    while number < removal.moved {
        let name = removal.name_at_top(number);
        let removed = removal.remove_tree(name.as_str());
        removal.note(removed);
        number += 1;
    }
    removal.outcome
}

struct Removal<'a> {
    top: &'a OwnedFd,
    prefix: String,
    /// How many directories have been moved up.
    moved: u64,
    outcome: io::Result<()>,
}

impl Removal<'_> {
    /// Removes an entry of the top with what is in it.
    fn remove_tree(&mut self, name: impl Arg + Copy) -> io::Result<()> {
        if remove(self.top, name)? {
            return Ok(());
        }
        let directory = open(self.top, name)?;
        self.each_entry(&directory, |removal, inner| {
            if !remove(&directory, inner)? {
                let moved = removal.name_at_top(removal.moved);
                rustix::fs::renameat(&directory, inner, removal.top, moved)?;
                removal.moved += 1;
            }
            Ok(())
        });
        Ok(rustix::fs::unlinkat(self.top, name, AtFlags::REMOVEDIR)?)
    }

    /// Does this with each entry of a directory, and takes note of what fails.
    fn each_entry(
        &mut self,
        directory: &OwnedFd,
        mut what: impl FnMut(&mut Self, &CStr) -> io::Result<()>,
    ) {
        let entries = match Dir::read_from(directory) {
            Ok(entries) => entries,
            Err(error) => return self.note(Err(error.into())),
        };
        for entry in entries {
            let done = match &entry {
                Ok(entry) if [c".", c".."].contains(&entry.file_name()) => Ok(()),
                Ok(entry) => what(self, entry.file_name()),
                Err(error) => Err((*error).into()),
            };
            self.note(done);
        }
    }

    fn name_at_top(&self, number: u64) -> String {
        format!("{}{number}", self.prefix)
    }

    fn note(&mut self, done: io::Result<()>) {
        if self.outcome.is_ok() {
            self.outcome = done;
        }
    }
}

fn open(parent: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

/// Removes what is no directory, or an empty one; tells whether it is gone.
fn remove(parent: &OwnedFd, name: impl Arg + Copy) -> io::Result<bool> {
    let removed = match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR),
        removed => removed,
    };
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use nix::sys::resource::{Resource, setrlimit};

    use super::*;

    /// In the environment of a run of this program that has few descriptors.
    const FEW: &str = "BULKHEAD_TEST_WITH_FEW_DESCRIPTORS";

    /// In a process of its own: the limit is one of the whole process.
    #[test]
    fn a_tree_deeper_than_there_are_descriptors_is_removed() {
        if std::env::var_os(FEW).is_none() {
            let name = "tree_removal::tests::a_tree_deeper_than_there_are_descriptors_is_removed";
            let mut own = Command::new(std::env::current_exe().unwrap());
            let output = own.args(["--exact", name]).env(FEW, "1").output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                output.status.success() && told.contains("1 passed"),
                "{told}"
            );
            return;
        }
        setrlimit(Resource::RLIMIT_NOFILE, 256, 256).unwrap();
        let directory = tempfile::tempdir().unwrap();
        // By descriptor, because the path would be too long.
        let mut level = open(CWD, directory.path()).unwrap();
        for _ in 0..2_000 {
            for name in ["directory", "other"] {
                rustix::fs::mkdirat(&level, name, Mode::RWXU).unwrap();
            }
            rustix::fs::symlinkat("/etc", &level, "link").unwrap();
            level = open(&level, "directory").unwrap();
        }
        remove_all(directory.path(), |_| Ok(false)).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_removed_keeps_nothing_else_and_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("precious"), "x").unwrap();
        let path = |name: &str| directory.path().join(name);
        for number in 0..50 {
            fs::create_dir_all(path(&format!("{number}/a/b/c"))).unwrap();
            symlink(other.path(), path(&format!("{number}/a/link"))).unwrap();
        }
        let refused = |name: &OsStr| match name.to_str() {
            Some("7") => Err(io::Error::other("seven")),
            name => Ok(name == Some("8")),
        };
        let error = remove_all(directory.path(), refused).unwrap_err();
        assert_eq!(error.to_string(), "seven");
        let left = fs::read_dir(directory.path()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["7", "8"]);
        assert!(path("8/a/b/c").exists() && other.path().join("precious").exists());
        let gone = remove_all(&path("none"), |_| Ok(false)).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
