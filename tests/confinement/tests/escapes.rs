//! Each process, confined as the supervisor and its own `main` confine it, tries what it
//! must not be able to do. Needs root, as the supervisor does.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use confine::{CapabilitySet, Launch, OwnNamespace, landlock_lacks, spawn};
use nix::fcntl::OFlag;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::pipe2;
use node_config::{DirectoryLayout, NodeConfig};
use tempfile::TempDir;
use topology::{Capability, Namespace, PROCESSES, Process, ProcessRow, row};

/// A user without an account, and in the user's groups.
const UID: u32 = 64_322;

/// Those that the kernel holds to their files.
const HELD: [Process; 5] = [
    Process::StatusSyncer,
    Process::Pleg,
    Process::Prober,
    Process::ConfigSourcer,
    Process::SyncLoop,
];

/// What attempts came to, by their names.
type Answers = BTreeMap<String, String>;

/// Descriptors with low numbers must not be closed while a child is spawned.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory with what is attempted to be opened, where modes alone would permit all
/// but what belongs to root.
struct Sandbox {
    directory: TempDir,
    _socket: UnixListener,
    _abstract_socket: UnixListener,
    _port: TcpListener,
}

impl Sandbox {
    fn new(process: Process) -> Sandbox {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["state/own", "state/other", "etc/manifests", "open"] {
            fs::create_dir_all(at(name)).unwrap();
            fs::write(at(name).join("a"), "").unwrap();
            for path in [at(name), at(name).join("a")] {
                fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
            }
        }
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let socket = UnixListener::bind(at("root.sock")).unwrap();
        fs::set_permissions(at("root.sock"), Permissions::from_mode(0o660)).unwrap();
        let address =
            SocketAddr::from_abstract_name(directory.path().as_os_str().as_encoded_bytes());
        let abstract_socket = UnixListener::bind_addr(&address.unwrap()).unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let number = port.local_addr().unwrap().port().to_string();
        fs::write(at("state/own/port"), number).unwrap();
        let mut layout = DirectoryLayout::below(directory.path());
        layout.state_dir = at("states");
        fs::create_dir(&layout.state_dir).unwrap();
        std::os::unix::fs::symlink(at("state/own"), layout.state(process)).unwrap();
        let mut config = NodeConfig::with_defaults("node", layout);
        config.static_pod_path = Some(at("etc/manifests"));
        fs::write(at("node.json"), serde_json::to_vec(&config).unwrap()).unwrap();
        chown(at("node.json"), Some(UID), None).unwrap();
        Sandbox {
            directory,
            _socket: socket,
            _abstract_socket: abstract_socket,
            _port: port,
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Runs the program as `process`, in its own user unless that is root, with the
/// capabilities of its row and `more`.
fn attempts(process: Process, weakened: &[&str], more: &[Capability]) -> Answers {
    let _alone = one_at_a_time();
    let sandbox = Sandbox::new(process);
    // Where the user can reach it.
    let program: PathBuf = sandbox.path().join("escape");
    fs::copy(env!("CARGO_BIN_EXE_escape"), &program).unwrap();
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let mut arguments = vec![
        process.name().into(),
        sandbox.path().join("node.json").into(),
        sandbox.path().into(),
    ];
    arguments.extend(weakened.iter().map(Into::into));
    let id = if row(process).root { 0 } else { UID };
    let own = row(process).capabilities.iter().map(|(name, _)| *name);
    let capabilities = CapabilitySet::of(own.chain(more.iter().copied())).unwrap();
    let mut namespaces = Vec::new();
    if !weakened.contains(&"namespaces") {
        let own = row(process).namespaces.iter().copied();
        namespaces.extend(own.map(|kind| OwnNamespace::make(kind).unwrap()));
    }
    let spawned = spawn(&Launch {
        binary: &program,
        arguments: &arguments,
        environment: &[],
        uid: id,
        gid: id,
        capabilities: capabilities.intersection(CapabilitySet::available().unwrap()),
        open_files: Some(100),
        cgroups: &[],
        namespaces: &namespaces,
        oom_score: None,
        listeners: &[],
        output: writer.as_fd(),
    });
    drop(writer);
    let mut output = String::new();
    File::from(reader).read_to_string(&mut output).unwrap();
    let status = waitpid(spawned.unwrap(), None).unwrap();
    assert!(
        matches!(status, WaitStatus::Exited(_, 0)),
        "{status:?}: {output}"
    );
    let answers = output.lines().filter_map(|line| line.split_once(' '));
    answers
        .map(|(name, answer)| (name.to_owned(), answer.to_owned()))
        .collect()
}

/// What each attempt of `process` is to come to.
fn expected(process: Process) -> Answers {
    let has_state = HELD.contains(&process) && process != Process::Pleg;
    let reads_manifests = process == Process::ConfigSourcer;
    let internet = [Process::Prober, Process::ConfigSourcer].contains(&process);
    let permitted = |if_so: bool, otherwise: &'static str| match if_so {
        true => "permitted",
        false => otherwise,
    };
    let all = [
        ("own-state", permitted(has_state, "EACCES")),
        ("write-own-state", permitted(has_state, "EACCES")),
        ("state-of-another", "EACCES"),
        ("listed-manifest", permitted(reads_manifests, "EACCES")),
        ("write-manifest", "EACCES"),
        ("file-of-anybody", "EACCES"),
        ("write-to-anybody", "EACCES"),
        ("shadow", "EACCES"),
        ("process-1", "EACCES"),
        ("environment-of-another", "EACCES"),
        ("device-of-the-machine", "EACCES"),
        ("socket-of-root", "EACCES"),
        (
            "tcp-listen",
            permitted(false, if internet { "EACCES" } else { "EPERM" }),
        ),
        ("tcp-connect", permitted(internet, "EPERM")),
        ("port-of-the-node", permitted(internet, "EPERM")),
        (
            "abstract-socket",
            if internet { "EPERM" } else { "ECONNREFUSED" },
        ),
        ("raw-socket", "EPERM"),
        ("netlink", "EPERM"),
        ("packets", "EPERM"),
        ("mount", "EPERM"),
        ("user-namespace", "EPERM"),
        ("network-namespace", "EPERM"),
        ("chroot", "EPERM"),
        ("host-name", "EPERM"),
        ("trace", "EPERM"),
        ("signal", "EPERM"),
        ("root", "EPERM"),
        ("exec", "EPERM"),
        ("start-a-program", "EPERM"),
        ("device", "EPERM"),
    ];
    all.iter()
        .map(|(name, answer)| ((*name).to_owned(), (*answer).to_owned()))
        .collect()
}

/// Of the pool, which is root and has its capabilities: what its filter refuses.
const REFUSED_TO_THE_POOL: [&str; 11] = [
    "tcp-listen",
    "tcp-connect",
    "raw-socket",
    "netlink",
    "packets",
    "user-namespace",
    "network-namespace",
    "chroot",
    "trace",
    "exec",
    "start-a-program",
];

#[test]
fn no_process_escapes() {
    if !landlock_lacks().is_empty() {
        return;
    }
    for process in HELD {
        assert_eq!(attempts(process, &[], &[]), expected(process), "{process}");
    }
}

#[test]
fn the_pool_starts_nothing_traces_nobody_and_has_no_network() {
    let answers = attempts(Process::PodWorkerPool, &[], &[]);
    for attempt in REFUSED_TO_THE_POOL {
        assert_eq!(answers.get(attempt).unwrap(), "EPERM", "{attempt}");
    }
}

/// Also who got rid of its filter and of Landlock has nobody to speak to.
#[test]
fn an_empty_network_reaches_nobody() {
    let reached = |process, weakened: &[&str]| {
        let mut answers = attempts(process, weakened, &[]);
        ["port-of-the-node", "abstract-socket"].map(|name| answers.remove(name).unwrap())
    };
    let of = |row: &&ProcessRow| row.namespaces.contains(&Namespace::Network);
    for process in PROCESSES.iter().filter(of).map(|row| row.process) {
        let answers = reached(process, &["seal"]);
        assert_eq!(answers, ["ENETUNREACH", "ECONNREFUSED"], "{process}");
        let answers = reached(process, &["seal", "namespaces"]);
        assert_eq!(answers, ["permitted", "permitted"], "{process}");
    }
    // By its filter alone the pool would reach the socket.
    let [_port, socket] = reached(Process::PodWorkerPool, &[]);
    assert_eq!(socket, "ECONNREFUSED");
    let [_port, socket] = reached(Process::PodWorkerPool, &["namespaces"]);
    assert_eq!(socket, "permitted");
}

/// Each of these would be noticed by the tests above.
#[test]
fn a_weaker_confinement_shows() {
    if !landlock_lacks().is_empty() {
        return;
    }
    let pool = attempts(Process::PodWorkerPool, &[], &[]);
    let weaker: &[(Process, &[&str], &[Capability])] = &[
        (Process::Pleg, &["seal"], &[]),
        (Process::Pleg, &["namespaces"], &[]),
        (Process::SyncLoop, &["namespaces"], &[]),
        (Process::Pleg, &["files"], &[]),
        (Process::Pleg, &["another-directory"], &[]),
        (Process::Pleg, &["writable-manifests"], &[]),
        (Process::Pleg, &["internet"], &[]),
        (Process::Pleg, &["programs"], &[]),
        (Process::Pleg, &["mounts"], &[]),
        (Process::ConfigSourcer, &["seal"], &[]),
        (Process::ConfigSourcer, &["files"], &[]),
        (Process::ConfigSourcer, &["writable-manifests"], &[]),
        (Process::ConfigSourcer, &["programs"], &[]),
        (Process::SyncLoop, &["files"], &[]),
        (Process::StatusSyncer, &["internet"], &[]),
        (Process::Prober, &["programs"], &[]),
        (Process::Prober, &["another-directory"], &[]),
        (Process::Prober, &["seal"], &[Capability("CAP_NET_RAW")]),
        (Process::Pleg, &["files"], &[Capability("CAP_DAC_OVERRIDE")]),
        (Process::PodWorkerPool, &["seal"], &[]),
        (Process::PodWorkerPool, &["internet"], &[]),
        (Process::PodWorkerPool, &["programs"], &[]),
    ];
    for (process, weakened, more) in weaker {
        let answers = attempts(*process, weakened, more);
        match process {
            Process::PodWorkerPool => {
                let is_refused = |attempt: &&str| answers.get(*attempt) == pool.get(*attempt);
                assert!(!REFUSED_TO_THE_POOL.iter().all(is_refused), "{weakened:?}");
            }
            _ => assert_ne!(
                answers,
                expected(*process),
                "{process} {weakened:?} {more:?}"
            ),
        }
    }
}
