//! The calls of those who neither start programs nor mount: what the async runtime, the
//! C library and files of state take.

use nix::libc;
use seccompiler::{Error, SeccompRule};

use super::calls::Calls;
use super::rule::{NAMESPACES, Rules, WRITE_AND_EXECUTE, all_of, is, masked};

/// With any arguments.
const ANY: &[i64] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    // Threads, and waiting for each other.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    // It has a filter of its own.
    libc::SYS_clone3,
    // Signals. To another process only where its user is the same, and Landlock has
    // an eye on that too.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    // Time.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    // Events.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pipe2,
    // Files, as far as Landlock and their modes permit.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_renameat2,
    libc::SYS_renameat,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_umask,
    // Sockets. Which families there are is the business of socket(2).
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    // What it is itself, and how much of everything there is.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_capget,
];

/// The same, which other processors have no more.
#[cfg(target_arch = "x86_64")]
const ANY_HERE: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_rename,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_pipe,
    libc::SYS_epoll_wait,
    libc::SYS_dup2,
    libc::SYS_accept,
    libc::SYS_arch_prctl,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ANY_HERE: &[i64] = &[libc::SYS_accept];

/// inotify(7).
const FILE_EVENTS: &[i64] = &[
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
];

/// Commands to descriptors that change nothing but how they are read (ioctl(2)).
const COMMANDS: &[u64] = &[libc::FIONBIO, libc::FIOCLEX, libc::FIONREAD, libc::TCGETS];

/// What a process may tell the kernel of itself: the names of its threads.
const OF_ITSELF: &[i32] = &[
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_GET_DUMPABLE,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_CAPBSET_READ,
];

/// The rules of a process that needs these.
pub(super) fn rules(calls: Calls) -> Result<Rules, Error> {
    let mut rules = Rules::new();
    let mut permit = |calls: &[i64]| rules.extend(calls.iter().map(|call| (*call, Vec::new())));
    permit(ANY);
    permit(ANY_HERE);
    if calls.file_events {
        permit(FILE_EVENTS);
    }
    // Another thread of this process, in the namespaces of this process.
    let looked_at = NAMESPACES
        .iter()
        .fold(libc::CLONE_THREAD, |all, it| all | it);
    let thread = all_of(vec![masked(0, looked_at, libc::CLONE_THREAD)?])?;
    rules.insert(libc::SYS_clone, vec![thread]);

    // What can be written is never run. Libraries are loaded by who looks up names: those
    // that nsswitch.conf(5) names by then. A file that the process has written itself is
    // on a mount of which nothing is run.
    let mut mapped = vec![all_of(vec![masked(2, libc::PROT_EXEC, 0)?])?];
    if calls.internet {
        let to_run = masked(2, WRITE_AND_EXECUTE, libc::PROT_EXEC)?;
        mapped.push(all_of(vec![to_run])?);
    }
    rules.insert(libc::SYS_mmap, mapped);
    let not_to_run = all_of(vec![masked(2, libc::PROT_EXEC, 0)?])?;
    rules.insert(libc::SYS_mprotect, vec![not_to_run]);

    let mut families = vec![libc::AF_UNIX];
    if calls.internet {
        families.extend([libc::AF_INET, libc::AF_INET6]);
    }
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        let of_family = families.iter().map(|family| all_of(vec![is(0, *family)?]));
        rules.insert(call, of_family.collect::<Result<_, _>>()?);
    }
    let commands = COMMANDS.iter().map(|command| {
        let command = i32::try_from(*command).unwrap_or_default();
        all_of(vec![is(1, command)?])
    });
    rules.insert(libc::SYS_ioctl, commands.collect::<Result<_, _>>()?);
    let of_itself = OF_ITSELF.iter().map(|option| all_of(vec![is(0, *option)?]));
    let mut of_itself: Vec<SeccompRule> = of_itself.collect::<Result<_, _>>()?;
    // That nobody traces it, and never the reverse: it could then write to its own code, in
    // /proc/self/mem.
    of_itself.push(all_of(vec![is(0, libc::PR_SET_DUMPABLE)?, is(1, 0)?])?);
    rules.insert(libc::SYS_prctl, of_itself);
    Ok(rules)
}
