//! With real mounts: these tests need root.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;

use super::*;

/// A part of the node that passes its mounts on, as `/` does under systemd, with a disk
/// mounted in it; and a pod's directory, which is a part of it too.
struct Case {
    temporary: tempfile::TempDir,
}

impl Drop for Case {
    fn drop(&mut self) {
        let above = Directory::open(self.temporary.path()).unwrap();
        let _ = mounts().unmount_all_below(&above, "node");
    }
}

fn mounts() -> MountTable {
    MountTable::read(Path::new("/proc")).unwrap()
}

fn mount_tmpfs(path: &Path) {
    fs::create_dir_all(path).unwrap();
    let tmpfs = Some("tmpfs");
    mount(tmpfs, path, tmpfs, MsFlags::empty(), NONE).unwrap();
}

fn case() -> Case {
    let temporary = tempfile::tempdir().unwrap();
    let case = Case { temporary };
    mount_tmpfs(&case.node(""));
    mount(NONE, &case.node(""), NONE, MsFlags::MS_SHARED, NONE).unwrap();
    mount_tmpfs(&case.node("srv/disk"));
    fs::write(case.node("srv/disk/canary"), "alive").unwrap();
    fs::write(case.node("srv/canary"), "alive").unwrap();
    case
}

impl Case {
    fn node(&self, path: &str) -> PathBuf {
        self.temporary.path().join("node").join(path)
    }

    fn open(&self, path: &str) -> OwnedFd {
        use nix::fcntl::{OFlag, open};
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        open(&self.node(path), flags, Mode::empty()).unwrap()
    }

    /// The volumes of a pod.
    fn volumes(&self, pod: &str) -> Directory {
        let mut directory = Directory::open(&self.node("")).unwrap();
        for name in ["pods", pod, VOLUMES] {
            directory = directory.make_child(name, 0o750).unwrap();
        }
        directory
    }

    fn kind(&self, pod: &str) -> Directory {
        self.volumes(pod).make_child(HOST_PATH, 0o750).unwrap()
    }

    fn bind(&self, path: &str, pod: &str) -> Result<PathBuf, NodeError> {
        let directory = &self.kind(pod);
        let place = Place {
            directory,
            name: "v",
            passes_back: false,
        };
        bind(&self.open(path), &place, Path::new("/proc"))
    }

    /// So that what is mounted in it shows on the node.
    fn bind_both_ways(&self, path: &str, pod: &str) -> Result<PathBuf, NodeError> {
        let directory = &self.kind(pod);
        let place = Place {
            directory,
            name: "v",
            passes_back: true,
        };
        bind(&self.open(path), &place, Path::new("/proc"))
    }

    /// As when a pod is cleared away.
    fn tear_down(&self, pod: &str) {
        let volumes = self.volumes(pod);
        mounts().unmount_all_below(&volumes, HOST_PATH).unwrap();
        volumes.remove_tree(HOST_PATH).unwrap();
        assert!(!volumes.path().join(HOST_PATH).exists());
        self.is_whole();
    }

    /// Nothing of the node was unmounted or removed.
    fn is_whole(&self) {
        for canary in ["srv/canary", "srv/disk/canary"] {
            assert_eq!(fs::read(self.node(canary)).unwrap(), b"alive", "{canary}");
        }
    }

    fn mounts_of(&self, pod: &str) -> usize {
        mounts().below(&self.node("pods").join(pod)).count()
    }
}

#[test]
fn the_nodes_mounts_show_in_what_is_bound_and_never_the_other_way_round() {
    let case = case();
    let bound = case.bind("srv", "u").unwrap();
    for (path, content) in [("canary", "alive"), ("disk/canary", "alive")] {
        assert_eq!(fs::read_to_string(bound.join(path)).unwrap(), content);
    }
    mount_tmpfs(&case.node("srv/later"));
    fs::write(case.node("srv/later/file"), "later").unwrap();
    assert_eq!(fs::read(bound.join("later/file")).unwrap(), b"later");
    mount_tmpfs(&bound.join("own"));
    fs::write(bound.join("own/file"), "own").unwrap();
    assert!(!case.node("srv/own/file").exists());
    // What is found bound stays as it is.
    let before = mounts();
    assert_eq!(case.bind("srv", "u").unwrap(), bound);
    assert_eq!(mounts().below(&bound).count(), before.below(&bound).count());
    case.tear_down("u");
    assert_eq!(fs::read(case.node("srv/later/file")).unwrap(), b"later");
}

#[test]
fn what_a_killed_pool_left_half_done_is_completed_or_taken_down() {
    for completes in [true, false] {
        let case = case();
        let place = case.kind("u").make_mount_point("v", true).unwrap();
        // Killed before anything was done to what it had bound.
        bind_one(&case.open("srv"), &place).unwrap();
        mount_tmpfs(&case.node("srv/later"));
        fs::write(case.node("srv/later/file"), "later").unwrap();
        if completes {
            let bound = case.bind("srv", "u").unwrap();
            for file in ["disk/canary", "later/file"] {
                assert!(bound.join(file).exists(), "{file}");
            }
            assert_eq!(case.mounts_of("u"), 3);
        }
        case.tear_down("u");
        assert_eq!(fs::read(case.node("srv/later/file")).unwrap(), b"later");
    }
}

