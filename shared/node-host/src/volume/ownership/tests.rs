//! Whose the things in a volume are afterwards, and what is not touched.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

const GROUP: u32 = 4711;

struct Volume {
    _directory: tempfile::TempDir,
    root: PathBuf,
}

impl Volume {
    fn new() -> Volume {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("v");
        fs::create_dir(&root).unwrap();
        Volume {
            _directory: directory,
            root,
        }
    }

    fn file(&self, path: &str, mode: u32) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn apply(&self, policy: ChangePolicy, access: Access) -> Result<(), NodeError> {
        let group = Gid::from_raw(GROUP);
        let root = Directory::open(&self.root).unwrap();
        Ownership { group, policy }.apply(&root, access)
    }

    fn look(&self, path: &str) -> (u32, u32) {
        let found = fs::symlink_metadata(self.root.join(path)).unwrap();
        (found.gid(), found.mode() & 0o7777)
    }
}

/// Only root may give files to others.
fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn everything_in_a_volume_is_the_groups_and_keeps_what_it_had_besides() {
    if !is_root() {
        return;
    }
    let volume = Volume::new();
    for (path, mode) in [("a", 0o600), ("d/e/f", 0o4755), ("secret", 0o400)] {
        volume.file(path, mode);
    }
    mkfifo(&volume.root.join("pipe"), Mode::S_IRUSR).unwrap();
    fs::set_permissions(volume.root.join("d"), fs::Permissions::from_mode(0o1700)).unwrap();
    let owner = fs::metadata(volume.root.join("a")).unwrap().uid();
    volume
        .apply(ChangePolicy::Always, Access::ReadWrite)
        .unwrap();
    for (path, mode) in [
        ("", 0o2775),
        ("a", 0o660),
        ("d", 0o3770),
        ("d/e", 0o2775),
        ("d/e/f", 0o4775),
        ("secret", 0o660),
        ("pipe", 0o660),
    ] {
        assert_eq!(volume.look(path), (GROUP, mode), "{path}");
    }
    assert_eq!(fs::metadata(volume.root.join("a")).unwrap().uid(), owner);
}

#[test]
fn what_is_only_read_is_made_readable() {
    if !is_root() {
        return;
    }
    let volume = Volume::new();
    volume.file("d/a", 0o400);
    fs::set_permissions(&volume.root, fs::Permissions::from_mode(0o700)).unwrap();
    volume
        .apply(ChangePolicy::Always, Access::ReadOnly)
        .unwrap();
    assert_eq!(volume.look(""), (GROUP, 0o2750));
    assert_eq!(volume.look("d/a"), (GROUP, 0o440));
}

#[test]
fn a_link_gets_the_group_and_what_it_leads_to_is_not_touched() {
    if !is_root() {
        return;
    }
    let outside = Volume::new();
    let victim = outside.file("victim", 0o600);
    outside.file("deep/victim", 0o600);
    let volume = Volume::new();
    symlink(&victim, volume.root.join("file")).unwrap();
    symlink(&outside.root, volume.root.join("directory")).unwrap();
    symlink("nowhere", volume.root.join("broken")).unwrap();
    volume
        .apply(ChangePolicy::Always, Access::ReadWrite)
        .unwrap();
    for link in ["file", "directory", "broken"] {
        assert_eq!(volume.look(link).0, GROUP, "{link}");
    }
    for path in ["victim", "deep/victim"] {
        let (group, mode) = outside.look(path);
        assert!(group != GROUP && mode == 0o600, "{path}");
    }
}

#[test]
fn with_on_root_mismatch_the_volumes_own_directory_decides() {
    if !is_root() {
        return;
    }
    let (group, ok) = (Some(Gid::from_raw(GROUP)), 0o2770);
    for (owner, mode, access, is_skipped) in [
        (group, ok, Access::ReadWrite, true),
        (group, 0o3777, Access::ReadWrite, true),
        (group, 0o0770, Access::ReadWrite, false),
        (group, 0o2750, Access::ReadWrite, false),
        (group, 0o2750, Access::ReadOnly, true),
        (None, ok, Access::ReadWrite, false),
    ] {
        let volume = Volume::new();
        volume.file("a", 0o600);
        nix::unistd::chown(&volume.root, None, owner).unwrap();
        fs::set_permissions(&volume.root, fs::Permissions::from_mode(mode)).unwrap();
        volume.apply(ChangePolicy::OnRootMismatch, access).unwrap();
        let is_untouched = volume.look("a").1 == 0o600;
        assert_eq!(is_untouched, is_skipped, "{owner:?} {mode:o} {access:?}");
        // Now it is the group's; with the other policy all is looked at nevertheless.
        volume.file("b", 0o600);
        volume.apply(ChangePolicy::OnRootMismatch, access).unwrap();
        assert_eq!(volume.look("b").1, 0o600);
        volume.apply(ChangePolicy::Always, access).unwrap();
        assert_ne!(volume.look("b").1, 0o600);
    }
}

#[test]
fn a_volume_may_be_wide_and_is_refused_when_it_is_too_deep() {
    if !is_root() {
        return;
    }
    let volume = Volume::new();
    for number in 0..1000 {
        volume.file(&format!("{}/{number}", number % 10), 0o600);
    }
    volume
        .apply(ChangePolicy::Always, Access::ReadWrite)
        .unwrap();
    assert_eq!(volume.look("7/997"), (GROUP, 0o660));
    let deep = "d/".repeat(MAX_LEVELS);
    fs::create_dir_all(volume.root.join(deep)).unwrap();
    let error = volume.apply(ChangePolicy::Always, Access::ReadWrite);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("deeper than 256"), "{error}");
    // The directory still tells that there is work left.
    let before = volume.look("");
    assert_eq!(before, (GROUP, 0o2775));
}

#[test]
fn a_pod_says_whose_its_volumes_are() {
    let of = |context: &str| {
        let pod = format!(r#"{{"spec":{{"containers":[],"securityContext":{context}}}}}"#);
        let ownership = Ownership::of(&serde_json::from_str(&pod).unwrap());
        ownership.map(|found| (found.group.as_raw(), found.policy))
    };
    for (context, expected) in [
        ("{}", None),
        (r#"{"fsGroupChangePolicy":"Always"}"#, None),
        (r#"{"fsGroup":0}"#, Some((0, ChangePolicy::Always))),
        (
            r#"{"fsGroup":7,"fsGroupChangePolicy":"OnRootMismatch"}"#,
            Some((7, ChangePolicy::OnRootMismatch)),
        ),
    ] {
        assert_eq!(of(context), expected, "{context}");
    }
}
