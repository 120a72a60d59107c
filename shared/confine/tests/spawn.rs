//! Real children, looked at from inside and outside. They need root, as the
//! supervisor does.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use confine::{
    CapabilitySet, ChildEnding, Confinement, Files, Launch, OwnNamespace, SpawnError, View,
    find_ended_child, reap, spawn,
};
use nix::fcntl::OFlag;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, pipe2};
use topology::{Capability, Namespace, Process, Sight, row};

const UID: u32 = 64_321;

/// As setpriv(1) tells them: user 0 gives no capabilities, and that cannot be undone.
const SECURE_BITS: &str = "Securebits: noroot,noroot_locked,no_setuid_fixup,no_setuid_fixup_locked";

struct Ran {
    status: WaitStatus,
    output: String,
}

fn shell<'a>(script: &str, output: BorrowedFd<'a>, arguments: &'a mut Vec<OsString>) -> Launch<'a> {
    *arguments = vec!["-c".into(), script.into()];
    Launch {
        binary: Path::new("/bin/sh"),
        arguments,
        environment: &[],
        uid: UID,
        gid: UID,
        capabilities: CapabilitySet::EMPTY,
        open_files: Some(100),
        cgroups: &[],
        namespaces: &[],
        oom_score: None,
        listeners: &[],
        output,
    }
}

/// Descriptors with low numbers must not be closed while a child is spawned.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run<'a>(
    script: &str,
    listeners: &'a [(&'a str, BorrowedFd<'a>)],
    change: impl FnOnce(&mut Launch<'_>),
) -> Result<Ran, SpawnError> {
    run_in(&[], script, listeners, change)
}

fn run_in<'a>(
    namespaces: &'a [OwnNamespace],
    script: &str,
    listeners: &'a [(&'a str, BorrowedFd<'a>)],
    change: impl FnOnce(&mut Launch<'_>),
) -> Result<Ran, SpawnError> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let mut arguments = Vec::new();
    let mut launch = shell(script, writer.as_fd(), &mut arguments);
    launch.listeners = listeners;
    launch.namespaces = namespaces;
    change(&mut launch);
    let spawned = spawn(&launch);
    drop(writer);
    let mut output = String::new();
    File::from(reader).read_to_string(&mut output).unwrap();
    let status = waitpid(spawned?, None).unwrap();
    Ok(Ran { status, output })
}

fn line<'a>(output: &'a str, name: &str) -> &'a str {
    let line = output.lines().find(|line| line.starts_with(name));
    line.unwrap_or_else(|| panic!("no {name} in {output}"))
}

