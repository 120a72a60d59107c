//! What can happen to a process of Bulkhead, done to the real one: signals, and system
//! calls that it is made to make. Not here: what the node does meanwhile.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bulkhead_api::v1::{ProcessState, ProcessStatus};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_support::inject::{Outcome, SystemCall, inject};
use test_support::{cgroup, wait_for, wait_until};
use topology::{Need, Process, row};

use crate::ground::{Ground, TIMEOUT};

/// Where each process finds its listening socket (sd_listen_fds(3)).
const LISTENING_SOCKET: i32 = 3;

/// The code with which a process says that its configuration is bad.
const BAD_CONFIGURATION: u8 = 78;

/// Longer than it takes until a process is ready, and a second more: a crash after that does
/// not double the wait.
const A_WHILE: Duration = Duration::from_secs(2);

/// Shorter than the watchdog waits.
const SHORT_STOP: Duration = Duration::from_secs(3);

/// Several times as long as the watchdog waits.
const LONG_STOP: Duration = Duration::from_secs(30);

/// What happens to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// It is stopped for 3 s. The watchdog waits 5 s from when it last heard of the
    /// process, so that it may notice or not.
    ShortStop,
    /// It is stopped for 30 s, or until it is killed for it.
    LongStop,
    /// SIGABRT.
    Abort,
    /// It fills more memory than its limit permits.
    OutOfMemory,
    /// It ends as if all were well.
    ExitZero,
    /// It says that its configuration is bad.
    ExitBadConfiguration,
    /// It tries to make a child. Who may make some makes as many as it can, and these too,
    /// and is killed when there are no more.
    Fork,
    /// It shuts its listening socket down, and is killed a moment later.
    HarmedListener,
}

/// All of them.
pub const FAULTS: [Fault; 9] = [
    Fault::Kill,
    Fault::ShortStop,
    Fault::LongStop,
    Fault::Abort,
    Fault::OutOfMemory,
    Fault::ExitZero,
    Fault::ExitBadConfiguration,
    Fault::Fork,
    Fault::HarmedListener,
];

/// What has to come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consequence {
    /// Another run of it.
    AnotherRun,
    /// It goes on.
    SameRun,
    /// It goes on, or there is another run of it.
    SameOrAnotherRun,
    /// It waits for an operator, who restarts it.
    WaitsForOperator,
    /// Whoever started the supervisor starts it again.
    AnotherSupervisor,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Kill => "SIGKILL",
            Self::ShortStop => "SIGSTOP for 3 s",
            Self::LongStop => "SIGSTOP for 30 s",
            Self::Abort => "SIGABRT",
            Self::OutOfMemory => "out of memory",
            Self::ExitZero => "exit 0",
            Self::ExitBadConfiguration => "exit 78",
            Self::Fork => "forks",
            Self::HarmedListener => "listener harmed",
        })
    }
}

impl Fault {
    /// Whether it can happen to this process: the supervisor may fork, and has no socket
    /// that it was given.
    #[must_use]
    pub fn concerns(self, process: Process) -> bool {
        process != Process::Supervisor || !matches!(self, Self::Fork | Self::HarmedListener)
    }

    fn consequence(self, process: Process) -> Consequence {
        match self {
            Self::Fork if may_fork(process) => Consequence::AnotherRun,
            Self::Fork => Consequence::SameRun,
            // Its own watchdog is who started it; here that is the test.
            Self::ShortStop | Self::LongStop if process == Process::Supervisor => {
                Consequence::SameRun
            }
            Self::ShortStop => Consequence::SameOrAnotherRun,
            _ if process == Process::Supervisor => Consequence::AnotherSupervisor,
            Self::ExitBadConfiguration => Consequence::WaitsForOperator,
            Self::Kill
            | Self::LongStop
            | Self::Abort
            | Self::OutOfMemory
            | Self::ExitZero
            | Self::HarmedListener => Consequence::AnotherRun,
        }
    }

