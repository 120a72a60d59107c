//! System calls that a test has a process of ours make, as somebody could who runs code in
//! it: the process is stopped where it waits in a system call, and makes another one
//! instead. With x86-64 only.
//!
//! See ptrace(2). What the process may not do, it may not do so either: seccomp looks at
//! the call after it was exchanged.

use anyhow::{Result, bail};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// What became of an injected call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It returned this.
    Returned(i64),
    /// It failed.
    Failed(Errno),
    /// The process ended in it.
    Ended,
}

/// A system call of x86-64: its number and arguments.
#[derive(Debug, Clone, Copy)]
pub struct SystemCall {
    number: u64,
    arguments: [u64; 6],
}

impl SystemCall {
    /// Ends the process with this code.
    #[must_use]
    pub fn exit_group(code: u8) -> Self {
        Self::with(231, [code.into(), 0, 0, 0, 0, 0])
    }

    /// Shuts a socket down in both directions.
    #[must_use]
    pub fn shutdown(descriptor: i32) -> Self {
        let descriptor = u64::from(descriptor.cast_unsigned());
        Self::with(48, [descriptor, 2, 0, 0, 0, 0])
    }

    /// Takes so many bytes of memory and fills them.
    #[must_use]
    pub fn fill_memory(bytes: u64) -> Self {
        const READ_AND_WRITE: u64 = 3;
        const PRIVATE_ANONYMOUS_POPULATED: u64 = 0x2 | 0x20 | 0x8000;
        const NO_FILE: u64 = u64::MAX;
        let arguments = [
            0,
            bytes,
            READ_AND_WRITE,
            PRIVATE_ANONYMOUS_POPULATED,
            NO_FILE,
            0,
        ];
        Self::with(9, arguments)
    }

    /// Makes a child.
    #[must_use]
    pub fn fork() -> Self {
        Self::with(57, [0; 6])
    }

    fn with(number: u64, arguments: [u64; 6]) -> Self {
        Self { number, arguments }
    }
}

/// Has the main thread of a process make a call in place of the one in which it waits,
/// which then looks to it as if a signal had interrupted it.
///
/// # Errors
/// When the process cannot be traced, or the machine is another one than x86-64.
pub fn inject(process: u32, call: SystemCall) -> Result<Outcome> {
    let pid = Pid::from_raw(process.cast_signed());
    ptrace::seize(pid, Options::PTRACE_O_TRACESYSGOOD)?;
    ptrace::interrupt(pid)?;
    let outcome = exchange(pid, call);
    if !matches!(outcome, Ok(Outcome::Ended)) {
        // It may be dead by now.
        let _ = ptrace::detach(pid, None);
    }
    outcome
}

/// Calls in which a process of ours waits, and which a signal may interrupt: another one
/// that fails in this way may be one that never does, and its caller ends for it. Those are
/// futex(2), epoll_wait(2), epoll_pwait(2), epoll_pwait2(2).
#[cfg(target_arch = "x86_64")]
const WAITS: [u64; 4] = [202, 232, 281, 441];

/// Of the traced process `pid`.
#[cfg(target_arch = "x86_64")]
fn exchange(pid: Pid, call: SystemCall) -> Result<Outcome> {
    if !wait(pid, |status| matches!(status, WaitStatus::PtraceEvent(..)))? {
        return Ok(Outcome::Ended);
    }
    let at_a_call = |status: &WaitStatus| matches!(status, WaitStatus::PtraceSyscall(_));
    let mut before;
    loop {
        ptrace::syscall(pid, None)?;
        if !wait(pid, at_a_call)? {
            return Ok(Outcome::Ended);
        }
        before = ptrace::getregs(pid)?;
        if WAITS.contains(&before.orig_rax) {
            break;
        }
        // It has something to do, and goes on to the end of this call.
        ptrace::syscall(pid, None)?;
        if !wait(pid, at_a_call)? {
            return Ok(Outcome::Ended);
        }
    }
    let mut registers = before;
    registers.orig_rax = call.number;
    [
        registers.rdi,
        registers.rsi,
        registers.rdx,
        registers.r10,
        registers.r8,
        registers.r9,
    ] = call.arguments;
    ptrace::setregs(pid, registers)?;
    ptrace::syscall(pid, None)?;
    if !wait(pid, at_a_call)? {
        return Ok(Outcome::Ended);
    }
    let mut after = ptrace::getregs(pid)?;
    let returned = after.rax.cast_signed();
    (after.rdi, after.rsi, after.rdx) = (before.rdi, before.rsi, before.rdx);
    (after.r10, after.r8, after.r9) = (before.r10, before.r8, before.r9);
    after.rax = (-i64::from(Errno::EINTR as i32)).cast_unsigned();
    ptrace::setregs(pid, after)?;
    Ok(match i32::try_from(-returned) {
        Ok(number @ 1..=4095) => Outcome::Failed(Errno::from_raw(number)),
        _ => Outcome::Returned(returned),
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn exchange(_pid: Pid, _call: SystemCall) -> Result<Outcome> {
    bail!("calls can be injected with x86-64 only");
}

/// Waits until the traced process is where it is expected, and passes on the signals that
/// come to it meanwhile. Whether it lives.
fn wait(pid: Pid, is_expected: impl Fn(&WaitStatus) -> bool) -> Result<bool> {
    loop {
        let status = waitpid(pid, Some(WaitPidFlag::__WALL))?;
        match status {
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return Ok(false),
            status if is_expected(&status) => return Ok(true),
            WaitStatus::Stopped(_, signal) => ptrace::syscall(pid, signal)?,
            WaitStatus::PtraceEvent(..) | WaitStatus::PtraceSyscall(_) => {
                ptrace::syscall(pid, None)?;
            }
            other => bail!("{pid} is {other:?}"),
        }
    }
}