#[test]
fn a_child_has_its_user_and_nothing_else() {
    let _alone = one_at_a_time();
    let ran = run(
        "cat /proc/self/status; setpriv --dump; umask; ulimit -c; ulimit -Hn; pwd; env",
        &[],
        |_launch| {},
    )
    .unwrap();
    assert_eq!(ran.status, WaitStatus::Exited(pid_of(ran.status), 0));
    let values = |name| {
        line(&ran.output, name)
            .split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
    };
    assert_eq!(values("Uid:"), ["64321"; 4]);
    assert_eq!(values("Gid:"), ["64321"; 4]);
    assert_eq!(values("Groups:"), [""; 0]);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(values(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(values("NoNewPrivs:"), ["1"]);
    assert_eq!(line(&ran.output, "Securebits:"), SECURE_BITS);
    let limits = "\n0077\n0\n100\n/\n";
    assert!(ran.output.contains(limits), "{}", ran.output);
    assert!(
        !ran.output.contains("CARGO"),
        "nothing is inherited: {}",
        ran.output
    );
}

#[test]
fn each_run_is_in_the_same_namespaces_and_the_caller_is_not() {
    let _alone = one_at_a_time();
    let kinds = [Namespace::Network, Namespace::Ipc];
    let own = kinds.map(|kind| OwnNamespace::make(kind, &View::default()).unwrap());
    let script = "readlink /proc/self/ns/net /proc/self/ns/ipc; tail -n +3 /proc/net/dev";
    let [first, again] = [(); 2].map(|()| {
        let ran = run_in(&own, script, &[], |_launch| {}).unwrap();
        assert_eq!(ran.status, WaitStatus::Exited(pid_of(ran.status), 0));
        ran.output
    });
    assert_eq!(first, again);
    for kind in kinds {
        let path = Path::new("/proc/self/ns").join(kind.file_name());
        let callers = std::fs::read_link(path).unwrap();
        let callers = callers.to_str().unwrap();
        assert!(!first.contains(callers), "{kind:?} {first}");
    }
    let devices: Vec<_> = first.lines().skip(kinds.len()).collect();
    assert!(
        devices.iter().all(|line| line.trim().starts_with("lo:")),
        "{devices:?}"
    );
}

#[test]
fn a_child_with_mounts_of_its_own_sees_what_it_is_shown_and_no_process() {
    let _alone = one_at_a_time();
    let node = tempfile::tempdir().unwrap();
    let node = node.path().canonicalize().unwrap();
    for name in ["shown", "state", "hidden"] {
        let directory = node.join(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("file"), "").unwrap();
        for path in [directory.join("file"), directory] {
            std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        }
    }
    let at = |name: &str| node.join(name);
    symlink("shown", at("link")).unwrap();
    let view = View {
        files: Files {
            read: vec![at("link")],
            write: vec![at("state")],
        },
        programs: ["/bin", "/lib", "/lib64", "/usr"].map(PathBuf::from).into(),
        sight: Sight::Listed,
    };
    let mounts = [OwnNamespace::make(Namespace::Mount, &view).unwrap()];
    let script = format!(
        "cd {}; ls; ls link/; touch link/file; touch state/file && echo changed; \
         set -- /proc/[0-9]*; echo $#; touch /tmp/x /x; /usr/bin/true && echo runs; \
         chmod 755 state/file; cp /usr/bin/true state/file; state/file",
        node.display()
    );
    let ran = run_in(&mounts, &script, &[], |_launch| {}).unwrap();
    let lines: Vec<&str> = ran.output.lines().collect();
    let expected = [
        "link",
        "shown",
        "state",
        "file",
        "touch: cannot touch 'link/file': Read-only file system",
        "changed",
        // The shell, which lists the processes without starting one.
        "1",
        "touch: cannot touch '/tmp/x': Read-only file system",
        "touch: cannot touch '/x': Read-only file system",
        "runs",
    ];
    assert_eq!(
        lines.get(..expected.len()),
        Some(&expected[..]),
        "{lines:#?}"
    );
    assert!(ran.output.ends_with("Permission denied\n"), "{lines:#?}");
}

/// Mounts of a process that starts programs of the node, with these files.
fn beside_the_node(files: Files) -> [OwnNamespace; 1] {
    let sight = row(Process::CredentialProvider).sight;
    assert_ne!(sight, Sight::Listed);
    let view = View {
        files,
        programs: Vec::new(),
        sight,
    };
    [OwnNamespace::make(Namespace::Mount, &view).unwrap()]
}

#[test]
fn a_child_beside_the_nodes_files_sees_what_others_leave_only_where_it_is_shown() {
    let _alone = one_at_a_time();
    let others = ["/tmp", "/var/tmp", "/dev/shm", "/run", "/home"].map(|directory| {
        let made = tempfile::tempdir_in(directory).unwrap();
        let make = |path: &Path| {
            std::fs::create_dir_all(path).unwrap();
            std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        };
        for name in ["shown", "state", "hidden"] {
            make(&made.path().join(name));
        }
        std::fs::set_permissions(made.path(), Permissions::from_mode(0o755)).unwrap();
        made
    });
    // A directory on the way that is not root's, as its owner is to be seen.
    chown(others[3].path(), Some(7), Some(8)).unwrap();
    let all = |name| others.iter().map(|it| it.path().join(name)).collect();
    let mounts = beside_the_node(Files {
        read: all("shown"),
        write: all("state"),
    });
    let scripts = others.each_ref().map(|it| {
        let path = it.path().display();
        format!("cd {path}; echo $(ls) $(stat -c %u:%g .); touch shown/x; touch state/x && echo y;")
    });
    let script = scripts.concat() + "set -- /proc/[0-9]*; echo $#";
    let ran = run_in(&mounts, &script, &[], |_launch| {}).unwrap();
    let lines: Vec<&str> = ran.output.lines().collect();
    let mut expected = ["0:0", "0:0", "0:0", "7:8", "0:0"]
        .map(|owner| {
            let refused = "touch: cannot touch 'shown/x': Read-only file system";
            [&format!("shown state {owner}"), refused, "y"].map(str::to_owned)
        })
        .concat();
    // The shell.
    expected.push("1".to_owned());
    assert_eq!(lines, expected);
    assert!(others.iter().all(|it| it.path().join("state/x").exists()));
}

#[test]
fn a_child_beside_the_nodes_files_reads_them_and_has_little_room() {
    let _alone = one_at_a_time();
    let mounts = beside_the_node(Files::default());
    let script = "echo $(ls /dev); echo x > /dev/null; head -c1 /dev/zero | wc -c; \
        echo in | cat /dev/stdin; for it in /tmp /var/tmp /dev/shm; do touch $it/x; \
        stat -c %a $it; head -c 40M /dev/zero > $it/x; stat -c %s $it/x; done; \
        cat /etc/hostname > /dev/null && echo $(ls /run /home /root); \
        cp /usr/bin/true /tmp/y; rm -f /dev/shm/x; \
        cp /usr/bin/true /dev/shm; /dev/shm/true; \
        touch /x /dev/x /run/x /home/x /usr/x /etc/x /var/lib/x /sys/x";
    let as_root = |launch: &mut Launch<'_>| {
        (launch.uid, launch.gid) = (0, 0);
        launch.capabilities = CapabilitySet::of([Capability("CAP_DAC_OVERRIDE")]).unwrap();
    };
    let ran = run_in(&mounts, script, &[], as_root).unwrap();
    let lines: Vec<&str> = ran.output.lines().collect();
    let full = "head: error writing 'standard output': No space left on device";
    let mut expected = vec![
        "fd full null random shm stderr stdin stdout urandom zero",
        "1",
        "in",
    ];
    for size in ["33554432", "16777216", "16777216"] {
        expected.extend(["1777", full, size]);
    }
    expected.extend([
        "/home: /root: /run:",
        "cp: error writing '/tmp/y': No space left on device",
    ]);
    let (first, rest) = lines.split_at(expected.len().min(lines.len()));
    assert_eq!(first, expected, "{lines:#?}");
    assert!(rest[0].ends_with("Permission denied"), "{rest:#?}");
    assert_eq!(rest.len(), 9);
    for line in &rest[1..] {
        assert!(line.ends_with("Read-only file system"), "{rest:#?}");
    }
    // Nobody else sees what is there.
    let again = run_in(&beside_the_node(Files::default()), "ls /tmp", &[], |_| {});
    assert_eq!(again.unwrap().output, "");
}

#[test]
fn root_keeps_only_what_is_named_also_over_another_exec() {
    let _alone = one_at_a_time();
    let kept = CapabilitySet::of([Capability("CAP_CHOWN"), Capability("CAP_KILL")]).unwrap();
    let script = "exec sh -c 'setpriv --dump; exec cat /proc/self/status'";
    let ran = run(script, &[], |launch| {
        (launch.uid, launch.gid, launch.capabilities) = (0, 0, kept);
    })
    .unwrap();
    assert_eq!(line(&ran.output, "Securebits:"), SECURE_BITS);
    for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
        let mask = format!("{set}\t{:016x}", kept.mask());
        assert_eq!(line(&ran.output, set), mask);
    }
}

