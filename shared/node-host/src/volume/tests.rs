//! Those that mount need root.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use pod::core::VolumeMount;
use pod::{Pod, PodExt as _};

use super::*;
use crate::test_rules;

fn pod(json: &str) -> Pod {
    serde_json::from_str(json).unwrap()
}

const MEMORY: u64 = 8 << 20;

struct Case {
    directory: Directory,
    /// Unmounted and removed when the test ends, however it does.
    temporary: tempfile::TempDir,
}

impl Drop for Case {
    fn drop(&mut self) {
        let top = Directory::open(self.temporary.path()).unwrap();
        let _ = mounts().unmount_all_below(&top, "u");
    }
}

fn mounts() -> MountTable {
    MountTable::read(Path::new("/proc")).unwrap()
}

fn case() -> Case {
    let temporary = tempfile::tempdir().unwrap();
    let directory = Directory::open(temporary.path())
        .unwrap()
        .make_child("u", 0o750)
        .unwrap();
    Case {
        directory,
        temporary,
    }
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A pod with these volumes, all mounted by its container.
fn with_volumes(volumes: &str) -> Pod {
    let mut pod = pod(&format!(
        r#"{{"spec":{{"containers":[{{"name":"c","image":"i"}}],"volumes":[{volumes}]}}}}"#
    ));
    let mounts = pod.volumes().iter().map(|volume| VolumeMount {
        name: volume.name.clone(),
        mount_path: format!("/{}", volume.name),
        ..VolumeMount::default()
    });
    let mounts = mounts.collect();
    pod.spec.as_mut().unwrap().containers[0].volume_mounts = Some(mounts);
    pod
}

impl Case {
    fn set_up(&self, volumes: &str) -> Result<BTreeMap<String, MountedVolume>, NodeError> {
        self.set_up_pod(&with_volumes(volumes))
    }

    fn set_up_pod(&self, pod: &Pod) -> Result<BTreeMap<String, MountedVolume>, NodeError> {
        let setting = Setting {
            proc_dir: Path::new("/proc"),
            memory_bytes: MEMORY,
            host_paths: &test_rules::any(pod),
        };
        let volumes = test_rules::wanted(pod);
        make(&self.directory, pod, &volumes, &setting)
    }

    fn host_path(&self, name: &str) -> PathBuf {
        let volumes = self.directory.path().join(VOLUMES);
        volumes.join(HOST_PATH).join(name)
    }

    fn empty_dir(&self, name: &str) -> PathBuf {
        self.directory
            .path()
            .join(VOLUMES)
            .join(EMPTY_DIR)
            .join(name)
    }
}

#[test]
fn volumes_are_where_the_kubelet_has_them_and_survive_a_second_time() {
    let case = case();
    let shared = case.temporary.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("file"), "the node's").unwrap();
    let volumes = format!(
        r#"{{"name":"v","emptyDir":{{}}}},{{"name":"h","hostPath":{{"path":{shared:?}}}}}"#
    );
    for round in 0..2 {
        let mounted = case.set_up(&volumes).unwrap();
        let path = &mounted["v"].host_path;
        assert_eq!(path, &case.empty_dir("v"));
        assert_eq!(
            fs::metadata(path).unwrap().permissions().mode() & 0o7777,
            0o777
        );
        let bound = &mounted["h"].host_path;
        assert_eq!(bound, &case.host_path("h"));
        assert_eq!(fs::read(bound.join("file")).unwrap(), b"the node's");
        assert_eq!(path.join("kept").exists(), round > 0);
        fs::write(path.join("kept"), "").unwrap();
    }
    tear_down(&case.directory, &mounts()).unwrap();
    assert!(!case.empty_dir("v").exists());
    assert!(!case.host_path("h").exists());
    assert_eq!(fs::read(shared.join("file")).unwrap(), b"the node's");
    tear_down(&case.directory, &mounts()).unwrap();
}

