//! What a container can put in the way of its own sub-path, and what is bound. The latter
//! needs root.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{RenameFlags, renameat2};
use nix::mount::{MsFlags, mount, umount};

use super::*;
use crate::volume::{MountTable, tear_down};

struct Case {
    temporary: tempfile::TempDir,
    volume: PathBuf,
}

fn case() -> Case {
    let temporary = tempfile::tempdir().unwrap();
    let volume = temporary.path().join("volume");
    fs::create_dir(&volume).unwrap();
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o775)).unwrap();
    fs::write(temporary.path().join("outside"), "secret").unwrap();
    Case { temporary, volume }
}

impl Case {
    fn open(&self, path: &str) -> Result<OwnedFd, NodeError> {
        let volume = File::open(&self.volume).unwrap();
        open(&OwnedFd::from(volume), path, true)
    }

    /// That this path leads to that file.
    fn leads(&self, path: &str, to: &str) {
        let opened = self
            .open(path)
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let found = descriptor::status(&opened).unwrap().st_ino;
        let expected = fs::metadata(self.volume.join(to)).unwrap().ino();
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn what_is_there_is_opened_and_what_is_missing_is_made() {
    let case = case();
    fs::create_dir(case.volume.join("a")).unwrap();
    fs::write(case.volume.join("a/file"), "").unwrap();
    case.leads("a", "a");
    case.leads("a/file", "a/file");
    case.leads("./a//file", "a/file");
    case.leads(".", ".");
    case.leads("a/new/deep", "a/new/deep");
    let made = fs::metadata(case.volume.join("a/new/deep")).unwrap();
    assert_eq!(made.permissions().mode() & 0o7777, 0o775);
}

#[test]
fn links_are_followed_within_the_volume_and_never_out_of_it() {
    let case = case();
    let at = |name: &str| case.volume.join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/key"), "").unwrap();
    // As in a volume of files.
    symlink("d", at("..data")).unwrap();
    symlink("..data/key", at("key")).unwrap();
    case.leads("key", "d/key");
    symlink("../outside", at("up")).unwrap();
    symlink(case.temporary.path().join("outside"), at("absolute")).unwrap();
    symlink(at("d"), at("inside")).unwrap();
    symlink("..", at("top")).unwrap();
    symlink("/proc/self/root", at("root")).unwrap();
    symlink("loop", at("loop")).unwrap();
    for path in [
        "up",
        "absolute",
        "inside",
        "top/outside",
        "root/etc",
        "loop",
        "loop/x",
        "top/new",
    ] {
        let refused = case.open(path);
        assert!(refused.is_err(), "{path}");
    }
    for path in ["..", "../outside", "d/../../outside", "/etc", "d/.."] {
        let error = case.open(path).unwrap_err().to_string();
        assert!(error.contains("has no '..'"), "{path}: {error}");
    }
    assert!(!case.temporary.path().join("new").exists());
}

#[test]
fn nothing_is_made_where_nothing_may_be() {
    let case = case();
    fs::create_dir(case.volume.join("a")).unwrap();
    let volume = OwnedFd::from(File::open(&case.volume).unwrap());
    assert!(open(&volume, "a", false).is_ok());
    let error = open(&volume, "a/b", false).unwrap_err().to_string();
    assert!(error.contains("open a/b"), "{error}");
    assert!(!case.volume.join("a/b").exists());
}

#[test]
fn a_file_is_no_directory_to_make_something_in() {
    let case = case();
    fs::write(case.volume.join("file"), "").unwrap();
    assert!(case.open("file/x").is_err());
}

/// A container renames a directory and a link that leads out of the volume to and fro,
/// while the path is opened again and again. `BULKHEAD_RENAMER_SECONDS` makes it longer.
#[test]
fn nobody_who_renames_links_gets_out_of_the_volume() {
    let seconds = std::env::var("BULKHEAD_RENAMER_SECONDS");
    let seconds = seconds.ok().and_then(|it| it.parse().ok()).unwrap_or(2);
    let case = case();
    let at = |name: &str| case.volume.join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/outside"), "mine").unwrap();
    symlink("..", at("link")).unwrap();
    let outside = fs::metadata(case.temporary.path().join("outside"))
        .unwrap()
        .ino();
    let mine = fs::metadata(at("d/outside")).unwrap().ino();
    let top = File::open(&case.volume).unwrap();
    let done = AtomicBool::new(false);
    let (mut inside, mut refused) = (0_u64, 0_u64);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let exchange = RenameFlags::RENAME_EXCHANGE;
                renameat2(&top, "d", &top, "link", exchange).unwrap();
            }
        });
        let until = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < until {
            match case.open("d/outside") {
                Ok(opened) => {
                    let found = descriptor::status(&opened).unwrap().st_ino;
                    assert_ne!(found, outside);
                    inside += u64::from(found == mine);
                }
                Err(_) => refused += 1,
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(inside > 0 && refused > 0, "{inside} {refused}");
    assert_eq!(
        fs::read_to_string(case.temporary.path().join("outside")).unwrap(),
        "secret"
    );
}

/// A pod's directory with one volume; unmounted when the test ends, however it does.
struct OfPod {
    temporary: tempfile::TempDir,
    pod: Directory,
    volume: PathBuf,
}

impl Drop for OfPod {
    fn drop(&mut self) {
        let above = Directory::open(self.temporary.path()).unwrap();
        let _ = mounts().unmount_all_below(&above, "u");
    }
}

fn mounts() -> MountTable {
    MountTable::read(Path::new("/proc")).unwrap()
}

fn of_pod() -> OfPod {
    let temporary = tempfile::tempdir().unwrap();
    let pod = Directory::open(temporary.path()).unwrap();
    let pod = pod.make_child("u", 0o750).unwrap();
    let volume = pod.path().join("volumes/kubernetes.io~empty-dir/v");
    fs::create_dir_all(&volume).unwrap();
    OfPod {
        temporary,
        pod,
        volume,
    }
}

impl OfPod {
    fn bind(&self, path: &str) -> Result<PathBuf, NodeError> {
        let wanted = SubPath {
            index: 2,
            volume: "v".to_owned(),
            volume_path: self.volume.clone(),
            path: path.to_owned(),
            makes_missing: true,
            passes_back: false,
        };
        bind(&self.pod, "c", &wanted, Path::new("/proc"))
    }
}

#[test]
fn a_file_is_read_below_its_volume_and_no_further() {
    let of_pod = of_pod();
    let at = |name: &str| of_pod.volume.join(name);
    fs::write(at("env"), "A='1'").unwrap();
    symlink("env", at("link")).unwrap();
    symlink("/etc/hostname", at("out")).unwrap();
    fs::create_dir(at("dir")).unwrap();
    nix::unistd::mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
    let read = |path: &str, limit| read(&of_pod.pod, (&of_pod.volume, path), limit);
    for path in ["env", "link", "./env"] {
        let content = read(path, 5).unwrap();
        assert_eq!(content.as_deref(), Some(&b"A='1'"[..]), "{path}");
    }
    for path in ["none", "dir/none", "env/none"] {
        assert_eq!(read(path, 5).unwrap(), None, "{path}");
    }
    for (path, words) in [
        ("env", "it has more than 4 bytes"),
        ("out", "it leads out of the volume"),
        ("../v/env", "has no '..'"),
        ("dir", "it is not a regular file"),
        ("pipe", "it is not a regular file"),
    ] {
        let error = read(path, 4).unwrap_err().to_string();
        assert!(error.contains(words), "{path}: {error}");
    }
}

#[test]
fn a_part_is_bound_at_the_kubelets_place_and_goes_with_the_volumes() {
    let of_pod = of_pod();
    fs::write(of_pod.volume.join("key"), "one").unwrap();
    let place = of_pod.pod.path().join("volume-subpaths/v/c/2");
    for _ in 0..2 {
        assert_eq!(of_pod.bind("key").unwrap(), place);
        assert_eq!(fs::read_to_string(&place).unwrap(), "one");
    }
    assert_eq!(mounts().below(&place).count(), 1);
    // The file gave way to another one, as when a ConfigMap changes; then to a directory.
    fs::write(of_pod.volume.join("new"), "two").unwrap();
    fs::rename(of_pod.volume.join("new"), of_pod.volume.join("key")).unwrap();
    assert_eq!(of_pod.bind("key").unwrap(), place);
    assert_eq!(fs::read_to_string(&place).unwrap(), "two");
    fs::remove_file(of_pod.volume.join("key")).unwrap();
    of_pod.bind("key").unwrap();
    assert!(place.is_dir());
    assert_eq!(mounts().below(&place).count(), 1);
    tear_down(&of_pod.pod, &mounts()).unwrap();
    assert!(!of_pod.pod.path().join("volume-subpaths").exists());
    assert!(!of_pod.volume.exists());
}

#[test]
fn what_a_killed_process_left_half_done_is_done_again() {
    let of_pod = of_pod();
    let place = of_pod.pod.path().join("volume-subpaths/v/c/2");
    // It had made the place, of another kind, and nothing was bound yet.
    fs::create_dir_all(&place).unwrap();
    fs::write(of_pod.volume.join("key"), "").unwrap();
    of_pod.bind("key").unwrap();
    assert!(place.is_file());
    // It had unmounted the old one and not bound the new one.
    umount(&place).unwrap();
    of_pod.bind("key").unwrap();
    assert_eq!(mounts().below(&place).count(), 1);
}

#[test]
fn parts_of_what_holds_the_pods_themselves_do_not_show_in_each_other() {
    let of_pod = of_pod();
    let top = of_pod.temporary.path().join("u");
    let none: Option<&str> = None;
    mount(Some(&top), &top, none, MsFlags::MS_BIND, none).unwrap();
    mount(none, &top, none, MsFlags::MS_SHARED, none).unwrap();
    // As a hostPath volume of a directory above all pods is bound: it follows the node.
    let pod = Directory::open(&top).unwrap();
    let volume = top.join("volumes/kubernetes.io~host-path/v");
    fs::create_dir_all(&volume).unwrap();
    fs::create_dir(top.join("part")).unwrap();
    mount(Some(&top), &volume, none, MsFlags::MS_BIND, none).unwrap();
    mount(none, &volume, none, MsFlags::MS_SLAVE, none).unwrap();
    for index in 0..4 {
        let wanted = SubPath {
            index,
            volume: "v".to_owned(),
            volume_path: volume.clone(),
            path: ".".to_owned(),
            makes_missing: true,
            passes_back: false,
        };
        bind(&pod, "c", &wanted, Path::new("/proc")).unwrap();
    }
    // Two for each: the place by itself, and what is bound on it. Without the first, each
    // shows in all that are there.
    let count = mounts().below(&top).count();
    assert!(count < 24, "{count}");
}