#[test]
fn a_capability_that_is_not_available_is_refused_by_name_of_the_step() {
    let _alone = one_at_a_time();
    let lacking = CapabilitySet::from_mask(1 << 62);
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let mut arguments = Vec::new();
    let mut launch = shell("true", writer.as_fd(), &mut arguments);
    launch.capabilities = lacking;
    let error = spawn(&launch).unwrap_err();
    assert!(matches!(error, SpawnError::Start { .. }), "{error}");
    drop(writer);
    let mut output = String::new();
    File::from(reader).read_to_string(&mut output).unwrap();
    assert_eq!(output, "cannot set up the process: capabilities\n");
}

#[test]
fn listeners_arrive_from_descriptor_three_on_and_no_other_descriptor_does() {
    let _alone = one_at_a_time();
    let directory = tempfile::tempdir().unwrap();
    let open = |name: &str| UnixListener::bind(directory.path().join(name)).unwrap();
    let (first, second) = (open("a"), open("b"));
    // Inheritable on purpose: it must not reach the child.
    let stray = File::open("/dev/null").unwrap();
    nix::fcntl::fcntl(
        &stray,
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
    )
    .unwrap();
    let ran = run(
        "echo $LISTEN_FDS $LISTEN_FDNAMES; ls /proc/$$/fd; stat -Lc %F /proc/$$/fd/3 /proc/$$/fd/4",
        &[("a", first.as_fd()), ("b", second.as_fd())],
        |_launch| {},
    )
    .unwrap();
    assert_eq!(ran.output, "2 a:b\n0\n1\n2\n3\n4\nsocket\nsocket\n");
}

