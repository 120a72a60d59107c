//! Against a real file system; what mounts needs root.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

struct Case {
    temporary: tempfile::TempDir,
    directory: Directory,
}

fn case() -> Case {
    let temporary = tempfile::tempdir().unwrap();
    let directory = Directory::open(temporary.path()).unwrap();
    Case {
        temporary,
        directory,
    }
}

impl Case {
    fn path(&self, path: &str) -> PathBuf {
        self.temporary.path().join(path)
    }
}

#[test]
fn only_single_names_are_taken() {
    let Case {
        directory,
        temporary: _temporary,
    } = case();
    let long = "x".repeat(256);
    for name in ["", ".", "..", "a/b", "/etc", "a\0b", long.as_str()] {
        assert!(
            matches!(directory.child(name), Err(NodeError::Refused { .. })),
            "{name:?}"
        );
        assert!(directory.make_child(name, 0o700).is_err(), "{name:?}");
        assert!(directory.open_file(name).is_err(), "{name:?}");
        assert!(directory.remove_tree(name).is_err(), "{name:?}");
    }
}

#[test]
fn a_link_in_the_place_of_a_directory_or_file_is_refused() {
    let case = case();
    symlink("/etc", case.path("directory")).unwrap();
    symlink("/etc/hostname", case.path("file")).unwrap();
    for error in [
        case.directory.child("directory").unwrap_err(),
        case.directory.make_child("directory", 0o700).unwrap_err(),
        case.directory.open_file("file").unwrap_err(),
    ] {
        assert!(error.to_string().ends_with(": it is a link"), "{error}");
    }
}

#[test]
fn a_made_directory_has_its_mode_whatever_the_mask() {
    let case = case();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let made = case.directory.make_child("a", 0o777).unwrap();
    assert_eq!(
        (made.path(), mode(made.path())),
        (case.path("a").as_path(), 0o777)
    );
    // Again, with another mode.
    case.directory.make_child("a", 0o750).unwrap();
    assert_eq!(mode(&case.path("a")), 0o750);
    fs::write(case.path("file"), "").unwrap();
    let error = case.directory.make_child("file", 0o750).unwrap_err();
    assert!(
        error.to_string().ends_with("it is not a directory"),
        "{error}"
    );
}

#[test]
fn only_regular_files_are_read_and_a_pipe_does_not_block() {
    let case = case();
    nix::unistd::mkfifo(&case.path("pipe"), Mode::S_IRWXU).unwrap();
    fs::create_dir(case.path("directory")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(case.path("socket")).unwrap();
    for name in ["pipe", "directory", "socket"] {
        let error = case.directory.open_file(name).unwrap_err();
        assert!(
            error.to_string().ends_with("it is not a regular file"),
            "{error}"
        );
    }
    fs::write(case.path("file"), "text").unwrap();
    let mut text = String::new();
    case.directory
        .open_file("file")
        .unwrap()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "text");
    assert!(case.directory.open_file("none").unwrap().is_none());
}

#[test]
fn a_file_is_replaced_at_once_and_a_link_is_not_written_through() {
    let case = case();
    fs::write(case.path("canary"), "alive").unwrap();
    symlink(case.path("canary"), case.path("file")).unwrap();
    symlink(case.path("canary"), case.path(".bulkhead-file")).unwrap();
    case.directory.replace_file("file", b"new", 0o644).unwrap();
    assert_eq!(fs::read(case.path("file")).unwrap(), b"new");
    assert_eq!(fs::read(case.path("canary")).unwrap(), b"alive");
    assert!(fs::symlink_metadata(case.path("file")).unwrap().is_file());
    assert_eq!(case.directory.names().unwrap().len(), 2);
}

#[test]
fn a_link_is_replaced_by_a_new_one() {
    let case = case();
    for target in ["/one", "/two"] {
        case.directory
            .replace_link("link", Path::new(target))
            .unwrap();
        assert_eq!(fs::read_link(case.path("link")).unwrap(), Path::new(target));
    }
    case.directory.remove_file("link").unwrap();
    case.directory.remove_file("link").unwrap();
    assert_eq!(case.directory.names().unwrap(), [""; 0]);
}

