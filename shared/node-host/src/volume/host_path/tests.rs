//! Opening hostPath volumes: types, what is made, and links that lead elsewhere.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use pod::core::HostPathVolumeSource;

use super::*;
use crate::test_rules;

/// A pod whose container mounts this volume.
fn pod(source: &HostPathVolumeSource, read_only: bool) -> Pod {
    let pod = serde_json::json!({
        "metadata": { "namespace": "a", "name": "b" },
        "spec": {
            "containers": [{ "name": "c", "image": "i", "volumeMounts": [
                { "name": "v", "mountPath": "/v", "readOnly": read_only }] }],
            "volumes": [{ "name": "v", "hostPath": source }],
        },
    });
    serde_json::from_value(pod).unwrap()
}

fn open_volume(
    source: &HostPathVolumeSource,
    pod: &Pod,
    rules: &HostPathRules,
) -> Result<OwnedFd, NodeError> {
    let wanted = &pod_volumes::HostPath {
        passes_back: false,
        index: 0,
        path: source.path.clone(),
        path_type: source.type_.clone().unwrap_or_default(),
    };
    HostPath { pod, wanted, rules }.open()
}

/// For a pod that may have everything; the answer is the path that it names.
fn set_up(source: &HostPathVolumeSource) -> Result<PathBuf, NodeError> {
    let pod = pod(source, false);
    open_volume(source, &pod, &test_rules::any(&pod)).map(|_| PathBuf::from(&source.path))
}

/// For a pod with grants of these paths, as the policy has them: the path of what was
/// opened.
fn opened(
    source: &HostPathVolumeSource,
    host_paths: &str,
    mode: &str,
) -> Result<PathBuf, NodeError> {
    let pod = pod(source, false);
    let policy =
        format!("mode = {mode:?}\n[[grants]]\npods = [\"a/b\"]\nhostPaths = [{host_paths}]");
    let opened = open_volume(source, &pod, &test_rules::of(&policy, &pod))?;
    real_path(&opened)
}

fn source(path: &Path, type_: &str) -> HostPathVolumeSource {
    HostPathVolumeSource {
        path: path.display().to_string(),
        type_: Some(type_.to_owned()),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// As in a confined process, for this thread and those that it starts.
fn strict_umask() {
    unshare(CloneFlags::CLONE_FS).unwrap();
    umask(Mode::from_bits_truncate(0o077));
}

#[test]
fn each_type_takes_its_own_kind_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("directory")).unwrap();
    fs::write(at("file"), "").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    symlink(at("directory"), at("link")).unwrap();
    let (mode, major_minor) = (Mode::S_IRUSR, nix::sys::stat::makedev(7, 250));
    nix::sys::stat::mknod(&at("block"), SFlag::S_IFBLK, mode, major_minor).unwrap();
    let paths = [
        at("directory"),
        at("link"),
        at("file"),
        at("socket"),
        PathBuf::from("/dev/null"),
        at("block"),
        at("none"),
    ];
    for (type_, accepted) in [
        ("", [true, true, true, true, true, true, true]),
        ("Directory", [true, true, false, false, false, false, false]),
        ("File", [false, false, true, false, false, false, false]),
        ("Socket", [false, false, false, true, false, false, false]),
        (
            "CharDevice",
            [false, false, false, false, true, false, false],
        ),
        (
            "BlockDevice",
            [false, false, false, false, false, true, false],
        ),
        (
            "DirectoryOrCreate",
            [true, true, false, false, false, false, true],
        ),
        (
            "FileOrCreate",
            [false, false, true, false, false, false, true],
        ),
        (
            "Nonsense",
            [false, false, false, false, false, false, false],
        ),
    ] {
        let outcome: Vec<_> = paths
            .iter()
            .map(|path| set_up(&source(path, type_)).is_ok())
            .collect();
        let _ = fs::remove_dir(at("none")).or_else(|_| fs::remove_file(at("none")));
        assert_eq!(outcome, accepted, "{type_}");
    }
}

#[test]
fn what_is_missing_is_made_with_the_kubelets_modes() {
    let directory = tempfile::tempdir().unwrap();
    strict_umask();
    let made = set_up(&source(&directory.path().join("a/b"), "DirectoryOrCreate")).unwrap();
    assert_eq!(mode(&made), 0o755);
    assert_eq!(mode(&directory.path().join("a")), 0o755);
    let made = set_up(&source(&made.join("file"), "FileOrCreate")).unwrap();
    assert_eq!(mode(&made), 0o644);
    // A file's directory is not made.
    let missing = source(&directory.path().join("none/file"), "FileOrCreate");
    assert!(set_up(&missing).is_err());
    // What is there keeps its content.
    fs::write(&made, "kept").unwrap();
    set_up(&source(&made, "FileOrCreate")).unwrap();
    assert_eq!(fs::read(&made).unwrap(), b"kept");
}

