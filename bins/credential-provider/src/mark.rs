//! The processes that a program has started, in whatever session they are: each has
//! inherited a variable that names this run of the program.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::Pid as NixPid;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The variable. A program that takes it away from its child hides the child until this
/// process ends, which ends all that is in its cgroup.
const VARIABLE: &str = "BULKHEAD_CREDENTIAL_RUN";

/// How long to look for processes that were started, or became another program, while the
/// others were looked at. On a busy machine one that becomes another program waits for a
/// processor in the midst of it, for some 100 ms; and nobody is answered meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// More than an environment usually has.
const USUAL_BYTES: usize = 64 << 10;
/// More than it can have when a program is started.
const MOST_BYTES: usize = 16 << 20;

/// One run of a program.
#[derive(Debug)]
pub(crate) struct Mark(String);

impl Mark {
    /// Another one than all before, also those of other processes that live.
    pub(crate) fn new() -> Mark {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Mark(format!("{}-{run}", NixPid::this()))
    }

    /// For the environment of the program.
    pub(crate) fn variable(&self) -> (&OsStr, &OsStr) {
        (VARIABLE.as_ref(), self.0.as_ref())
    }

    /// Kills all that have it.
    pub(crate) fn kill_all(&self) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if process_ids().filter(|id| self.kill(*id)).count() == 0 {
                return;
            }
            std::thread::yield_now();
        }
        tracing::warn!("a program hides what it has started, or starts more than can be killed");
    }

    /// Whether a process has it. Only those of the same user tell; absent where one has no
    /// environment yet, while it becomes another program.
    fn is_on(&self, id: Pid) -> Option<bool> {
        let path = |name| format!("/proc/{}/{name}", id.as_raw_nonzero());
        let Ok(environment) = read_at_once(&path("environ")) else {
            return Some(false);
        };
        // Who has ended has no memory either.
        let lives = || fs::read(path("statm")).is_ok_and(|pages| !pages.starts_with(b"0 "));
        let stat = || fs::read_to_string(path("stat")).unwrap_or_default();
        if environment.is_empty() && lives() && !has_empty_environment(&stat()) {
            return None;
        }
        let expected = format!("{VARIABLE}={}", self.0);
        let mut variables = environment.split(|byte| *byte == 0);
        Some(variables.any(|variable| variable == expected.as_bytes()))
    }

    /// Kills a process that has it. Whether to look again: it had it, or may have it.
    fn kill(&self, id: Pid) -> bool {
        // Before the look: what has this number later is another one, and not killed for it.
        let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else {
            return false;
        };
        match self.is_on(id) {
            Some(true) => pidfd_send_signal(&process, Signal::KILL).is_ok(),
            Some(false) => false,
            None => true,
        }
    }
}

/// Whether a process has an environment without anything in it for good, as `env -i` gives it:
/// it begins (field 50 of proc_pid_stat(5)) and ends (51) at one place. Both are 0 while
/// execve(2) goes on.
fn has_empty_environment(stat: &str) -> bool {
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let mut fields = after_name.split_whitespace().skip(50 - 3);
    let (begin, end) = (fields.next(), fields.next());
    begin == end && begin.is_some_and(|begin| begin != "0")
}

/// An environment, read whole: one that is read piece by piece ends where its process becomes
/// another program meanwhile.
fn read_at_once(path: &str) -> io::Result<Vec<u8>> {
    let mut environment = vec![0; USUAL_BYTES];
    loop {
        let count = File::open(path)?.read(&mut environment)?;
        if count < environment.len() {
            environment.truncate(count);
            return Ok(environment);
        }
        // execve(2) takes less.
        if environment.len() >= MOST_BYTES {
            return Ok(environment);
        }
        environment.resize(environment.len() * 4, 0);
    }
}

fn process_ids() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_without_any_environment_is_told_from_one_that_is_starting() {
        let mut children = [false, true].map(|is_empty| {
            let mut command = Command::new("cat");
            if is_empty {
                command.env_clear();
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().unwrap()
        });
        for (child, is_empty) in children.iter_mut().zip([false, true]) {
            // It has an environment once it runs, which is after spawn has come back.
            child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            assert_eq!(has_empty_environment(&stat), is_empty, "{stat}");
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let starting = format!("7 (a) b) R {}", "0 ".repeat(49));
        assert!(!has_empty_environment(&starting));
        assert!(!has_empty_environment(""));
    }
}
