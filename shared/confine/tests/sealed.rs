//! What a sealed thread can no longer do. Filters and rules are a thread's own, so each
//! case has one, and the others of the test are not held to them.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]
#![expect(
    unsafe_code,
    reason = "the calls that are attempted have no safe wrapper: with arguments that are \
              all zero they harm nothing where they are permitted"
)]

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use confine::{Calls, Files, Hold, OwnNamespace, Permitted, View, landlock_version, seal};
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::unistd::{getpid, gettid};
use topology::Namespace;

/// Runs `act` in a thread that has sealed itself.
fn sealed<T: Send>(permitted: &Permitted, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let sealed = scope.spawn(|| {
            seal(permitted).unwrap();
            act()
        });
        sealed.join().unwrap()
    })
}

fn held_to_calls(calls: Calls) -> Permitted {
    Permitted { files: None, calls }
}

fn attempt(call: i64) -> Result<i64, Errno> {
    attempt_with(call, 0)
}

fn attempt_with(call: i64, flags: libc::c_int) -> Result<i64, Errno> {
    attempt_with_three(call, [flags, 0, 0])
}

fn attempt_with_three(call: i64, arguments: [libc::c_int; 3]) -> Result<i64, Errno> {
    let [first, second, third] = arguments;
    // SAFETY: none of the calls of this test writes to memory, or makes a process, with
    // these arguments.
    let answer = unsafe { libc::syscall(call, first, second, third, 0, 0, 0) };
    Errno::result(answer)
}

const POOL: Calls = Calls {
    internet: false,
    file_events: false,
    programs: false,
    mounts: true,
    namespaces: false,
};

const STARTS_PROGRAMS: Calls = Calls {
    internet: true,
    file_events: true,
    programs: true,
    mounts: true,
    namespaces: true,
};

/// Who is held to its files and loads libraries for the look-up of names.
const LOOKS_UP_NAMES: Calls = Calls {
    internet: true,
    file_events: true,
    programs: false,
    mounts: false,
    namespaces: false,
};

/// Of memory, on every machine.
const PAGE: usize = 4096;

/// As code is mapped.
const TO_RUN: libc::c_int = libc::PROT_READ | libc::PROT_EXEC;

#[test]
fn calls_that_nobody_needs_are_not_permitted_to_anybody() {
    for calls in [Calls::default(), POOL, STARTS_PROGRAMS] {
        for call in [
            libc::SYS_bpf,
            libc::SYS_userfaultfd,
            libc::SYS_perf_event_open,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_pidfd_getfd,
            libc::SYS_kcmp,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_setns,
            libc::SYS_chroot,
            libc::SYS_init_module,
            libc::SYS_kexec_load,
            libc::SYS_open_by_handle_at,
            libc::SYS_swapoff,
        ] {
            let answer = sealed(&held_to_calls(calls), || attempt(call));
            assert_eq!(answer, Err(Errno::EPERM), "{call} {calls:?}");
        }
    }
}

#[test]
fn threads_may_part_and_nobody_gets_a_namespace_but_mounts_for_others() {
    for calls in [POOL, STARTS_PROGRAMS] {
        sealed(&held_to_calls(calls), || {
            unshare(CloneFlags::CLONE_FS).unwrap();
            let mounts = OwnNamespace::make(Namespace::Mount, &View::default());
            assert_eq!(mounts.is_ok(), calls.namespaces, "{mounts:?} {calls:?}");
            if !calls.namespaces {
                assert_eq!(attempt(libc::SYS_pivot_root), Err(Errno::EPERM));
            }
            for namespace in [
                CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUSER,
                CloneFlags::CLONE_NEWUSER,
                CloneFlags::CLONE_NEWNET,
                CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_FS,
                CloneFlags::from_bits_retain(0x80),
            ] {
                assert_eq!(unshare(namespace), Err(Errno::EPERM), "{calls:?}");
            }
        });
    }
}

