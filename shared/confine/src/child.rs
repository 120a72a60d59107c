//! What the child does between fork and exec. Only async-signal-safe calls: no
//! allocation, no locks; everything it needs was computed before the fork.

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;

use nix::libc;

use crate::capabilities::{CapabilitySet, drop_bounding, set_thread};
use crate::namespaces::{Entrance, enter};

/// Where the listeners begin in the child, as `sd_listen_fds` has it.
pub const FIRST_LISTENER_DESCRIPTOR: i32 = 3;

/// Most listeners of one process: each process serves one socket; the rest is
/// room for one socket a client role.
pub const MAX_LISTENERS: usize = 8;

/// Most cgroups of one process: one a hierarchy.
pub const MAX_CGROUPS: usize = 8;

/// The file that says how likely the kernel is to kill the process when memory is
/// short, -1000 to 1000.
const OOM_SCORE_FILE: &CStr = c"/proc/self/oom_score_adj";

/// New files are for their owner alone; who wants more says so.
pub(crate) const UMASK: libc::mode_t = 0o077;

/// Uid 0 gives no capabilities at exec, changes of uid leave them as they are
/// set, and neither can be undone.
const SECURE_BITS: libc::c_int = libc::SECBIT_NOROOT
    | libc::SECBIT_NOROOT_LOCKED
    | libc::SECBIT_NO_SETUID_FIXUP
    | libc::SECBIT_NO_SETUID_FIXUP_LOCKED;

/// Most descriptors that the fall-back for kernels before 5.11 looks at.
const MAX_DESCRIPTORS_SCANNED: libc::c_int = 65_536;

/// Everything that the child needs, computed before the fork.
pub(crate) struct Plan {
    pub(crate) uid: libc::uid_t,
    pub(crate) gid: libc::gid_t,
    pub(crate) capabilities: CapabilitySet,
    pub(crate) open_files: Option<libc::rlim_t>,
    pub(crate) listeners: [RawFd; MAX_LISTENERS],
    pub(crate) listener_count: usize,
    pub(crate) cgroups: [RawFd; MAX_CGROUPS],
    pub(crate) cgroup_count: usize,
    pub(crate) namespaces: Vec<Entrance>,
    pub(crate) oom_score: Option<OomScore>,
    pub(crate) parent: libc::pid_t,
}

/// The text of a score, made before the fork.
#[derive(Clone, Copy)]
pub(crate) struct OomScore {
    digits: [u8; 5],
    count: usize,
}

impl OomScore {
    pub(crate) fn new(score: i16) -> OomScore {
        let text = score.clamp(-1000, 1000).to_string();
        let mut digits = [0; 5];
        for (digit, byte) in digits.iter_mut().zip(text.bytes()) {
            *digit = byte;
        }
        OomScore {
            digits,
            count: text.len(),
        }
    }
}

impl Plan {
    /// Turns the forked child into what the plan says. On an error the child
    /// must not exec; a line on its standard error names the step.
    pub(crate) fn apply(&self) -> io::Result<()> {
        step("own session", own_session)?;
        step("control groups", || self.enter_cgroups())?;
        // Before it loses sight of the file in which that is written.
        step("score for want of memory", || self.score())?;
        step("namespaces", || self.enter_namespaces())?;
        step("limits", || self.limits())?;
        step("descriptors", || self.descriptors())?;
        step("groups", || self.groups())?;
        step("bounding set", || drop_bounding(self.capabilities))?;
        step("secure bits", secure_bits)?;
        step("user", || self.user())?;
        step("capabilities", || self.raise_capabilities())?;
        step("parent death signal", || self.follow_parent())?;
        step("no_new_privs", no_new_privileges)
    }

    /// Before it has started anything, and while it is root.
    fn enter_cgroups(&self) -> io::Result<()> {
        let cgroups = self.cgroups.get(..self.cgroup_count).unwrap_or_default();
        // The kernel takes 0 for whoever writes it.
        cgroups.iter().try_for_each(|file| write_all(*file, b"0"))
    }

    /// While it has the capability for it.
    fn enter_namespaces(&self) -> io::Result<()> {
        self.namespaces.iter().copied().try_for_each(enter)
    }

    fn score(&self) -> io::Result<()> {
        let Some(OomScore { digits, count }) = self.oom_score else {
            return Ok(());
        };
        // SAFETY: reads the literal up to its NUL.
        let file = check(unsafe {
            libc::open(OOM_SCORE_FILE.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC)
        })?;
        write_all(file, digits.get(..count).unwrap_or_default())
    }

