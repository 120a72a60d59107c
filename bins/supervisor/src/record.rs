//! What is remembered of each process: endings, restarts, and the ring of
//! crashes. Plain values; all bounds are here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use clock::UnixNanos;
use topology::{Process, row};

use crate::cgroups::OutOfMemory;
use crate::policy::{
    Alert, BAD_CONFIGURATION, Ending, Intent, Moment, START_TIMEOUT, WATCHDOG_SILENCE,
};

/// Crashes that are kept of each process, so that one that crashes again and again
/// pushes out no other's. With 17 lines of 1 KiB each the list of all nine processes
/// stays below the 1 MiB that its message may have.
pub(crate) const KEPT_CRASHES: usize = 6;

/// "Restarts in the last hour".
const HOUR: Duration = Duration::from_secs(3600);

/// Restarts of one process that are remembered. At the longest wait there are
/// some 400 in an hour; more than this are told as this many.
const KEPT_RESTARTS: usize = 1024;

/// How a process ended, for people and for the list of crashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndingRecord {
    /// How; absent when it could not even be started.
    pub(crate) ending: Option<Ending>,
    /// When.
    pub(crate) at: UnixNanos,
    /// In words.
    pub(crate) reason: String,
    /// The process that ended.
    pub(crate) pid: i32,
    /// How long it had run.
    pub(crate) uptime: Duration,
    /// What it wrote last.
    pub(crate) last_log_lines: Vec<String>,
}

/// What is remembered of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    launches: u64,
    restarts: VecDeque<Moment>,
    /// The last ending, whoever wanted it.
    pub(crate) last_ending: Option<Arc<EndingRecord>>,
    /// Its own `STATUS=` line; empty when it has none.
    pub(crate) status_text: String,
}

impl Record {
    /// Notes that it was launched, successfully or not.
    pub(crate) fn launched(&mut self, now: Moment) {
        self.launches = self.launches.saturating_add(1);
        self.status_text.clear();
        if self.launches == 1 {
            return;
        }
        self.restarts
            .retain(|restart| now.saturating_sub(*restart) <= HOUR);
        if self.restarts.len() == KEPT_RESTARTS {
            self.restarts.pop_front();
        }
        self.restarts.push_back(now);
    }

    /// Restarts since the supervisor started.
    #[must_use]
    pub(crate) fn restarts_total(&self) -> u64 {
        self.launches.saturating_sub(1)
    }

    /// Restarts in the hour before `now`.
    #[must_use]
    pub(crate) fn restarts_last_hour(&self, now: Moment) -> u32 {
        let recent = |restart: &&Moment| now.saturating_sub(**restart) <= HOUR;
        u32::try_from(self.restarts.iter().filter(recent).count()).unwrap_or(u32::MAX)
    }
}

/// The last crashes of each process, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CrashRing(VecDeque<(Process, Arc<EndingRecord>)>);

impl CrashRing {
    /// Adds one, in place of the oldest of the same process when there are as many
    /// of it as are kept.
    pub(crate) fn push(&mut self, process: Process, ending: Arc<EndingRecord>) {
        let of_same = |(other, _): &&(Process, _)| *other == process;
        if self.0.iter().filter(of_same).count() >= KEPT_CRASHES
            && let Some(oldest) = self.0.iter().position(|(other, _)| *other == process)
        {
            self.0.remove(oldest);
        }
        self.0.push_back((process, ending));
    }

    /// Newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = (Process, &EndingRecord)> {
        self.0
            .iter()
            .rev()
            .map(|(process, ending)| (*process, &**ending))
    }
}