    /// Has it happen, does what belongs to it, and waits until all processes are ready
    /// again; how long that took after both.
    ///
    /// # Errors
    /// When something else comes of it.
    pub fn strike(
        self,
        ground: &mut Ground,
        process: Process,
        then: impl FnOnce(&mut Ground) -> Result<()>,
    ) -> Result<Duration> {
        let before = ground.bulkhead.pids()?;
        let pid = *before.get(&process).context("it does not run")?;
        self.happen_to(process, pid)?;
        then(ground)?;
        let begin = Instant::now();
        match self.consequence(process) {
            Consequence::SameRun | Consequence::SameOrAnotherRun => {}
            Consequence::AnotherRun => another_run(ground, process, pid)?,
            Consequence::WaitsForOperator => {
                is_in_state(ground, process, ProcessState::BadConfiguration)?;
                ground.printed(&["restart", process.name()])?;
                another_run(ground, process, pid)?;
            }
            Consequence::AnotherSupervisor => {
                ground.bulkhead.wait_until_gone()?;
                ground.bulkhead.spawn()?;
            }
        }
        ground.bulkhead.wait_until_ready()?;
        let took = begin.elapsed();
        if self.consequence(process) != Consequence::AnotherSupervisor {
            let mut after = ground.bulkhead.pids()?;
            let mut expected = before;
            let consequence = self.consequence(process);
            if consequence != Consequence::SameRun {
                expected.remove(&process);
                after.remove(&process);
            }
            let ends = [Consequence::AnotherRun, Consequence::WaitsForOperator];
            if ends.contains(&consequence) {
                self.is_recorded(&status_of(ground, process)?)?;
            }
            ensure!(after == expected, "{expected:?} became {after:?}");
        }
        is_alone(ground, process)?;
        Ok(took)
    }

    /// Has it happen to the process with this pid.
    ///
    /// # Errors
    /// When it does not happen.
    pub fn happen_to(self, process: Process, pid: u32) -> Result<()> {
        match self {
            Self::Kill => send(pid, Signal::SIGKILL),
            Self::Abort => send(pid, Signal::SIGABRT),
            Self::ShortStop => stop_for(pid, SHORT_STOP),
            Self::LongStop => stop_for(pid, LONG_STOP),
            Self::ExitZero => has_ended(inject(pid, SystemCall::exit_group(0))?),
            Self::ExitBadConfiguration => {
                has_ended(inject(pid, SystemCall::exit_group(BAD_CONFIGURATION))?)
            }
            Self::OutOfMemory => {
                let too_much = row(process).memory_max_bytes * 2;
                has_ended(inject(pid, SystemCall::fill_memory(too_much))?)
            }
            Self::Fork if may_fork(process) => fork_bomb(process, pid),
            Self::Fork => {
                let outcome = inject(pid, SystemCall::fork())?;
                ensure!(outcome == Outcome::Failed(Errno::EPERM), "{outcome:?}");
                Ok(())
            }
            Self::HarmedListener => {
                let outcome = inject(pid, SystemCall::shutdown(LISTENING_SOCKET))?;
                ensure!(outcome == Outcome::Returned(0), "{outcome:?}");
                send(pid, Signal::SIGKILL)
            }
        }
    }

    /// That `bulkhead` says why the process ended.
    fn is_recorded(self, status: &ProcessStatus) -> Result<()> {
        let words = match self {
            Self::Kill => "SIGKILL",
            Self::Abort => "SIGABRT",
            Self::OutOfMemory => "out of memory by its own limit",
            Self::ExitZero => "0",
            Self::ExitBadConfiguration => "78",
            Self::LongStop => "watchdog",
            Self::ShortStop | Self::Fork | Self::HarmedListener => return Ok(()),
        };
        let ending = status.last_ending.as_ref().context("no ending")?;
        ensure!(ending.reason.contains(words), "{}", ending.reason);
        Ok(())
    }
}

