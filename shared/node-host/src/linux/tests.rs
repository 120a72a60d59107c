//! The real node in a directory of its own, without cgroups: those have their own tests.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use node_config::DirectoryLayout;
use node_layout::paths;
use pod::Pod;
use pod::PodExt as _;
use pod_volumes::{Files, FilesKind, VolumeFile, VolumeSpec};

use super::*;
use crate::test_rules;

fn pod(json: &str) -> Pod {
    serde_json::from_str(json).unwrap()
}

struct Case {
    temporary: tempfile::TempDir,
    node: LinuxNode,
}

fn case() -> Case {
    let temporary = tempfile::tempdir().unwrap();
    let at = |path: &str| temporary.path().join(path);
    let directories = DirectoryLayout {
        run_dir: at("run"),
        state_dir: at("state"),
        root_dir: at("root"),
        log_dir: at("log"),
        bin_dir: at("bin"),
    };
    let mut config = NodeConfig::with_defaults("n", directories);
    config.cgroups_per_qos = false;
    config.resolv_conf = Some(at("resolv.conf"));
    let system = SystemPaths {
        hosts_file: at("hosts"),
        ..SystemPaths::default()
    };
    let node = LinuxNode::with_system(&config, system).unwrap();
    Case { temporary, node }
}

impl Case {
    fn path(&self, path: &str) -> PathBuf {
        self.temporary.path().join(path)
    }
}