/// An ending in words.
#[must_use]
pub(crate) fn describe(ending: Ending, intent: Intent) -> String {
    let how = match ending {
        Ending::Signal(number) => match nix::sys::signal::Signal::try_from(number) {
            Ok(signal) => format!("killed by {signal}"),
            Err(_) => format!("killed by signal {number}"),
        },
        Ending::Exit(BAD_CONFIGURATION) => {
            format!("exit code {BAD_CONFIGURATION}: bad configuration")
        }
        Ending::Exit(code) => format!("exit code {code}"),
    };
    match intent {
        Intent::Own => how,
        Intent::Asked => format!("stopped as asked: {how}"),
        Intent::Alert(Alert::Watchdog) => {
            format!(
                "watchdog: silent for {} s: {how}",
                WATCHDOG_SILENCE.as_secs()
            )
        }
        Intent::Alert(Alert::StartTimeout) => {
            format!("not ready within {} s: {how}", START_TIMEOUT.as_secs())
        }
    }
}

/// Why there was no memory left for a process, in words.
#[must_use]
pub(crate) fn describe_out_of_memory(process: Process, cause: OutOfMemory) -> String {
    match cause {
        OutOfMemory::OwnLimit => {
            let limit = row(process).memory_max_bytes >> 20;
            format!("out of memory by its own limit of {limit} MiB")
        }
        OutOfMemory::Others => {
            "out of memory: all processes of Bulkhead together, or the node".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_told_apart_in_words() {
        let cases = [
            (Ending::Signal(9), Intent::Own, "killed by SIGKILL"),
            (Ending::Signal(64), Intent::Own, "killed by signal 64"),
            (Ending::Exit(1), Intent::Own, "exit code 1"),
            (Ending::Exit(0), Intent::Own, "exit code 0"),
            (
                Ending::Exit(78),
                Intent::Own,
                "exit code 78: bad configuration",
            ),
            (
                Ending::Exit(0),
                Intent::Asked,
                "stopped as asked: exit code 0",
            ),
            (
                Ending::Signal(6),
                Intent::Alert(Alert::Watchdog),
                "watchdog: silent for 5 s: killed by SIGABRT",
            ),
            (
                Ending::Signal(6),
                Intent::Alert(Alert::StartTimeout),
                "not ready within 10 s: killed by SIGABRT",
            ),
        ];
        for (ending, intent, words) in cases {
            assert_eq!(describe(ending, intent), words);
        }
    }

    #[test]
    fn the_first_launch_is_no_restart_and_old_ones_leave_the_hour() {
        let mut record = Record::default();
        let minute = |minutes: u64| Duration::from_secs(60 * minutes);
        record.launched(minute(0));
        assert_eq!(record.restarts_total(), 0);
        record.launched(minute(1));
        record.launched(minute(30));
        assert_eq!(record.restarts_last_hour(minute(31)), 2);
        assert_eq!(record.restarts_last_hour(minute(62)), 1);
        assert_eq!(record.restarts_total(), 2);
        for _ in 0..2 * KEPT_RESTARTS {
            record.launched(minute(62));
        }
        assert_eq!(record.restarts.len(), KEPT_RESTARTS);
    }

    fn crash(pid: i32) -> Arc<EndingRecord> {
        Arc::new(EndingRecord {
            ending: Some(Ending::Exit(1)),
            at: UnixNanos(0),
            reason: String::new(),
            pid,
            uptime: Duration::ZERO,
            last_log_lines: Vec::new(),
        })
    }

    #[test]
    fn a_crash_loop_pushes_out_its_own_oldest_crashes_and_no_others() {
        let mut ring = CrashRing::default();
        ring.push(Process::Prober, crash(1));
        for pid in 100..200 {
            ring.push(Process::Pleg, crash(pid));
        }
        ring.push(Process::Prober, crash(2));
        let pids: Vec<i32> = ring.newest_first().map(|(_, ending)| ending.pid).collect();
        assert_eq!(pids, [2, 199, 198, 197, 196, 195, 194, 1]);
    }

    #[test]
    fn a_full_list_of_crashes_fits_into_its_message() {
        let (lines, line) = (crate::log_pipe::KEPT_LINES, crate::log_pipe::MAX_LINE_BYTES);
        let processes = Process::ALL.len() - 1;
        // Beside the lines, a few hundred bytes say which ending it was.
        let all = processes * KEPT_CRASHES * (lines * line + 1024);
        assert!(all < ipc::limits::MAX_LIST_BYTES, "{all}");
    }
}