#[test]
fn nobody_makes_a_namespace_with_a_process_or_a_thread() {
    let own_stop = libc::CLONE_SIGHAND;
    let of_thread = libc::CLONE_THREAD;
    // The kernel itself refuses both without memory in common, in another way.
    for flags in [own_stop, of_thread] {
        assert_eq!(
            attempt_with(libc::SYS_clone, flags),
            Err(Errno::EINVAL),
            "{flags:x}"
        );
    }
    for calls in [Calls::default(), POOL, STARTS_PROGRAMS] {
        sealed(&held_to_calls(calls), || {
            for namespace in [
                libc::CLONE_NEWNS,
                libc::CLONE_NEWUTS,
                libc::CLONE_NEWIPC,
                libc::CLONE_NEWUSER,
                libc::CLONE_NEWPID,
                libc::CLONE_NEWNET,
                libc::CLONE_NEWCGROUP,
            ] {
                for flags in [own_stop | namespace, of_thread | namespace] {
                    let answer = attempt_with(libc::SYS_clone, flags);
                    assert_eq!(answer, Err(Errno::EPERM), "{flags:x} {calls:?}");
                }
            }
            // The C library goes back to clone(2).
            assert_eq!(attempt(libc::SYS_clone3), Err(Errno::ENOSYS), "{calls:?}");
        });
    }
}

#[test]
fn calls_by_the_numbers_of_another_interface_are_not_permitted() {
    const X32: i64 = 0x4000_0000;
    for calls in [Calls::default(), POOL, STARTS_PROGRAMS] {
        for call in [libc::SYS_getpid, libc::SYS_ptrace, libc::SYS_clone3] {
            let answer = sealed(&held_to_calls(calls), || attempt(X32 | call));
            assert_eq!(answer, Err(Errno::EPERM), "{call} {calls:?}");
        }
    }
}

#[test]
fn who_has_namespaces_for_others_enters_no_other_kind() {
    for (calls, may_enter) in [
        (STARTS_PROGRAMS, true),
        (POOL, false),
        (Calls::default(), false),
    ] {
        for (name, kind, is_for_others) in [
            ("net", CloneFlags::CLONE_NEWNET, true),
            ("ipc", CloneFlags::CLONE_NEWIPC, true),
            ("net", CloneFlags::empty(), false),
            ("uts", CloneFlags::CLONE_NEWUTS, false),
            ("cgroup", CloneFlags::CLONE_NEWCGROUP, false),
        ] {
            let file = File::open(Path::new("/proc/self/ns").join(name)).unwrap();
            let answer = sealed(&held_to_calls(calls), || setns(&file, kind));
            let expected = match may_enter && is_for_others {
                true => Ok(()),
                false => Err(Errno::EPERM),
            };
            assert_eq!(answer, expected, "{name} {kind:?} {calls:?}");
        }
    }
}

#[test]
fn who_neither_starts_programs_nor_mounts_may_do_neither() {
    for (call, may_pool) in [
        (libc::SYS_mount, true),
        (libc::SYS_umount2, true),
        (libc::SYS_fsopen, true),
        (libc::SYS_execve, false),
        (libc::SYS_execveat, false),
    ] {
        let answer = |calls| sealed(&held_to_calls(calls), || attempt(call));
        assert_eq!(answer(Calls::default()), Err(Errno::EPERM), "{call}");
        // The kernel finds a fault of its own with these arguments, or does not know them.
        let permitted = [Err(Errno::EFAULT), Err(Errno::EINVAL)];
        assert_eq!(permitted.contains(&answer(POOL)), may_pool, "{call}");
    }
}

#[test]
fn no_process_is_started_and_threads_are() {
    for calls in [Calls::default(), POOL] {
        sealed(&held_to_calls(calls), || {
            let refused = Command::new("/bin/true").status().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{calls:?}");
            assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
        });
    }
    let started = sealed(&held_to_calls(STARTS_PROGRAMS), || {
        Command::new("/bin/true").status()
    });
    assert!(started.unwrap().success());
}

/// A page of memory, of nothing or of a file.
fn map(protection: libc::c_int, file: Option<&File>) -> Result<*mut libc::c_void, Errno> {
    let (flags, file) = match file {
        Some(file) => (libc::MAP_PRIVATE, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: a new mapping, which nothing else uses.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, file, 0) };
    match page == libc::MAP_FAILED {
        true => Err(Errno::last()),
        false => Ok(page),
    }
}

fn protect(page: *mut libc::c_void, protection: libc::c_int) -> Result<(), Errno> {
    // SAFETY: the page is one of `map`, which nothing else uses.
    Errno::result(unsafe { libc::mprotect(page, PAGE, protection) }).map(drop)
}