#[test]
fn what_is_made_is_never_seen_without_its_mode() {
    let directory = tempfile::tempdir().unwrap();
    strict_umask();
    for (type_, expected) in [("DirectoryOrCreate", 0o755), ("FileOrCreate", 0o644)] {
        for attempt in 0..200 {
            let path = directory.path().join(format!("{type_}-{attempt}"));
            let seen = path.clone();
            let witness = thread::spawn(move || {
                loop {
                    if let Ok(found) = fs::metadata(&seen) {
                        return found.permissions().mode() & 0o777;
                    }
                }
            });
            set_up(&source(&path, type_)).unwrap();
            assert_eq!(witness.join().unwrap(), expected, "{type_}");
        }
    }
}

#[test]
fn what_somebody_else_made_first_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let opened = OwnedFd::from(fs::File::open(directory.path()).unwrap());
    for missing in [Missing::Directory, Missing::File] {
        let name = format!("{missing:?}");
        let path = directory.path().join(&name);
        missing.make(&opened, &name).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o711)).unwrap();
        missing.make(&opened, &name).unwrap();
        assert_eq!(mode(&path), 0o711);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn several_pods_may_make_the_same_at_once() {
    let directory = tempfile::tempdir().unwrap();
    strict_umask();
    for (type_, name, expected) in [
        ("DirectoryOrCreate", "directory/deep", 0o755),
        ("FileOrCreate", "file", 0o644),
    ] {
        for attempt in 0..50 {
            let above = directory.path().join(format!("{type_}-{attempt}"));
            fs::create_dir(&above).unwrap();
            let path = above.join(name);
            let barrier = std::sync::Barrier::new(4);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        barrier.wait();
                        set_up(&source(&path, type_)).unwrap();
                        assert_eq!(mode(&path), expected, "{type_}");
                    });
                }
            });
            assert_eq!(fs::read_dir(&above).unwrap().count(), 1);
        }
    }
}