#[test]
fn volumes_belong_to_the_group_of_their_pod_and_what_is_in_them_is_looked_at_once() {
    let case = case();
    let mut pod =
        with_volumes(r#"{"name":"v","emptyDir":{}},{"name":"m","emptyDir":{"medium":"Memory"}}"#);
    let spec = pod.spec.as_mut().unwrap();
    let context = spec.security_context.get_or_insert_default();
    context.fs_group = Some(4711);
    for round in 0..2 {
        case.set_up_pod(&pod).unwrap();
        for (name, expected) in [("v", 0o2777), ("m", 0o3777)] {
            let path = case.empty_dir(name);
            let file = path.join("file");
            if round == 0 {
                let found = fs::metadata(&path).unwrap();
                let found = (found.gid(), found.mode() & 0o7777);
                assert_eq!(found, (4711, expected), "{name}");
                fs::write(&file, "").unwrap();
                assert_eq!(fs::metadata(&file).unwrap().gid(), 4711);
                chmod(&file, 0o600);
                chmod(&path, 0o700);
            }
            // Its owner's own business, also when the next container starts.
            assert_eq!(mode_of(&file), 0o600, "{name}");
            assert_eq!(mode_of(&path), 0o700, "{name}");
        }
    }
    tear_down(&case.directory, &mounts()).unwrap();
}

#[test]
fn a_volume_in_memory_is_mounted_once_with_its_size_and_unmounted() {
    let case = case();
    let volumes = r#"{"name":"m","emptyDir":{"medium":"Memory","sizeLimit":"1Mi"}}"#;
    let before = fs::metadata(case.temporary.path()).unwrap().dev();
    for _ in 0..2 {
        case.set_up(volumes).unwrap();
    }
    let path = case.empty_dir("m");
    assert_ne!(fs::metadata(&path).unwrap().dev(), before);
    assert_eq!(mounts().below(&path).count(), 1);
    let size = nix::sys::statvfs::statvfs(&path).unwrap();
    assert_eq!(size.blocks() * size.fragment_size(), 1 << 20);
    fs::write(path.join("file"), "x").unwrap();
    tear_down(&case.directory, &mounts()).unwrap();
    assert_eq!(mounts().below(case.temporary.path()).count(), 0);
    assert!(!path.exists());
}

#[test]
fn a_volume_in_memory_is_never_in_swap_where_the_kernel_can_promise_it() {
    let case = case();
    case.set_up(r#"{"name":"m","emptyDir":{"medium":"Memory"}}"#)
        .unwrap();
    let is_promised = |path: &Path| {
        let path = path.canonicalize().unwrap();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let at = format!(" {} ", path.display());
        let mount = table.lines().find(|line| line.contains(&at)).unwrap();
        mount.split([' ', ',']).any(|option| option == "noswap")
    };
    // Unmounted with the others.
    let scratch = case.empty_dir("scratch");
    fs::create_dir(&scratch).unwrap();
    let (kind, flags) = (Some("tmpfs"), nix::mount::MsFlags::empty());
    match nix::mount::mount(kind, &scratch, kind, flags, Some("noswap")) {
        Ok(()) => assert!(is_promised(&scratch) && is_promised(&case.empty_dir("m"))),
        Err(error) => {
            assert_eq!(error, nix::errno::Errno::EINVAL);
            // Past the capture of a test's output: it passes without having tried.
            let told = "not tried here: memory without swap: this kernel cannot promise it";
            writeln!(std::io::stdout(), "{told}").unwrap();
        }
    }
}

#[test]
fn the_pods_memory_limit_bounds_a_volume_in_memory() {
    let case = case();
    let limited = pod(
        r#"{"spec":{"containers":[{"name":"c","resources":{"limits":{"memory":"2Mi"},
            "requests":{"memory":"1Mi"}}}],"volumes":[{"name":"m","emptyDir":{"medium":"Memory"}}]}}"#,
    );
    case.set_up_pod(&limited).unwrap();
    let size = nix::sys::statvfs::statvfs(&case.empty_dir("m")).unwrap();
    assert_eq!(size.blocks() * size.fragment_size(), 2 << 20);
}

