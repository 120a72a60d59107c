//! Against a real file system.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use nix::fcntl::AT_FDCWD;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::mkdirat;
use nix::unistd::symlinkat;

use super::*;

/// In the environment of a run of this program that has few descriptors.
const FEW: &str = "BULKHEAD_TEST_WITH_FEW_DESCRIPTORS";

fn open(parent: impl AsFd, name: impl AsRef<Path>) -> OwnedFd {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    openat(parent, name.as_ref(), flags, Mode::empty()).unwrap()
}

/// In a process of its own: the limit is one of the whole process.
#[test]
fn a_tree_deeper_than_there_are_descriptors_is_removed() {
    if std::env::var_os(FEW).is_none() {
        let name = "tests::a_tree_deeper_than_there_are_descriptors_is_removed";
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
    let top = open(AT_FDCWD, directory.path());
    // By descriptor, because the path would be too long.
    let mut level = top.try_clone().unwrap();
    for _ in 0..2_000 {
        for name in ["directory", "other"] {
            mkdirat(&level, name, Mode::S_IRWXU).unwrap();
        }
        symlinkat("/etc", &level, "link").unwrap();
        level = open(&level, "directory");
    }
    remove_all(&top, |_| Ok(false)).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn without_openat2_no_link_is_followed_and_no_mount_entered_either() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("directory")).unwrap();
    symlink("directory", directory.path().join("link")).unwrap();
    let top = open(AT_FDCWD, directory.path());
    assert!(open_on_the_mount(&top, c"directory").is_ok());
    assert!(open_on_the_mount(&top, c"link").is_err());
    let root = open(AT_FDCWD, "/");
    assert_eq!(open_on_the_mount(&root, c"proc").err(), Some(Errno::EXDEV));
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
    let left = remove_all(&open(AT_FDCWD, directory.path()), refused).unwrap_err();
    assert_eq!(left.source.to_string(), "seven");
    assert_eq!(left.name, "7");
    let left = fs::read_dir(directory.path()).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["7", "8"]);
    assert!(path("8/a/b/c").exists() && other.path().join("precious").exists());
}