#[test]
fn what_cannot_be_made_is_an_error_that_names_the_path() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    symlink(at("nowhere"), at("dangling")).unwrap();
    fs::write(at("file"), "").unwrap();
    let names = ["dangling", "dangling/below", "file/below"];
    for type_ in ["DirectoryOrCreate", "FileOrCreate"] {
        for path in names.map(at) {
            let error = set_up(&source(&path, type_)).unwrap_err().to_string();
            let named = path.display().to_string();
            assert!(error.contains(&named), "{type_}: {error}");
        }
    }
    assert!(!at("nowhere").exists(), "nothing was made behind a link");
    let error = set_up(&source(&at("dangling"), "FileOrCreate")).unwrap_err();
    let expected = format!(
        "hostPath type check failed: {} is not a file",
        at("dangling").display()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn of_two_pods_that_make_different_types_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for attempt in 0..200 {
        let path = directory.path().join(attempt.to_string());
        let barrier = std::sync::Barrier::new(2);
        let made = thread::scope(|scope| {
            let threads = ["DirectoryOrCreate", "FileOrCreate"].map(|type_| {
                scope.spawn(|| {
                    barrier.wait();
                    set_up(&source(&path, type_))
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        let refused = made.into_iter().filter_map(Result::err);
        let refused: Vec<String> = refused.map(|error| error.to_string()).collect();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].starts_with("hostPath type check failed"));
    }
}

#[test]
fn a_path_is_absolute_and_has_no_backsteps() {
    for path in ["", "a", "./a", "/a/../b", ".."] {
        assert!(set_up(&source(Path::new(path), "")).is_err(), "{path:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    let plain = HostPathVolumeSource {
        path: directory.path().display().to_string(),
        type_: None,
    };
    set_up(&plain).unwrap();
}

#[test]
fn the_refusal_says_what_was_expected() {
    let error = set_up(&source(Path::new("/dev/null"), "Directory")).unwrap_err();
    let expected = "hostPath type check failed: /dev/null is not a directory";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn links_are_followed_in_what_a_grant_names_and_refused_below_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir_all(at("real/below")).unwrap();
    fs::create_dir_all(at("elsewhere/below")).unwrap();
    symlink("real", at("named")).unwrap();
    symlink(at("elsewhere"), at("real/link")).unwrap();
    let grant = |more: &str| format!("{{ prefix = {:?}{more} }}", at("named"));
    for (path, more, expected) in [
        ("named", "", Ok("real")),
        ("named/below", "", Ok("real/below")),
        ("named/link", "", Err("real/link is a link")),
        ("named/link/below", "", Err("real/link is a link")),
        ("named/link/new", "", Err("real/link is a link")),
        (
            "named/link/below",
            ", followLinks = true",
            Ok("elsewhere/below"),
        ),
        ("real/below", "", Err("at level baseline")),
    ] {
        let source = source(&at(path), "DirectoryOrCreate");
        let found = opened(&source, &grant(more), "enforce");
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, at(expected), "{path}{more}"),
            (Err(error), Err(words)) => {
                assert!(error.to_string().contains(words), "{path}{more}: {error}");
            }
            (found, expected) => panic!("{path}{more}: {found:?}, not {expected:?}"),
        }
    }
    assert!(!at("elsewhere/new").exists(), "nothing was made behind it");
    // An audit reports and gives.
    let behind = source(&at("named/link/below"), "Directory");
    let found = opened(&behind, &grant(""), "audit").unwrap();
    assert_eq!(found, at("elsewhere/below"));
}

#[test]
fn what_is_protected_is_refused_and_left_alone_by_whatever_link_it_is_reached() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    symlink("/proc", at("proc")).unwrap();
    symlink("/dev/shm", at("shm")).unwrap();
    symlink("/proc/self/root/etc", at("root")).unwrap();
    let grant = format!(
        "{{ prefix = {:?}, followLinks = true }}",
        directory.path().display()
    );
    for (path, words) in [
        ("proc", "the node's /proc"),
        ("proc/sys", "the node's /proc"),
        ("shm/bulkhead-test-protected", "the node's devices"),
        // The kernel's own links lead to what processes have open.
        ("root", "Too many levels of symbolic links"),
    ] {
        let error = opened(&source(&at(path), "DirectoryOrCreate"), &grant, "enforce");
        let error = error.unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let error = format!("{error}: {}", cause.unwrap_or_default());
        assert!(error.contains(words), "{path}: {error}");
    }
    assert!(!Path::new("/dev/shm/bulkhead-test-protected").exists());
}

#[test]
fn directories_above_a_grant_are_made_and_none_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let grant = format!("{{ prefix = {:?} }}", at("a/b/granted").display());
    for (path, is_made) in [
        ("a/beside", false),
        ("a/b", false),
        ("a/b/granted/below/c", true),
        ("a/b/beside", false),
    ] {
        let made = opened(&source(&at(path), "DirectoryOrCreate"), &grant, "enforce");
        assert_eq!(made.is_ok(), is_made, "{path}: {made:?}");
    }
    assert_eq!(mode(&at("a")), 0o755);
    assert!(!at("a/b/beside").exists());
}

#[test]
fn nothing_is_made_for_a_pod_that_only_reads() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let source = source(&missing, "");
    let pod = pod(&source, true);
    let error = open_volume(&source, &pod, &test_rules::any(&pod)).unwrap_err();
    let words = "it is missing, and is not made for a pod that only reads it";
    assert!(error.to_string().contains(words), "{error}");
    assert!(!missing.exists());
    set_up(&source).unwrap();
    assert!(missing.is_dir());
}

#[test]
fn a_link_that_comes_and_goes_never_leads_out_of_the_grant() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["granted/real", "granted/swapped", "secret"] {
        fs::create_dir_all(at(name).join("below")).unwrap();
    }
    symlink(at("secret"), at("granted/link")).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let flags = nix::fcntl::RenameFlags::RENAME_EXCHANGE;
    thread::scope(|scope| {
        scope.spawn(|| {
            let (one, other) = (at("granted/swapped"), at("granted/link"));
            let here = nix::fcntl::AT_FDCWD;
            while !stop.load(relaxed) {
                nix::fcntl::renameat2(here, &one, here, &other, flags).unwrap();
            }
        });
        let grant = format!("{{ prefix = {:?} }}", at("granted").display());
        let source = source(&at("granted/swapped/below"), "Directory");
        let (mut refused, mut given) = (0, 0);
        for _ in 0..20_000 {
            match opened(&source, &grant, "enforce") {
                Ok(found) => {
                    assert!(found.starts_with(at("granted")), "{}", found.display());
                    given += 1;
                }
                Err(_) => refused += 1,
            }
            if refused > 100 && given > 100 {
                break;
            }
        }
        stop.store(true, relaxed);
        assert!(refused > 0 && given > 0, "{refused} and {given}");
    });
}