fn identity() -> PodIdentity {
    PodIdentity::new("u1", "ns", "web").unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn the_nodes_own_files_are_read_as_they_are_now() {
    let case = case();
    assert!(case.node.resolv_conf().await.is_err());
    fs::write(case.path("resolv.conf"), "nameserver 1.1.1.1\n").unwrap();
    let parsed = case.node.resolv_conf().await.unwrap().unwrap();
    assert_eq!(parsed.nameservers, ["1.1.1.1"]);
    assert_eq!(case.node.hosts_file().await.unwrap(), "");
    fs::write(case.path("hosts"), b"127.0.0.1 \xff\n").unwrap();
    assert_eq!(
        case.node.hosts_file().await.unwrap(),
        "127.0.0.1 \u{fffd}\n"
    );
}

#[tokio::test]
async fn a_pods_directories_are_made_with_the_kubelets_modes_and_removed() {
    let case = case();
    for _ in 0..2 {
        case.node.make_pod_directories(&identity()).await.unwrap();
    }
    for (path, expected) in [
        ("root/pods", 0o750),
        ("root/pods/u1", 0o750),
        ("root/pods/u1/volumes", 0o750),
        ("root/pods/u1/containers", 0o750),
        ("log/pods/ns_web_u1", 0o755),
    ] {
        assert_eq!(mode(&case.path(path)), expected, "{path}");
    }
    fs::create_dir(case.path("root/pods/not..a..uid")).unwrap();
    assert_eq!(case.node.pod_directories().await.unwrap(), ["u1"]);
    assert_eq!(case.node.pod_logs().await.unwrap(), [identity()]);
    for _ in 0..2 {
        case.node.remove_pod_directory("u1").await.unwrap();
        case.node.remove_pod_logs(&identity()).await.unwrap();
    }
    assert!(case.node.pod_directories().await.unwrap().is_empty());
    assert!(case.node.pod_logs().await.unwrap().is_empty());
}

#[tokio::test]
async fn uids_and_names_that_could_be_paths_reach_no_file() {
    let case = case();
    fs::create_dir_all(case.path("root/pods")).unwrap();
    for uid in ["", "..", "../pods", "a/b", "."] {
        assert!(
            case.node.remove_pod_directory(uid).await.is_err(),
            "{uid:?}"
        );
        assert!(case.node.tear_down_volumes(uid).await.is_err(), "{uid:?}");
        assert!(case.node.pod_id_range(uid, &[]).await.is_err(), "{uid:?}");
        assert!(
            case.node.write_hosts_file(uid, "x").await.is_err(),
            "{uid:?}"
        );
    }
    for container in ["", "..", "../../x", "a/b", "A"] {
        let made = case
            .node
            .make_container_files(&identity(), container, 1)
            .await;
        assert!(made.is_err(), "{container:?}");
        assert!(
            case.node.open_log(&identity(), container, 0).await.is_err(),
            "{container:?}"
        );
    }
    assert_eq!(fs::read_dir(case.path("root")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_pod_has_the_same_ids_until_its_directory_is_gone() {
    let case = case();
    let range = async |uid: &str| case.node.pod_id_range(uid, &[]).await.unwrap().first;
    assert_eq!((range("u1").await, range("u2").await), (65_536, 131_072));
    // What is written is all that counts: another process goes on with it.
    let file = case.path("root/pods/u1").join(paths::USER_NAMESPACE);
    assert_eq!(mode(&file), 0o600);
    let again = LinuxNode::with_system(&case.node.shared.config, SystemPaths::default()).unwrap();
    assert_eq!(again.pod_id_range("u2", &[]).await.unwrap().first, 131_072);
    case.node.remove_pod_directory("u1").await.unwrap();
    assert_eq!((range("u3").await, range("u1").await), (65_536, 196_608));
}

#[tokio::test]
async fn no_range_is_given_while_nobody_knows_which_ids_another_pod_has() {
    let case = case();
    case.node.pod_id_range("u1", &[]).await.unwrap();
    let file = case.path("root/pods/u1").join(paths::USER_NAMESPACE);
    fs::write(&file, "x".repeat(5000)).unwrap();
    for uid in ["u1", "u2"] {
        let error = case
            .node
            .pod_id_range(uid, &[])
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("UID \"u1\" cannot be read"), "{error}");
    }
}

#[tokio::test]
async fn a_hosts_file_is_written_when_it_says_something_else() {
    let case = case();
    let path = case.node.write_hosts_file("u1", "one\n").await.unwrap();
    assert_eq!(path, paths::hosts_file(&case.path("root"), "u1"));
    assert_eq!(mode(&path), 0o644);
    let written_at = || fs::metadata(&path).unwrap().mtime_nsec();
    let before = written_at();
    case.node.write_hosts_file("u1", "one\n").await.unwrap();
    assert_eq!(written_at(), before);
    case.node.write_hosts_file("u1", "two\n").await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"two\n");
}

/// Or a container that runs would write, uncounted, to one that has no name any more.
#[tokio::test]
async fn a_hosts_file_that_a_container_has_changed_stays_the_one_that_it_has_mounted() {
    let case = case();
    let path = case.node.write_hosts_file("u1", "one\n").await.unwrap();
    let mut mounted = File::options().append(true).open(&path).unwrap();
    for changed in ["one\nmore\n", "other\n", ""] {
        fs::write(&path, changed).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        case.node.write_hosts_file("u1", "two\n").await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two\n");
        assert_eq!(mode(&path), 0o644);
        mounted.write_all(b"mine\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two\nmine\n");
    }
}

#[tokio::test]
async fn a_hosts_file_is_written_through_no_link_and_is_a_regular_file() {
    let case = case();
    let path = case.node.write_hosts_file("u1", "one\n").await.unwrap();
    let outside = case.path("outside");
    fs::write(&outside, "mine").unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&outside, &path).unwrap();
    assert!(case.node.write_hosts_file("u1", "two\n").await.is_err());
    assert_eq!(fs::read(&outside).unwrap(), b"mine");
    fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(case.node.write_hosts_file("u1", "two\n").await.is_err());
}

#[tokio::test]
async fn what_containers_write_to_files_that_are_no_volumes_counts_until_they_are_gone() {
    let case = case();
    let (node, pod) = (&case.node, identity());
    let used = async || node.pod_files_usage(&pod, &[]).await.unwrap().other;
    let hosts = node.write_hosts_file("u1", "one\n").await.unwrap();
    let files = node.make_container_files(&pod, "c", 3).await.unwrap();
    let log = files.termination_log;
    let before = used().await;
    fs::write(&log, vec![1; 5 << 20]).unwrap();
    let with_log = used().await;
    assert_eq!((with_log.bytes - before.bytes) >> 20, 5, "{with_log:?}");
    // Blocks that are allocated count, also where the file is as long as before.
    let mounted = File::options().write(true).open(&hosts).unwrap();
    let unseen = nix::fcntl::FallocateFlags::FALLOC_FL_KEEP_SIZE;
    nix::fcntl::fallocate(&mounted, unseen, 0, 6 << 20).unwrap();
    assert_eq!(fs::metadata(&hosts).unwrap().len(), 4);
    let with_both = used().await;
    assert_eq!((with_both.bytes - with_log.bytes) >> 20, 5, "{with_both:?}");
    // An instance that is removed has left its file for nobody.
    node.make_container_files(&pod, "c", 4).await.unwrap();
    for _ in 0..2 {
        node.remove_log(&pod, "c", "id3", 3).await.unwrap();
    }
    assert!(!log.exists() && log.with_file_name("00000004").exists());
    node.tear_down_volumes("u1").await.unwrap();
    assert!(used().await.bytes <= before.bytes, "{:?}", used().await);
    node.remove_log(&pod, "d", "id", 0).await.unwrap();
}

#[tokio::test]
async fn files_of_config_maps_count_as_with_a_kubelet() {
    let case = case();
    let (node, pod) = (&case.node, Pod::default());
    let file = VolumeFile {
        content: vec![1; 5 << 20].into(),
        mode: 0o644,
        user: None,
        group: None,
    };
    let volume = Volume {
        name: "v".to_owned(),
        spec: VolumeSpec::Files(Files {
            kind: FilesKind::ConfigMap,
            files: [("a".to_owned(), file)].into(),
        }),
    };
    node.make_volumes(&identity(), &pod, &[volume], &test_rules::any(&pod))
        .await
        .unwrap();
    let used = node.pod_files_usage(&identity(), &[]).await.unwrap();
    assert_eq!(used.other.bytes >> 20, 5, "{used:?}");
}

#[tokio::test]
async fn a_termination_message_is_the_end_of_its_file() {
    let case = case();
    let files = case
        .node
        .make_container_files(&identity(), "c", 0xbeef)
        .await
        .unwrap();
    let log = files.termination_log;
    assert_eq!(
        log,
        paths::container(&case.path("root"), "u1", "c").join("0000beef")
    );
    assert_eq!(mode(&log), 0o666);
    assert!(case.path("log/pods/ns_web_u1/c").is_dir());
    let read = |limit| case.node.read_termination_log("u1", &log, limit);
    assert_eq!(read(10).await.unwrap(), b"");
    fs::write(&log, "0123456789").unwrap();
    assert_eq!(read(100).await.unwrap(), b"0123456789");
    // What is not of the message is not kept, whether it is before or behind it.
    assert_eq!(read(4).await.unwrap(), b"6789");
    assert_eq!(read(100).await.unwrap(), b"6789");
    let unseen = nix::fcntl::FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let opened = File::options().write(true).open(&log).unwrap();
    nix::fcntl::fallocate(&opened, unseen, 0, 5 << 20).unwrap();
    assert_eq!(read(4096).await.unwrap(), b"6789");
    assert!(fs::metadata(&log).unwrap().blocks() < 200);
    fs::remove_file(&log).unwrap();
    assert_eq!(read(4).await.unwrap(), b"");
}

/// A disk that had an error is often mounted anew, for reading alone.
#[tokio::test]
async fn a_termination_message_is_read_from_a_disk_that_can_only_be_read() {
    let case = case();
    let files = case.node.make_container_files(&identity(), "c", 1).await;
    let log = files.unwrap().termination_log;
    fs::write(&log, "0123456789").unwrap();
    let root = case.path("root");
    let mount = |flags| nix::mount::mount(Some(&root), &root, None::<&str>, flags, None::<&str>);
    mount(nix::mount::MsFlags::MS_BIND).unwrap();
    let read_only = mount(
        nix::mount::MsFlags::MS_BIND
            | nix::mount::MsFlags::MS_REMOUNT
            | nix::mount::MsFlags::MS_RDONLY,
    );
    let read = case.node.read_termination_log("u1", &log, 4).await;
    nix::mount::umount(&root).unwrap();
    read_only.unwrap();
    assert_eq!(read.unwrap(), b"6789");
    assert_eq!(fs::read(&log).unwrap(), b"0123456789");
}

/// A kill in the midst of cutting it would leave a mixture.
#[tokio::test]
async fn a_termination_message_that_overlaps_with_its_place_is_not_cut() {
    let case = case();
    let files = case.node.make_container_files(&identity(), "c", 1).await;
    let log = files.unwrap().termination_log;
    for (bytes, left) in [(4, 4), (5, 5), (7, 7), (8, 4), (9, 4)] {
        fs::write(&log, &b"0123456789"[..bytes]).unwrap();
        let read = case.node.read_termination_log("u1", &log, 4).await.unwrap();
        assert_eq!(read, &b"0123456789"[bytes - 4..bytes]);
        assert_eq!(fs::metadata(&log).unwrap().len(), left, "{bytes}");
    }
}

#[tokio::test]
async fn a_termination_message_is_only_read_from_the_pods_own_files() {
    let case = case();
    let files = case
        .node
        .make_container_files(&identity(), "c", 1)
        .await
        .unwrap();
    fs::write(case.path("secret"), "secret").unwrap();
    let own = files.termination_log.parent().unwrap();
    for file in [
        case.path("secret"),
        PathBuf::from("/etc/passwd"),
        own.join("../../../../../secret"),
        own.to_owned(),
        own.join("a/b"),
        case.path("root/pods/u2/containers/c/00000001"),
    ] {
        let outcome = case.node.read_termination_log("u1", &file, 100).await;
        assert!(outcome.is_err(), "{file:?}");
    }
    symlink(case.path("secret"), own.join("link")).unwrap();
    assert!(
        case.node
            .read_termination_log("u1", &own.join("link"), 100)
            .await
            .is_err()
    );
    nix::unistd::mkfifo(&own.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(
        case.node
            .read_termination_log("u1", &own.join("pipe"), 100)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn logs_are_found_by_attempt_and_removed_with_their_rotations_and_link() {
    let case = case();
    let (node, pod) = (&case.node, identity());
    assert_eq!(node.last_log_attempt(&pod, "c").await.unwrap(), None);
    assert!(node.open_log(&pod, "c", 0).await.unwrap().is_none());
    node.make_container_files(&pod, "c", 1).await.unwrap();
    let logs = case.path("log/pods/ns_web_u1/c");
    for name in ["0.log", "1.log", "1.log.20261120-101500.gz", "10.log"] {
        fs::write(logs.join(name), name).unwrap();
    }
    assert_eq!(node.last_log_attempt(&pod, "c").await.unwrap(), Some(10));
    let log = node.open_log(&pod, "c", 1).await.unwrap().unwrap();
    assert_eq!(log.size().await.unwrap(), 5);
    assert_eq!(log.read_at(2, 100).await.unwrap(), b"log");

    for _ in 0..2 {
        node.link_log(&pod, "c", "id1", 1).await.unwrap();
    }
    let link = case.path("log/containers/web_ns_c-id1.log");
    assert_eq!(fs::read_link(&link).unwrap(), logs.join("1.log"));
    for _ in 0..2 {
        node.remove_log(&pod, "c", "id1", 1).await.unwrap();
    }
    assert!(fs::symlink_metadata(&link).is_err());
    let left: Vec<_> = fs::read_dir(&logs).unwrap().collect();
    assert_eq!(left.len(), 2);
    // The file stays readable for who has opened it.
    assert_eq!(log.read_at(0, 1).await.unwrap(), b"1");
    let again = node.open_log(&pod, "c", 10).await.unwrap().unwrap();
    assert_ne!(again.identity(), log.identity());
}

#[tokio::test]
async fn only_our_links_whose_log_is_gone_are_pruned() {
    let case = case();
    let (node, pod) = (&case.node, identity());
    node.prune_log_links().await.unwrap();
    node.make_container_files(&pod, "c", 1).await.unwrap();
    fs::write(case.path("log/pods/ns_web_u1/c/0.log"), "").unwrap();
    node.link_log(&pod, "c", "kept", 0).await.unwrap();
    node.link_log(&pod, "c", "gone", 7).await.unwrap();
    // It is being rotated: the runtime makes the file anew in a moment.
    fs::write(case.path("log/pods/ns_web_u1/c/3.log.20261120-101500"), "").unwrap();
    node.link_log(&pod, "c", "rotated", 3).await.unwrap();
    symlink("/nowhere", case.path("log/containers/foreign.log")).unwrap();
    fs::write(case.path("log/containers/file.log"), "").unwrap();
    node.prune_log_links().await.unwrap();
    let mut left: Vec<_> = fs::read_dir(case.path("log/containers"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    let ours = ["web_ns_c-kept.log", "web_ns_c-rotated.log"];
    assert_eq!(left[..2], ["file.log", "foreign.log"]);
    assert_eq!(left[2..], ours);
}

#[tokio::test]
async fn a_log_that_is_a_link_or_a_pipe_is_not_opened() {
    let case = case();
    let pod = identity();
    case.node.make_container_files(&pod, "c", 1).await.unwrap();
    let logs = case.path("log/pods/ns_web_u1/c");
    symlink("/etc/passwd", logs.join("0.log")).unwrap();
    nix::unistd::mkfifo(&logs.join("1.log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for attempt in [0, 1] {
        assert!(
            case.node.open_log(&pod, "c", attempt).await.is_err(),
            "{attempt}"
        );
    }
}

/// Work on the volumes of a pod that is begun, and then given up by who asked for it. It
/// ends when this sends or is dropped.
async fn begin_on_volumes(node: &LinuxNode, uid: &str) -> std::sync::mpsc::Sender<()> {
    let (started, begun) = tokio::sync::oneshot::channel();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let hung = node.run_on_volumes(uid, move |_| {
        started.send(()).unwrap();
        let _ = finished.recv();
        Ok(())
    });
    tokio::select! {
        _ = hung => unreachable!("it cannot be done yet"),
        outcome = begun => outcome.unwrap(),
    }
    finish
}

/// What this comes to; it may not wait for anything that hangs.
async fn at_once<Value>(work: impl Future<Output = Result<Value, NodeError>>) -> Value {
    let done = tokio::time::timeout(Duration::from_secs(60), work).await;
    done.expect("it waits for what hangs").unwrap()
}

#[tokio::test]
async fn work_on_volumes_waits_for_work_that_nobody_waits_for_any_more() {
    let case = case();
    let finish = begin_on_volumes(&case.node, "u1").await;
    at_once(case.node.run_on_volumes("u2", |_| Ok(()))).await;
    let mut same_pod = Box::pin(case.node.run_on_volumes("u1", |_| Ok(())));
    let mut removal = case.node.remove_pod_directory("u1");
    assert!(futures_util::poll!(same_pod.as_mut()).is_pending());
    assert!(futures_util::poll!(removal.as_mut()).is_pending());
    finish.send(()).unwrap();
    same_pod.await.unwrap();
    removal.await.unwrap();
}

#[tokio::test]
async fn volumes_that_hang_hold_up_nothing_else_of_their_pod() {
    let case = case();
    let (node, pod) = (&case.node, identity());
    node.make_pod_directories(&pod).await.unwrap();
    let _hung = begin_on_volumes(node, pod.uid()).await;
    at_once(node.make_pod_directories(&pod)).await;
    at_once(node.write_hosts_file("u1", "one\n")).await;
    let files = at_once(node.make_container_files(&pod, "c", 1)).await;
    fs::write(&files.termination_log, "bye").unwrap();
    let message = node.read_termination_log("u1", &files.termination_log, 10);
    assert_eq!(at_once(message).await, b"bye");
    let resources = pod::resources::pod_cgroup_resources(&Pod::default());
    at_once(node.ensure_pod_cgroup("u1", QosClass::BestEffort, resources)).await;
    at_once(node.remove_pod_cgroup("u1")).await;
    at_once(node.remove_pod_logs(&pod)).await;
}

#[tokio::test]
async fn volumes_are_set_up_in_the_pods_directory() {
    let case = case();
    let with_volume = pod(r#"{"spec":{"containers":[],"volumes":[{"name":"v","emptyDir":{}}]}}"#);
    assert_eq!(with_volume.volumes().len(), 1);
    let volumes = case
        .node
        .make_volumes(
            &identity(),
            &with_volume,
            &test_rules::wanted(&with_volume),
            &test_rules::any(&with_volume),
        )
        .await
        .unwrap();
    let path = paths::empty_dir(&case.path("root"), "u1", "v");
    assert_eq!(volumes["v"].host_path, path);
    case.node.tear_down_volumes("u1").await.unwrap();
    assert!(!path.exists() && case.path("root/pods/u1").exists());
    case.node.tear_down_volumes("u2").await.unwrap();
}

#[test]
fn what_the_machine_has_takes_one_thread_however_often_it_is_asked_for() {
    let mut case = case();
    let meminfo = case.path("proc/meminfo");
    fs::create_dir(case.path("proc")).unwrap();
    // Whoever opens it waits for who writes it.
    nix::unistd::mkfifo(&meminfo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let proc_dir = case.path("proc");
    Arc::get_mut(&mut case.node.shared).unwrap().system.proc_dir = proc_dir;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(2).build();
    let runtime = runtime.unwrap();
    let other = runtime.block_on(async {
        for _ in 0..100 {
            let mut asked = case.node.capacity();
            assert!(futures_util::poll!(asked.as_mut()).is_pending());
        }
        tokio::time::timeout(Duration::from_secs(60), case.node.hosts_file()).await
    });
    // Those who wait go on.
    let _meminfo = File::options().read(true).write(true).open(&meminfo);
    runtime.shutdown_background();
    assert_eq!(other.unwrap().unwrap(), "");
}
