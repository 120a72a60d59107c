//! The processes that a program has started, in whatever session they are: each has
//! inherited a variable that names this run of the program.

use std::ffi::OsStr;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::unistd::Pid as NixPid;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The variable. A program that takes it away from its child hides the child until this
/// process ends, which ends all that is in its cgroup.
const VARIABLE: &str = "BULKHEAD_CREDENTIAL_RUN";

/// Times to look for processes that were started while the others were looked at.
const ROUNDS: usize = 10;

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
        for _ in 0..ROUNDS {
            let ids = process_ids().filter(|id| self.is_on(*id));
            if ids.filter(|id| self.kill(*id)).count() == 0 {
                return;
            }
        }
        tracing::warn!("a program starts processes faster than they are killed");
    }

    /// Whether a process has it. Only those of the same user tell.
    fn is_on(&self, id: Pid) -> bool {
        let path = format!("/proc/{}/environ", id.as_raw_nonzero());
        let expected = format!("{VARIABLE}={}", self.0);
        let environment = fs::read(path).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable == expected.as_bytes())
    }

    fn kill(&self, id: Pid) -> bool {
        let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else {
            return false;
        };
        // What has this number now may be another one.
        self.is_on(id) && pidfd_send_signal(&process, Signal::KILL).is_ok()
    }
}

fn process_ids() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}
