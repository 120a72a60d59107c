//! What is forbidden to those who may make most calls: supervisor, pod-worker-pool, and
//! credential-provider with the programs that it runs.

use nix::libc;
use seccompiler::{Error, SeccompRule};

use super::calls::Calls;
use super::rule::{Rules, WRITE_AND_EXECUTE, all_of, is, is_not, masked};
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

/// Forbidden to who starts no programs.
const PROGRAMS: &[i64] = &[libc::SYS_execve, libc::SYS_execveat];

#[cfg(target_arch = "x86_64")]
const PROGRAMS_HERE: &[i64] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const PROGRAMS_HERE: &[i64] = &[];

/// Of unshare(2): namespaces. Threads may part with each other: one that makes directories
/// for volumes has a umask of its own.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWCGROUP,
    CLONE_NEWTIME,
];

/// The kind that who puts others into namespaces makes again: what they are to see changes
/// with the configuration.
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
    let namespaces = NAMESPACES
        .iter()
        .filter(|flag| !(calls.namespaces && **flag == MADE_AGAIN))
        .map(|flag| all_of(vec![masked(0, *flag, *flag)?]));
    rules.insert(libc::SYS_unshare, namespaces.collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_setns, entering(calls)?);
    if !calls.programs {
        let process = all_of(vec![masked(0, libc::CLONE_THREAD, 0)?])?;
        rules.insert(libc::SYS_clone, vec![process]);
        for call in [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
            let both = all_of(vec![masked(2, WRITE_AND_EXECUTE, WRITE_AND_EXECUTE)?])?;
            rules.insert(call, vec![both]);
        }
        if !calls.internet {
            let families = [
                libc::AF_INET,
                libc::AF_INET6,
                libc::AF_NETLINK,
                libc::AF_PACKET,
            ];
            let sockets = families.map(|family| all_of(vec![is(0, family)?]));
            rules.insert(
                libc::SYS_socket,
                sockets.into_iter().collect::<Result<_, _>>()?,
            );
        }
    }
    Ok(rules)
}

/// Of setns(2): all, or all kinds but those that processes have of their own.
fn entering(calls: Calls) -> Result<Vec<SeccompRule>, Error> {
    if !calls.namespaces {
        return Ok(Vec::new());
    }
    let others = ENTERED.map(|kind| is_not(1, kind));
    let others = others.into_iter().collect::<Result<_, _>>()?;
    Ok(vec![all_of(others)?])
}