#[test]
fn a_tree_is_removed_and_what_its_links_point_at_is_not() {
    let case = case();
    fs::create_dir_all(case.path("canary/inner")).unwrap();
    fs::write(case.path("canary/inner/file"), "alive").unwrap();
    fs::create_dir_all(case.path("tree/a/b")).unwrap();
    fs::write(case.path("tree/a/file"), "x").unwrap();
    symlink(case.path("canary"), case.path("tree/a/b/link")).unwrap();
    symlink("/", case.path("tree/root")).unwrap();
    nix::unistd::mkfifo(&case.path("tree/pipe"), Mode::S_IRWXU).unwrap();
    case.directory.remove_tree("tree").unwrap();
    assert!(!case.path("tree").exists());
    assert_eq!(fs::read(case.path("canary/inner/file")).unwrap(), b"alive");
    // Again, and a link or file in the tree's place goes by itself.
    case.directory.remove_tree("tree").unwrap();
    symlink(case.path("canary"), case.path("tree")).unwrap();
    case.directory.remove_tree("tree").unwrap();
    assert!(case.path("canary/inner/file").exists());
    assert!(fs::symlink_metadata(case.path("tree")).is_err());
}

#[test]
fn a_tree_deeper_than_there_are_descriptors_is_removed() {
    const DEPTH: usize = 500;
    let case = case();
    // By descriptor, because the path would be too long.
    let mut level = case.directory.make_child("tree", 0o700).unwrap();
    for _ in 0..DEPTH {
        level.create_file("file", 0o600).unwrap();
        level = level.make_child("d", 0o700).unwrap();
    }
    drop(level);
    case.directory.remove_tree("tree").unwrap();
    assert!(!case.path("tree").exists());
}

#[test]
fn a_wide_tree_is_removed() {
    let case = case();
    let wide = case.directory.make_child("tree", 0o700).unwrap();
    for index in 0..3_000 {
        wide.create_file(&format!("file-{index}"), 0o600).unwrap();
    }
    case.directory.remove_tree("tree").unwrap();
    assert!(!case.path("tree").exists());
}

/// Needs root.
#[test]
fn a_mount_in_a_tree_is_neither_entered_nor_removed() {
    let case = case();
    fs::create_dir_all(case.path("canary")).unwrap();
    fs::write(case.path("canary/file"), "alive").unwrap();
    fs::create_dir_all(case.path("tree/a/mount")).unwrap();
    fs::create_dir_all(case.path("tree/b")).unwrap();
    // A bind mount on the same file system: the device number does not give it away.
    let bind = nix::mount::MsFlags::MS_BIND;
    let target = case.path("tree/a/mount");
    nix::mount::mount(
        Some(&case.path("canary")),
        &target,
        None::<&str>,
        bind,
        None::<&str>,
    )
    .unwrap();
    let outcome = case.directory.remove_tree("tree");
    let direct = Directory::open(&case.path("tree/a"))
        .unwrap()
        .remove_tree("mount");
    nix::mount::umount2(&target, nix::mount::MntFlags::MNT_DETACH).unwrap();

    for error in [outcome.unwrap_err(), direct.unwrap_err()] {
        assert!(
            error.to_string().ends_with("something is mounted on it"),
            "{error}"
        );
    }
    assert_eq!(fs::read(case.path("canary/file")).unwrap(), b"alive");
    // The rest is gone, and so is all of it once the mount is.
    assert!(!case.path("tree/b").exists());
    case.directory.remove_tree("tree").unwrap();
    assert!(!case.path("tree").exists());
}

#[test]
fn a_top_directory_that_is_made_has_its_mode_and_one_that_is_there_keeps_its_own() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let disk = tempfile::tempdir().unwrap();
    let path = disk.path().join("logs/pods");
    // No mask of a test lets group and others write: this mode shows whether ours counts.
    Directory::open_or_make(&path, 0o777).unwrap();
    assert_eq!(mode(&path), 0o777);
    Directory::open_or_make(&path, 0o755).unwrap();
    assert_eq!(mode(&path), 0o777);
}

#[test]
fn where_the_file_system_cannot_rename_to_new_names_only_nothing_is_replaced_either() {
    for refusal in [Errno::EINVAL, Errno::ENOSYS, Errno::EOPNOTSUPP] {
        let case = case();
        let rename = |answer, from, to| rename_unless_done(answer, case.directory.fd(), from, to);
        for directory in ["made", "there"] {
            fs::create_dir(case.path(directory)).unwrap();
        }
        symlink("/nowhere", case.path("link")).unwrap();
        for there in ["there", "link"] {
            let refused = rename(Err(refusal), "made", there);
            assert_eq!(refused, Err(Errno::EEXIST), "{there}");
        }
        let missing = rename(Err(refusal), "missing", "new");
        assert_eq!(missing, Err(Errno::ENOENT));
        for done in [Ok(()), Err(Errno::EEXIST), Err(Errno::ENOENT)] {
            assert_eq!(rename(done, "made", "new"), done);
            assert!(case.path("made").exists());
        }
        rename(Err(refusal), "made", "new").unwrap();
        assert!(case.path("new").is_dir() && !case.path("made").exists());
    }
}