/// What each way to run what was written comes to; `segment` is shared memory. It leaves
/// the thread with a personality of its own.
fn written_and_run(segment: libc::c_int) -> [(&'static str, Result<(), Errno>); 5] {
    let page = map(libc::PROT_READ | libc::PROT_WRITE, None).unwrap();
    // SAFETY: the page can be written to, and what is shared or protected is nothing else.
    let (keyed, attached, changed) = unsafe {
        *page.cast::<u8>() = 0xc3;
        let no_key = -1;
        (
            libc::syscall(libc::SYS_pkey_mprotect, page, PAGE, TO_RUN, no_key),
            libc::shmat(segment, std::ptr::null(), libc::SHM_EXEC) as libc::c_long,
            libc::personality(libc::READ_IMPLIES_EXEC as libc::c_ulong).into(),
        )
    };
    let came_to = |answer: libc::c_long| Errno::result(answer).map(drop);
    [
        ("at once", map(TO_RUN | libc::PROT_WRITE, None).map(drop)),
        ("afterwards", protect(page, TO_RUN)),
        ("afterwards, with a key", came_to(keyed)),
        ("shared", came_to(attached)),
        ("by a personality", came_to(changed)),
    ]
}

#[test]
fn what_can_be_written_is_never_run() {
    // SAFETY: numbers in, a number out.
    let segment = unsafe { libc::shmget(libc::IPC_PRIVATE, PAGE, 0o600) };
    assert_ne!(segment, -1);
    for calls in [Calls::default(), POOL, LOOKS_UP_NAMES] {
        let answers = sealed(&held_to_calls(calls), || written_and_run(segment));
        for (way, answer) in answers {
            assert_eq!(answer, Err(Errno::EPERM), "{way} {calls:?}");
        }
    }
    // It is the filter that refuses.
    let unsealed = std::thread::scope(|scope| scope.spawn(|| written_and_run(segment)).join());
    for (way, answer) in unsealed.unwrap() {
        assert_eq!(answer, Ok(()), "{way}");
    }
    // SAFETY: nobody else knows it.
    unsafe { libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut()) };
}

#[test]
fn who_looks_up_names_and_nobody_else_loads_libraries() {
    let library = File::open("/proc/self/exe").unwrap();
    let both = TO_RUN | libc::PROT_WRITE;
    for (calls, expected) in [
        (Calls::default(), Err(Errno::EPERM)),
        (POOL, Err(Errno::EPERM)),
        (LOOKS_UP_NAMES, Ok(())),
    ] {
        sealed(&held_to_calls(calls), || {
            let loaded = map(TO_RUN, Some(&library)).map(drop);
            assert_eq!(loaded, expected, "{calls:?}");
            // One of glibc's that nothing here has loaded before.
            let name = c"libnss_compat.so.2";
            // SAFETY: what it runs when it is loaded touches nothing of this test.
            let module = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            assert_eq!(module.is_null(), expected.is_err(), "{calls:?}");
            let changed = map(both, Some(&library)).map(drop);
            assert_eq!(changed, Err(Errno::EPERM), "{calls:?}");
            let read = map(libc::PROT_READ, Some(&library)).unwrap();
            assert_eq!(protect(read, TO_RUN), Err(Errno::EPERM), "{calls:?}");
        });
    }
}

/// Who could be traced by its own user could write to its own code, in `/proc/self/mem`.
#[test]
fn nobody_becomes_traceable_again() {
    for calls in [Calls::default(), LOOKS_UP_NAMES] {
        sealed(&held_to_calls(calls), || {
            assert_eq!(prctl::set_dumpable(true), Err(Errno::EPERM), "{calls:?}");
            assert_eq!(prctl::set_dumpable(false), Ok(()), "{calls:?}");
        });
    }
}

/// Families of which no socket is for anybody.
const STRANGE: [i32; 6] = [
    libc::AF_PACKET,
    libc::AF_ALG,
    libc::AF_VSOCK,
    libc::AF_TIPC,
    libc::AF_CAN,
    // The last that the kernel can count.
    i32::MAX,
];

/// Which of these families sockets are permitted of, whether or not the kernel has them.
fn sockets(calls: Calls, families: &[i32]) -> Vec<bool> {
    sealed(&held_to_calls(calls), || {
        let is_permitted = |family: &i32| {
            // SAFETY: a number in, a descriptor out, which ends with the test.
            let answer = unsafe { libc::socket(*family, libc::SOCK_DGRAM, 0) };
            Errno::result(answer) != Err(Errno::EPERM)
        };
        families.iter().map(is_permitted).collect()
    })
}