#[test]
fn a_mount_that_a_container_left_in_a_volume_goes_and_its_files_stay() {
    let case = case();
    case.set_up(r#"{"name":"v","emptyDir":{}}"#).unwrap();
    let outside = case.temporary.path().join("outside");
    let target = case.empty_dir("v").join("inner");
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(&target).unwrap();
    fs::write(outside.join("canary"), "alive").unwrap();
    let bind = nix::mount::MsFlags::MS_BIND;
    nix::mount::mount(Some(&outside), &target, None::<&str>, bind, None::<&str>).unwrap();
    tear_down(&case.directory, &mounts()).unwrap();
    assert!(!case.empty_dir("v").exists());
    assert_eq!(fs::read(outside.join("canary")).unwrap(), b"alive");
}

#[test]
fn a_mount_of_another_kind_of_volume_is_somebodys_data_and_stays() {
    let case = case();
    let claim = case
        .directory
        .path()
        .join("volumes/kubernetes.io~csi/pvc/mount");
    fs::create_dir_all(&claim).unwrap();
    nix::mount::mount(
        Some("tmpfs"),
        &claim,
        Some("tmpfs"),
        nix::mount::MsFlags::empty(),
        None::<&str>,
    )
    .unwrap();
    fs::write(claim.join("canary"), "alive").unwrap();
    tear_down(&case.directory, &mounts()).unwrap();
    let error = check_nothing_mounted(&case.directory, &mounts()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("mount: something is still mounted there"),
        "{error}"
    );
    assert_eq!(fs::read(claim.join("canary")).unwrap(), b"alive");
}

#[test]
fn a_link_planted_in_the_place_of_a_volume_is_not_followed() {
    let case = case();
    fs::create_dir_all(case.temporary.path().join("outside")).unwrap();
    fs::write(case.temporary.path().join("outside/canary"), "alive").unwrap();
    let kind = case.directory.path().join(VOLUMES);
    fs::create_dir_all(kind.join(EMPTY_DIR)).unwrap();
    symlink(
        case.temporary.path().join("outside"),
        kind.join(EMPTY_DIR).join("v"),
    )
    .unwrap();
    let error = case.set_up(r#"{"name":"v","emptyDir":{}}"#).unwrap_err();
    assert!(error.to_string().contains("it is a link"), "{error}");
    tear_down(&case.directory, &mounts()).unwrap();
    assert_eq!(
        fs::read(case.temporary.path().join("outside/canary")).unwrap(),
        b"alive"
    );
}

#[test]
fn what_cannot_be_set_up_is_told_in_the_kubelets_words() {
    let case = case();
    let message = |volumes: &str| case.set_up(volumes).unwrap_err().to_string();
    assert_eq!(
        message(r#"{"name":"h","hostPath":{"path":"/dev/null","type":"Directory"}}"#),
        "MountVolume.SetUp failed for volume \"h\" : hostPath type check failed: /dev/null is \
         not a directory"
    );
    assert!(message(r#"{"name":"x","nfs":{"server":"s","path":"/"}}"#).contains("not supported"));
    assert!(message(r#"{"name":"x","emptyDir":{"medium":"HugePages"}}"#).contains("HugePages"));
    for name in ["", "..", "a/b", "A"] {
        assert!(
            case.set_up(&format!(r#"{{"name":"{name}","emptyDir":{{}}}}"#))
                .is_err()
        );
    }
}

#[test]
fn what_no_container_mounts_is_neither_looked_for_nor_made() {
    let case = case();
    let missing = case.temporary.path().join("missing");
    let unmounted = pod(&format!(
        r#"{{"spec":{{"containers":[{{"name":"c","image":"i"}}],"volumes":[
            {{"name":"h","hostPath":{{"path":{missing:?},"type":"DirectoryOrCreate"}}}}]}}}}"#
    ));
    assert!(case.set_up_pod(&unmounted).unwrap().is_empty());
    assert!(!missing.exists());
}

/// An init container made the volume private; the next container's start looks at it again.
#[test]
fn an_empty_dir_stays_as_its_containers_changed_it() {
    let case = case();
    let mut pod = with_volumes(r#"{"name":"v","emptyDir":{}}"#);
    let context = pod
        .spec
        .as_mut()
        .unwrap()
        .security_context
        .get_or_insert_default();
    context.fs_group = Some(4711);
    case.set_up_pod(&pod).unwrap();
    let path = case.empty_dir("v");
    let look = || {
        let status = fs::metadata(&path).unwrap();
        (status.mode() & 0o7777, status.gid())
    };
    assert_eq!(look(), (0o2777, 4711));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o1700)).unwrap();
    chown(&path, Some(1000), Some(1000)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o1700)).unwrap();
    case.set_up_pod(&pod).unwrap();
    assert_eq!(look(), (0o1700, 1000));
    // One that was cut short before it got its name is made again, whatever it had by then.
    let volumes = path.parent().unwrap();
    let cut_short = volumes.join(".bulkhead-v");
    for (mode, group) in [(0o755, 0), (0o777, 0), (0o777, 4711), (0o2777, 4711)] {
        fs::remove_dir(&path).unwrap();
        fs::create_dir(&cut_short).unwrap();
        chown(&cut_short, Some(0), Some(group)).unwrap();
        chmod(&cut_short, mode);
        case.set_up_pod(&pod).unwrap();
        assert_eq!(look(), (0o2777, 4711), "{mode:o} {group}");
        assert_eq!(fs::read_dir(volumes).unwrap().count(), 1);
    }
    tear_down(&case.directory, &mounts()).unwrap();
}

#[test]
fn an_empty_dir_has_the_mode_that_its_pod_chooses() {
    let case = case();
    let volumes = r#"{"name":"v","emptyDir":{"mode":488}},
        {"name":"m","emptyDir":{"medium":"Memory","mode":488}}"#;
    for (group, mode) in [(None, 0o750), (Some(4711), 0o2770)] {
        let mut pod = with_volumes(volumes);
        let context = &mut pod.spec.as_mut().unwrap().security_context;
        context.get_or_insert_default().fs_group = group;
        for _ in 0..2 {
            case.set_up_pod(&pod).unwrap();
            for name in ["v", "m"] {
                assert_eq!(mode_of(&case.empty_dir(name)), mode, "{name} {group:?}");
            }
        }
        tear_down(&case.directory, &mounts()).unwrap();
    }
}

/// Says so where not.
fn has_huge_pages() -> bool {
    let has = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists();
    if !has {
        let told = "not tried here: volumes in huge pages of 2 MiB: this kernel has none";
        let mut output = std::io::stdout();
        writeln!(output, "{told}").unwrap();
    }
    has
}

#[test]
fn an_empty_dir_in_huge_pages_is_a_file_system_of_that_page_size() {
    if !has_huge_pages() {
        return;
    }
    let case = case();
    let mut pod = with_volumes(
        r#"{"name":"v","emptyDir":{"medium":"HugePages","sizeLimit":"4Mi"}},
           {"name":"w","emptyDir":{"medium":"HugePages-2Mi"}}"#,
    );
    let resources = r#"{"requests":{"hugepages-2Mi":"0"}}"#;
    pod.spec.as_mut().unwrap().containers[0].resources =
        Some(serde_json::from_str(resources).unwrap());
    for _ in 0..2 {
        case.set_up_pod(&pod).unwrap();
        for (name, blocks) in [("v", 2), ("w", 0)] {
            let path = case.empty_dir(name);
            let table = mounts();
            let path = path.canonicalize().unwrap();
            assert_eq!(table.filesystem(&path), Some("hugetlbfs"));
            let found = nix::sys::statvfs::statvfs(&path).unwrap();
            assert_eq!(
                (found.block_size(), found.blocks()),
                (2 << 20, blocks),
                "{name}"
            );
            let mode = fs::metadata(&path).unwrap().mode();
            assert_eq!(mode & 0o7777, 0o777);
            assert_eq!(table.below(&path).count(), 1, "it is mounted once");
        }
    }
    tear_down(&case.directory, &mounts()).unwrap();
    assert!(!case.empty_dir("v").exists());
}

#[test]
fn huge_pages_are_given_to_the_group_of_their_pod_once() {
    if !has_huge_pages() {
        return;
    }
    let case = case();
    let mut pod = with_volumes(r#"{"name":"v","emptyDir":{"medium":"HugePages-2Mi"}}"#);
    let spec = pod.spec.as_mut().unwrap();
    let resources = r#"{"requests":{"hugepages-2Mi":"0"}}"#;
    spec.containers[0].resources = Some(serde_json::from_str(resources).unwrap());
    let context = spec.security_context.get_or_insert_default();
    context.fs_group = Some(4711);
    case.set_up_pod(&pod).unwrap();
    let path = case.empty_dir("v");
    let file = path.join("file");
    assert_eq!(fs::metadata(&path).unwrap().gid(), 4711);
    assert_eq!(mode_of(&path), 0o2777);
    fs::write(&file, "").unwrap();
    assert_eq!(fs::metadata(&file).unwrap().gid(), 4711);
    chmod(&file, 0o600);
    chmod(&path, 0o700);
    case.set_up_pod(&pod).unwrap();
    // What is made there belongs to the group still, which is no harm to what is there.
    assert_eq!((mode_of(&file), mode_of(&path)), (0o600, 0o2700));
    tear_down(&case.directory, &mounts()).unwrap();
}