/// Whether it starts programs, so that the kernel lets it make children.
#[must_use]
pub fn may_fork(process: Process) -> bool {
    row(process).needs(Need::Programs)
}

/// Has a process make a child, that one another, and so on until the kernel makes no more
/// in their cgroup, and then kills the first of them.
fn fork_bomb(process: Process, pid: u32) -> Result<()> {
    let (mut last, mut count) = (pid, 1);
    let outcome = loop {
        match inject(last, SystemCall::fork())? {
            Outcome::Returned(child) => last = u32::try_from(child)?,
            other => break other,
        }
        count += 1;
    };
    let is_refused = outcome == Outcome::Failed(Errno::EAGAIN);
    ensure!(is_refused, "{outcome:?} in the last of {count} processes");
    ensure!(count <= row(process).tasks_max, "{count} processes");
    send(pid, Signal::SIGKILL)
}

/// That nobody is left of an earlier run of a process.
fn is_alone(ground: &Ground, process: Process) -> Result<()> {
    let pid = status_of(ground, process)?.pid;
    for cgroup in cgroup::own(process, pid)? {
        let members = cgroup::members(&cgroup)?;
        ensure!(members == [pid], "{members:?} beside {process} {pid}");
    }
    Ok(())
}

fn has_ended(outcome: Outcome) -> Result<()> {
    ensure!(outcome == Outcome::Ended, "it goes on: {outcome:?}");
    Ok(())
}

fn send(pid: u32, signal: Signal) -> Result<()> {
    Ok(kill(Pid::from_raw(pid.cast_signed()), signal)?)
}

/// Stops a process for a while, or until it is ended for that.
fn stop_for(pid: u32, span: Duration) -> Result<()> {
    send(pid, Signal::SIGSTOP)?;
    let lives = || kill(Pid::from_raw(pid.cast_signed()), None).is_ok();
    // It is as long as intended if nobody ends it.
    let _ = wait_until("its end", span, || !lives());
    match kill(Pid::from_raw(pid.cast_signed()), Signal::SIGCONT) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn status_of(ground: &Ground, process: Process) -> Result<ProcessStatus> {
    let all = ground.bulkhead.processes()?;
    let found = all.into_iter().find(|row| row.name == process.name());
    found.with_context(|| format!("no row of {process}"))
}

/// Waits until a process has run for a while. One fault after the other to the same process
/// would be a series of crashes soon after its start, and what was measured then would be
/// the wait that the supervisor has for those.
///
/// # Errors
/// When it does not run.
pub fn has_run_for_a_while(ground: &Ground, process: Process) -> Result<()> {
    wait_for(&format!("{process} to run for a while"), TIMEOUT, || {
        let status = status_of(ground, process);
        let status = status.map_err(|error| format!("{error:#}"))?;
        let uptime = Duration::from_millis(status.uptime_millis);
        let is_so = uptime >= A_WHILE;
        is_so.then_some(()).ok_or(format!("{uptime:?}"))
    })?;
    Ok(())
}

fn is_in_state(ground: &Ground, process: Process, state: ProcessState) -> Result<()> {
    wait_for(&format!("{process} to be {state:?}"), TIMEOUT, || {
        let status = status_of(ground, process);
        let status = status.map_err(|error| format!("{error:#}"))?;
        let is_so = status.state() == state;
        is_so.then_some(()).ok_or(format!("{:?}", status.state()))
    })?;
    Ok(())
}

/// Waits until a process has another pid than `old`.
fn another_run(ground: &Ground, process: Process, old: u32) -> Result<()> {
    wait_for(&format!("{process} to be replaced"), TIMEOUT, || {
        let status = status_of(ground, process);
        let status = status.map_err(|error| format!("{error:#}"))?;
        match status.pid {
            new if new != old && new != 0 => Ok(()),
            other => Err(format!("pid {other} after {old}")),
        }
    })?;
    Ok(())
}