    fn limits(&self) -> io::Result<()> {
        // SAFETY: takes an integer and cannot fail.
        unsafe { libc::umask(UMASK) };
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: reads the structure, which lives until it returns.
        check(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) })?;
        if let Some(wanted) = self.open_files {
            let hard = open_files_limit()?.rlim_max;
            let limit = libc::rlimit {
                rlim_cur: wanted.min(hard),
                rlim_max: wanted.min(hard),
            };
            // SAFETY: as above.
            check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
        }
        // SAFETY: reads the literal up to its NUL.
        check(unsafe { libc::chdir(c"/".as_ptr()) }).map(drop)
    }

    /// Listeners become descriptors 3, 4 ...; all others close at exec.
    fn descriptors(&self) -> io::Result<()> {
        let count = libc::c_int::try_from(self.listener_count).unwrap_or(0);
        let end = FIRST_LISTENER_DESCRIPTOR + count;
        let mut moved = self.listeners;
        let moved = moved.get_mut(..self.listener_count).unwrap_or_default();
        // First out of the way of each other, then into place.
        for descriptor in moved.iter_mut() {
            // SAFETY: takes integers; the descriptor is open in this process.
            *descriptor = check(unsafe { libc::fcntl(*descriptor, libc::F_DUPFD_CLOEXEC, end) })?;
        }
        for (descriptor, target) in moved.iter().zip(FIRST_LISTENER_DESCRIPTOR..) {
            // SAFETY: as above; the launcher keeps the targets free.
            check(unsafe { libc::dup2(*descriptor, target) })?;
        }
        close_at_exec_from(end)
    }

    fn groups(&self) -> io::Result<()> {
        // SAFETY: a count of zero reads nothing through the pointer.
        check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
        // SAFETY: takes integers only.
        check(unsafe { libc::setresgid(self.gid, self.gid, self.gid) }).map(drop)
    }

    fn user(&self) -> io::Result<()> {
        // SAFETY: takes integers only.
        check(unsafe { libc::setresuid(self.uid, self.uid, self.uid) }).map(drop)
    }

    /// Exactly the plan's capabilities, kept over exec as ambient ones.
    fn raise_capabilities(&self) -> io::Result<()> {
        set_thread(self.capabilities, self.capabilities)?;
        for number in (0..64).filter(|number| self.capabilities.contains_number(*number)) {
            // SAFETY: takes integers only.
            check(unsafe {
                libc::prctl(
                    libc::PR_CAP_AMBIENT,
                    libc::PR_CAP_AMBIENT_RAISE,
                    libc::c_ulong::from(number),
                    0,
                    0,
                )
            })?;
        }
        Ok(())
    }

    /// Dies with its parent. Set last, because a change of credentials clears
    /// it; the parent may have died before it was set.
    fn follow_parent(&self) -> io::Result<()> {
        follow(self.parent)
    }
}

/// Makes the calling process die with its parent, which must be this one.
pub(crate) fn follow(parent: libc::pid_t) -> io::Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::getppid() } == parent {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Its own session: signals of a terminal reach the supervisor alone, and the
/// group can be ended as a whole.
fn own_session() -> io::Result<()> {
    // SAFETY: takes nothing; fails for a group leader, which a forked child is not.
    check(unsafe { libc::setsid() }).map(drop)
}

fn secure_bits() -> io::Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, SECURE_BITS, 0, 0, 0) }).map(drop)
}

fn no_new_privileges() -> io::Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// Marks every descriptor from `first` on to be closed at exec: closing them
/// here would also close the pipe through which a failed exec is reported.
pub(crate) fn close_at_exec_from(first: libc::c_int) -> io::Result<()> {
    // SAFETY: takes integers only.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_int::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if result == 0 {
        return Ok(());
    }
    let end = libc::c_int::try_from(open_files_limit()?.rlim_cur)
        .unwrap_or(MAX_DESCRIPTORS_SCANNED)
        .min(MAX_DESCRIPTORS_SCANNED);
    for descriptor in first..end {
        // SAFETY: takes integers; one that is not open is refused harmlessly.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

fn open_files_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes to the structure, which lives until it returns.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    Ok(limit)
}

/// Runs a step; on failure its name goes to standard error, because only the
/// error number reaches the parent.
fn step(name: &str, run: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    run().inspect_err(|_error| {
        for part in ["cannot set up the process: ", name, "\n"] {
            // SAFETY: reads `len` bytes of a live string. Nothing can be done
            // about an error here.
            unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
        }
    })
}

/// Into a file of the kernel, which takes all at once or nothing.
fn write_all(file: RawFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: reads `len` bytes of a live slice.
    let written = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
    if written < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
