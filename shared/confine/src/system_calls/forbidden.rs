//! What is forbidden to those who may make most calls: supervisor, pod-worker-pool, and
//! credential-provider with the programs that it runs.

use nix::libc;
use seccompiler::{Error, SeccompRule};

use super::calls::Calls;
use super::rule::{NAMESPACES, Rules, WRITE_AND_EXECUTE, all_of, masked, none_of};
use crate::namespaces::ENTERED;

/// Calls by which programs have got more than they were given, and calls that set up the
/// machine: nothing of ours, nor a program that gives credentials, needs them.
const FOR_ALL: &[i64] = &[
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
    libc::SYS_chroot,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
];

/// The same, which only this processor has.
#[cfg(target_arch = "x86_64")]
const FOR_ALL_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const FOR_ALL_HERE: &[i64] = &[libc::SYS_kexec_file_load];

/// Forbidden to who mounts nothing and starts nobody who does.
const MOUNTS: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
];

/// Forbidden to who makes no mount namespaces for others, which have a root directory of
/// their own.
const OWN_ROOT: &[i64] = &[libc::SYS_pivot_root];

/// Forbidden to who starts no programs: also what would run memory that was written, by
/// attaching it or by making all that is read run as well.
const PROGRAMS: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_shmat,
    libc::SYS_personality,
];

#[cfg(target_arch = "x86_64")]
const PROGRAMS_HERE: &[i64] = &[libc::SYS_fork, libc::SYS_vfork, libc::SYS_uselib];
#[cfg(not(target_arch = "x86_64"))]
const PROGRAMS_HERE: &[i64] = &[];

/// The kind that who puts others into namespaces makes again, by unshare(2): what they are
/// to see changes with the configuration.
const MADE_AGAIN: i32 = libc::CLONE_NEWNS;

/// Of time (Linux 5.6); the libc crate does not have it everywhere.
const CLONE_NEWTIME: i32 = 0x80;

/// The rules of a process that needs these.
pub(super) fn rules(calls: Calls) -> Result<Rules, Error> {
    let mut forbidden = [FOR_ALL, FOR_ALL_HERE].concat();
    if !calls.mounts {
        forbidden.extend(MOUNTS);
    }
    if !calls.namespaces {
        forbidden.extend(OWN_ROOT);
    }
    if !calls.programs {
        forbidden.extend(PROGRAMS);
        forbidden.extend(PROGRAMS_HERE);
    }
    let mut rules: Rules = forbidden
        .into_iter()
        .map(|call| (call, Vec::new()))
        .collect();
    // Threads may part with each other in all else: one that makes directories for volumes
    // has a umask of its own.
    let mut unshared = [&NAMESPACES[..], &[CLONE_NEWTIME]].concat();
    unshared.retain(|flag| !(calls.namespaces && *flag == MADE_AGAIN));
    rules.insert(libc::SYS_unshare, with_one_of(&unshared)?);
    rules.insert(libc::SYS_setns, entering(calls)?);
    let mut cloned = with_one_of(&NAMESPACES)?;
    let families = none_of(0, families(calls))?;
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        rules.insert(call, vec![families.clone()]);
    }
    if !calls.programs {
        cloned.push(all_of(vec![masked(0, libc::CLONE_THREAD, 0)?])?);
        // All of its code is loaded by then, but for libraries of who looks up names.
        let mapped = match calls.internet {
            true => WRITE_AND_EXECUTE,
            false => libc::PROT_EXEC,
        };
        for (call, bits) in [
            (libc::SYS_mmap, mapped),
            (libc::SYS_mprotect, libc::PROT_EXEC),
            (libc::SYS_pkey_mprotect, libc::PROT_EXEC),
        ] {
            rules.insert(call, vec![all_of(vec![masked(2, bits, bits)?])?]);
        }
    }
    rules.insert(libc::SYS_clone, cloned);
    Ok(rules)
}

/// Of setns(2): all, or all kinds but those that processes have of their own.
fn entering(calls: Calls) -> Result<Vec<SeccompRule>, Error> {
    if !calls.namespaces {
        return Ok(Vec::new());
    }
    Ok(vec![none_of(1, &ENTERED)?])
}

/// Of socket(2) and socketpair(2): what is not refused. The C library learns by netlink(7)
/// which addresses there are, in programs that ask registries.
fn families(calls: Calls) -> &'static [i32] {
    match calls.internet {
        true => &[
            libc::AF_UNIX,
            libc::AF_INET,
            libc::AF_INET6,
            libc::AF_NETLINK,
        ],
        false => &[libc::AF_UNIX],
    }
}

/// Matches flags, the first argument, that have one of these.
fn with_one_of(flags: &[i32]) -> Result<Vec<SeccompRule>, Error> {
    let each = flags
        .iter()
        .map(|flag| all_of(vec![masked(0, *flag, *flag)?]));
    each.collect()
}