#[test]
fn what_took_the_place_of_what_is_bound_is_bound_for_those_who_come() {
    let case = case();
    fs::create_dir(case.node("dir")).unwrap();
    let bound = case.bind("dir", "u").unwrap();
    fs::remove_dir(case.node("dir")).unwrap();
    fs::write(case.node("dir"), "a file by now").unwrap();
    assert_eq!(case.bind("dir", "u").unwrap(), bound);
    assert_eq!(fs::read(&bound).unwrap(), b"a file by now");
    fs::remove_file(case.node("dir")).unwrap();
    fs::create_dir(case.node("dir")).unwrap();
    fs::write(case.node("dir/file"), "in a directory").unwrap();
    case.bind("dir", "u").unwrap();
    assert_eq!(fs::read(bound.join("file")).unwrap(), b"in a directory");
    assert_eq!(case.mounts_of("u"), 1);
    case.tear_down("u");
    assert_eq!(fs::read(case.node("dir/file")).unwrap(), b"in a directory");
}

#[test]
fn sockets_files_and_devices_are_bound_as_what_they_are() {
    let case = case();
    let _socket = UnixListener::bind(case.node("socket")).unwrap();
    fs::write(case.node("file"), "content").unwrap();
    for (pod, path) in [("u1", "socket"), ("u2", "file"), ("u3", "/dev/null")] {
        let bound = case.bind(path, pod).unwrap();
        let kind = fs::symlink_metadata(&bound).unwrap().file_type();
        assert_eq!(kind.is_socket(), path == "socket");
        assert_eq!(kind.is_file(), path == "file");
        assert_eq!(kind.is_char_device(), path == "/dev/null");
        case.tear_down(pod);
        assert!(case.node(path).exists());
    }
}

#[test]
fn volumes_of_all_that_holds_the_pods_do_not_multiply() {
    let case = case();
    let pods = ["u1", "u2", "u3", "u4", "u5", "u6"];
    for pod in pods {
        let bound = case.bind("", pod).unwrap();
        assert!(bound.join("srv/disk/canary").exists());
        assert!(!bound.join("pods").join(pod).join("volumes/x").exists());
    }
    // Each has the node's two on one of its own, and one for each other pod.
    for pod in pods {
        let count = case.mounts_of(pod);
        assert!(count <= 3 + pods.len(), "{count}");
    }
    mount_tmpfs(&case.node("srv/later"));
    for pod in pods {
        let volume = case.kind(pod).path().join("v");
        assert!(mounts().filesystem(&volume.join("srv/later")).is_some());
    }
    for pod in pods {
        case.tear_down(pod);
    }
    assert_eq!(mounts().below(&case.node("pods")).count(), 0);
}

#[test]
fn an_unmount_in_a_volume_that_leads_elsewhere_by_now_leaves_the_node_alone() {
    let case = case();
    let bound = case.bind("srv", "u").unwrap();
    let table = mounts();
    // A container renames what is on the way to a mount and puts a link there.
    mount_tmpfs(&case.node("srv/a/b"));
    let later = mounts();
    assert!(later.filesystem(&bound.join("a/b")).is_some());
    fs::rename(case.node("srv/a"), case.node("srv/a2")).unwrap();
    std::os::unix::fs::symlink(case.node(""), case.node("srv/a")).unwrap();
    mount_tmpfs(&case.node("b"));
    later
        .unmount_all_below(&case.volumes("u"), HOST_PATH)
        .unwrap();
    assert!(mounts().filesystem(&case.node("b")).is_some());
    table
        .unmount_all_below(&case.volumes("u"), HOST_PATH)
        .unwrap();
    case.tear_down("u");
}

#[test]
fn what_is_mounted_is_never_emptied() {
    let case = case();
    let bound = case.bind("srv", "u").unwrap();
    let refused = case.volumes("u").remove_tree(HOST_PATH).unwrap_err();
    assert!(refused.to_string().contains("mounted on it"), "{refused}");
    assert!(bound.join("canary").exists());
    case.is_whole();
    let file = case.kind("u").path().join("file");
    drop(File::create(&file).unwrap());
    mount(
        Some(&case.node("srv/canary")),
        &file,
        NONE,
        MsFlags::MS_BIND,
        NONE,
    )
    .unwrap();
    let refused = case.volumes("u").remove_tree(HOST_PATH).unwrap_err();
    assert!(refused.to_string().contains("mounted on it"), "{refused}");
    case.tear_down("u");
}

#[test]
fn what_is_mounted_in_it_shows_on_the_node_where_that_is_asked_for() {
    let case = case();
    fs::create_dir(case.node("srv/new")).unwrap();
    // It was bound the other way before, as by an earlier version of the pod.
    case.bind("srv", "u").unwrap();
    let before = mounts().below(&case.node("srv")).count();
    let bound = case.bind_both_ways("srv", "u").unwrap();
    assert_eq!(case.bind_both_ways("srv", "u").unwrap(), bound);
    assert_eq!(fs::read(bound.join("disk/canary")).unwrap(), b"alive");
    // What is mounted on the node already is not mounted there once more.
    assert_eq!(mounts().below(&case.node("srv")).count(), before);
    assert_eq!(mounts().below(&bound).count(), 2);
    mount_tmpfs(&bound.join("new"));
    fs::write(bound.join("new/file"), "of the pod").unwrap();
    assert_eq!(fs::read(case.node("srv/new/file")).unwrap(), b"of the pod");
    // The pod goes, and what is the node's stays.
    case.tear_down("u");
    assert_eq!(fs::read(case.node("srv/new/file")).unwrap(), b"of the pod");
}

#[test]
fn what_would_not_show_on_the_node_is_refused() {
    let case = case();
    let error = case.bind_both_ways("", "u").unwrap_err().to_string();
    assert!(
        error.contains("the pods' own directories are in it"),
        "{error}"
    );
    let alone = case.node("srv/disk");
    mount(NONE, &alone, NONE, MsFlags::MS_PRIVATE, NONE).unwrap();
    let error = case
        .bind_both_ways("srv/disk", "u")
        .unwrap_err()
        .to_string();
    assert!(error.contains("it is not on a shared mount"), "{error}");
    assert!(case.bind("srv/disk", "u").is_ok());
}
