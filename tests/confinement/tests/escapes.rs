//! Each process, confined as the supervisor and its own `main` confine it, tries what it
//! must not be able to do. Needs root, as the supervisor does.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fs::{self, File, Permissions};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use confine::{CapabilitySet, Hold, Launch, OwnNamespace, landlock_version, spawn};
use confinement::Starter;
use confinement::escapes::{
    Answers, HELD, Sandbox, answers, different, expected, hidden, keeps_state,
};
use nix::fcntl::OFlag;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::pipe2;
use topology::{Capability, Namespace, PROCESSES, Process, ProcessRow, row};

/// A user without an account, and in the user's groups.
const UID: u32 = 64_322;

/// Descriptors with low numbers must not be closed while a child is spawned.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the program as `process`, in its own user unless that is root, with the
/// capabilities of its row and `more`.
fn attempts(process: Process, weakened: &[&str], more: &[Capability]) -> Answers {
    let _alone = one_at_a_time();
    let directory = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(directory.path(), process, UID).unwrap();
    // Where the user can reach it.
    let programs = &sandbox.config().directories.bin_dir;
    fs::create_dir(programs).unwrap();
    fs::set_permissions(programs, Permissions::from_mode(0o755)).unwrap();
    let program: PathBuf = programs.join("escape");
    fs::copy(env!("CARGO_BIN_EXE_escape"), &program).unwrap();
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let mut arguments = vec![
        process.name().into(),
        sandbox.path().join("node.json").into(),
        sandbox.path().into(),
    ];
    arguments.extend(weakened.iter().map(Into::into));
    let is_root = row(process).root || weakened.contains(&"as-root");
    let id = if is_root { 0 } else { UID };
    let own = row(process).capabilities.iter().map(|(name, _)| *name);
    let capabilities = CapabilitySet::of(own.chain(more.iter().copied())).unwrap();
    let mut namespaces = Vec::new();
    if !weakened.contains(&"namespaces") {
        // With the node's mounts each attempt shows what else keeps it from the node's files.
        let own = row(process).namespaces.iter().copied();
        let own = own.filter(|kind| *kind != Namespace::Mount || weakened.contains(&"own-mounts"));
        let mut view = process::view(sandbox.config(), process);
        view.files.read.push(sandbox.path().join("node.json"));
        namespaces.extend(own.map(|kind| OwnNamespace::make(kind, &view).unwrap()));
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
    answers(&output)
}

/// What the running kernel is to make of the attempts.
fn expected_here(process: Process) -> Answers {
    expected(process, Starter::Supervisor, landlock_version())
}

#[test]
fn no_process_escapes() {
    for process in HELD {
        assert_eq!(
            attempts(process, &[], &[]),
            expected_here(process),
            "{process}"
        );
    }
}

fn assert_refused(process: Process) {
    let told = attempts(process, &[], &[]);
    let different = different(&expected_here(process), &told);
    assert_eq!(different, Vec::<String>::new(), "{process}");
}

/// Also who got rid of its filter and of Landlock sees only what its row lists.
#[test]
fn mounts_of_its_own_show_nothing_else() {
    for process in HELD.into_iter().chain([Process::CredentialProvider]) {
        let answers = attempts(process, &["seal", "own-mounts"], &[]);
        for (attempt, answer) in hidden(process) {
            assert_eq!(answers.get(&attempt), Some(&answer), "{process} {attempt}");
        }
        // All together hide what Landlock alone does not.
        let answers = attempts(process, &["own-mounts"], &[]);
        assert_eq!(answers["socket-of-anybody"], "ENOENT", "{process}");
        let may_open = answers["own-state"] == "permitted";
        assert_eq!(may_open, keeps_state(process), "{process}");
    }
}

/// All that holds credential-provider is what its user may open, and its mounts.
#[test]
fn its_mounts_keep_who_starts_programs_from_what_others_leave() {
    let process = Process::CredentialProvider;
    let without = attempts(process, &[], &[]);
    let with = attempts(process, &["own-mounts"], &[]);
    for (attempt, hidden) in hidden(process) {
        assert_eq!(with[&attempt], hidden, "{attempt}");
        let is_by_mounts = without[&attempt] == "permitted";
        let is_by_user = ["shadow", "environment-of-another", "socket-of-root"];
        assert_eq!(is_by_mounts, !is_by_user.contains(&&*attempt), "{attempt}");
    }
    for attempt in ["write-own-state", "start-a-program"] {
        assert_eq!(with[attempt], "permitted", "{attempt}");
    }
}

#[test]
fn the_pool_starts_nothing_traces_nobody_and_has_no_network() {
    assert_refused(Process::PodWorkerPool);
}

#[test]
fn who_starts_programs_gets_no_namespace_and_no_strange_socket() {
    assert_refused(Process::Supervisor);
    assert_refused(Process::CredentialProvider);
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

/// What a weaker confinement does not hold a process to that Landlock alone would.
const OF_FILES: [&str; 3] = ["files", "another-directory", "writable-manifests"];

/// Each of these would be noticed by the tests above.
#[test]
fn a_weaker_confinement_shows() {
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
        (Process::PodWorkerPool, &["namespaces"], &[]),
        (Process::PodWorkerPool, &["mount-namespaces"], &[]),
        (Process::Pleg, &["as-root"], &[]),
        (Process::SyncLoop, &["file-events"], &[]),
        (Process::ConfigSourcer, &["mounts"], &[]),
        (Process::Supervisor, &["seal"], &[]),
        (Process::Supervisor, &[], &[Capability("CAP_NET_RAW")]),
        (Process::CredentialProvider, &["seal"], &[]),
        (Process::CredentialProvider, &["as-root"], &[]),
        (
            Process::CredentialProvider,
            &["mounts"],
            &[Capability("CAP_SYS_ADMIN")],
        ),
        (
            Process::CredentialProvider,
            &["mount-namespaces"],
            &[Capability("CAP_SYS_ADMIN")],
        ),
        (
            Process::CredentialProvider,
            &[],
            &[Capability("CAP_DAC_OVERRIDE")],
        ),
        (
            Process::CredentialProvider,
            &[],
            &[Capability("CAP_SETUID")],
        ),
        (
            Process::CredentialProvider,
            &[],
            &[Capability("CAP_NET_RAW")],
        ),
    ];
    for (process, weakened, more) in weaker {
        let told = attempts(*process, weakened, more);
        let different = different(&expected_here(*process), &told);
        // What is taken away is not there on a kernel without Landlock.
        let was_held = Hold::Files.is_in(landlock_version())
            || !more.is_empty()
            || !weakened.iter().all(|it| OF_FILES.contains(it));
        let shows = !different.is_empty();
        assert_eq!(shows, was_held, "{process} {weakened:?} {more:?}");
    }
}
