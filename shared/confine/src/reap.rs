//! Taking leave of children, with every signal that can end one: real-time
//! signals have no name in the safe wrappers, which then report an error for a
//! child that is already reaped.

use std::io;

use nix::libc;
use nix::unistd::Pid;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEnding {
    /// With this exit code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

/// A child that has ended and is not reaped yet: until [`reap`] its pid, and
/// its process group, are still its own. `None` when there is none.
///
/// # Errors
/// When the kernel refuses, which it has no reason to.
pub fn find_ended_child() -> io::Result<Option<Pid>> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        // SAFETY: all-zero is a valid siginfo_t, and what the kernel leaves when
        // nobody ended.
        let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: writes to the structure, which lives until it returns.
        let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut information, options) };
        if result == 0 {
            // SAFETY: after waitid the structure holds the fields of SIGCHLD.
            let pid = unsafe { information.si_pid() };
            return Ok((pid != 0).then(|| Pid::from_raw(pid)));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(None),
            _ => return Err(error),
        }
    }
}

/// Reaps a child that has ended; waits when it has not.
///
/// # Errors
/// When it is no child of this process.
pub fn reap(pid: Pid) -> io::Result<ChildEnding> {
    let mut status = 0;
    loop {
        // SAFETY: writes to the integer, which lives until it returns.
        let result = unsafe { libc::waitpid(pid.as_raw(), &raw mut status, 0) };
        if result >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
    // Without WUNTRACED it ended in one of two ways.
    Ok(if libc::WIFSIGNALED(status) {
        ChildEnding::Signal(libc::WTERMSIG(status))
    } else {
        ChildEnding::Exit(libc::WEXITSTATUS(status))
    })
}