#[test]
fn a_missing_binary_is_an_error_and_leaves_no_child() {
    let _alone = one_at_a_time();
    let error = run("true", &[], |launch| {
        launch.binary = Path::new("/does/not/exist")
    });
    assert!(matches!(error, Err(SpawnError::Start { .. })));
}

#[test]
fn the_confinement_of_a_running_child_is_readable() {
    let _alone = one_at_a_time();
    let (_reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let mut arguments = Vec::new();
    // Stops itself: it neither ends nor runs until it is killed.
    let launch = shell("kill -STOP $$", writer.as_fd(), &mut arguments);
    let pid = spawn(&launch).unwrap();
    let confinement = Confinement::of(pid).unwrap();
    assert_eq!(
        (confinement.uid, confinement.effective),
        (UID, CapabilitySet::EMPTY)
    );
    assert_eq!(confinement.to_string(), "caps 0, nnp");
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    waitpid(pid, None).unwrap();
}

fn pid_of(status: WaitStatus) -> Pid {
    status.pid().unwrap()
}

#[test]
fn every_way_to_end_is_told_also_by_a_signal_without_a_name() {
    let _alone = one_at_a_time();
    for (script, ending) in [
        ("exit 0", ChildEnding::Exit(0)),
        ("exit 78", ChildEnding::Exit(78)),
        ("kill -KILL $$", ChildEnding::Signal(9)),
        ("kill -40 $$", ChildEnding::Signal(40)),
    ] {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
        let mut arguments = Vec::new();
        let pid = spawn(&shell(script, writer.as_fd(), &mut arguments)).unwrap();
        drop(writer);
        // The end of its output is the end of the process, or just before it.
        File::from(reader)
            .read_to_string(&mut String::new())
            .unwrap();
        assert_eq!(reap(pid).unwrap(), ending, "{script}");
        assert!(reap(pid).is_err(), "it is gone");
    }
    assert_eq!(find_ended_child().unwrap(), None);
}

#[test]
fn an_ended_child_is_found_until_it_is_reaped() {
    let _alone = one_at_a_time();
    let (_reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let mut arguments = Vec::new();
    let pid = spawn(&shell("kill -34 $$", writer.as_fd(), &mut arguments)).unwrap();
    while find_ended_child().unwrap().is_none() {
        std::thread::yield_now();
    }
    assert_eq!(find_ended_child().unwrap(), Some(pid));
    assert_eq!(reap(pid).unwrap(), ChildEnding::Signal(34));
    assert_eq!(find_ended_child().unwrap(), None);
}