#[test]
fn sockets_of_other_families_are_for_who_needs_the_internet() {
    let usual = [
        libc::AF_UNIX,
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_NETLINK,
    ];
    let internet = Calls {
        internet: true,
        ..Calls::default()
    };
    for (calls, permitted) in [
        (Calls::default(), [true, false, false, false]),
        (POOL, [true, false, false, false]),
        (internet, [true, true, true, false]),
        (STARTS_PROGRAMS, [true, true, true, true]),
    ] {
        assert_eq!(sockets(calls, &usual), permitted, "{calls:?}");
        assert_eq!(sockets(calls, &STRANGE), [false; 6], "{calls:?}");
    }
}

#[test]
fn pairs_of_sockets_are_of_this_node() {
    for calls in [Calls::default(), POOL, STARTS_PROGRAMS] {
        let pair = |family| attempt_with(libc::SYS_socketpair, family);
        sealed(&held_to_calls(calls), || {
            assert_ne!(pair(libc::AF_UNIX), Err(Errno::EPERM), "{calls:?}");
            assert_eq!(pair(libc::AF_TIPC), Err(Errno::EPERM), "{calls:?}");
        });
    }
}

/// What opening a file came to.
fn kinds(answers: [io::Result<()>; 6]) -> [Option<ErrorKind>; 6] {
    answers.map(|answer| answer.err().map(|error| error.kind()))
}

#[test]
fn only_listed_files_are_opened() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["read", "write", "other"] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("a"), "").unwrap();
    }
    let permitted = Permitted {
        files: Some(Files {
            read: vec![at("read")],
            write: vec![at("write"), at("absent")],
        }),
        calls: Calls {
            internet: true,
            ..Calls::default()
        },
    };
    let read = |path: &Path| fs::read(path).map(drop);
    let found = sealed(&permitted, || {
        kinds([
            read(&at("read/a")),
            fs::write(at("read/a"), ""),
            read(&at("write/a")),
            fs::rename(at("write/a"), at("write/b")),
            read(&at("other/a")),
            fs::write(at("other/a"), ""),
        ])
    });
    let denied = Hold::Files
        .is_in(landlock_version())
        .then_some(ErrorKind::PermissionDenied);
    assert_eq!(found, [None, denied, None, None, denied, denied]);
}

#[test]
fn who_needs_the_internet_connects_and_nobody_listens() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let permitted = Permitted {
        files: Some(Files::default()),
        calls: Calls {
            internet: true,
            ..Calls::default()
        },
    };
    let may_not_listen = Hold::Tcp.is_in(landlock_version());
    sealed(&permitted, || {
        TcpStream::connect(address).unwrap();
        let bound = TcpListener::bind("127.0.0.1:0").map_err(|error| error.kind());
        let refused = bound.err() == Some(ErrorKind::PermissionDenied);
        assert_eq!(refused, may_not_listen);
    });
}

#[test]
fn who_is_held_to_its_files_signals_nobody_but_its_own_threads() {
    const NO_SIGNAL: libc::c_int = 0;
    // Of the same user, and it ends with its input.
    let mut cat = Command::new("cat");
    let mut other = cat.stdin(Stdio::piped()).spawn().unwrap();
    let pid = libc::pid_t::try_from(other.id()).unwrap();
    let answers = |files| {
        let calls = Calls::default();
        sealed(&Permitted { files, calls }, || {
            let (own_pid, own_thread) = (getpid().as_raw(), gettid().as_raw());
            [(pid, pid), (own_pid, own_thread)].map(|(process, thread)| {
                attempt_with_three(libc::SYS_tgkill, [process, thread, NO_SIGNAL])
            })
        })
    };
    let may_not_signal = Hold::Others.is_in(landlock_version());
    let to_other = match may_not_signal {
        true => Err(Errno::EPERM),
        false => Ok(0),
    };
    assert_eq!(answers(Some(Files::default())), [to_other, Ok(0)]);
    // The list of calls does not refuse it, nor does the kernel without Landlock.
    assert_eq!(answers(None), [Ok(0), Ok(0)]);
    drop(other.stdin.take());
    other.wait().unwrap();
}

#[test]
fn sockets_of_this_node_need_no_listed_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let _server = UnixListener::bind(&path).unwrap();
    let permitted = Permitted {
        files: Some(Files::default()),
        calls: Calls::default(),
    };
    sealed(&permitted, || {
        std::os::unix::net::UnixStream::connect(&path).unwrap();
    });
}
