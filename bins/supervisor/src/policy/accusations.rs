//! When a process is restarted for what another one refused it.
//!
//! A server reports whom it has cut off: its caller has sent what no program of ours
//! sends, so it is broken or taken over. It may be the server that is: so
//!
//! - only the process that runs counts, by its pid, and only if it may call that server;
//! - the first [`TOLERATED`] of a run is shown, and nothing else: the caller was cut off, and
//!   may have been of another version for a moment;
//! - the next one ends the run, as a crash with its waits;
//! - after [`RESTARTS_AN_HOUR`] of these a server is not believed about that caller until
//!   the hour is over. What is refused is still refused, and shown.
//!
//! So a server that lies costs each of its callers a few restarts an hour.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use backoff::pace::Moment;
use topology::Process;

use super::machine::ProcessId;

/// How often a run may be cut off by a server without being ended for it.
pub const TOLERATED: u64 = 1;

/// How often within an hour one server can have one caller restarted.
pub const RESTARTS_AN_HOUR: usize = 3;

const HOUR: Duration = Duration::from_secs(3600);

/// A server says that it has cut off a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accusation {
    /// Who says so.
    pub server: Process,
    /// The caller.
    pub caller: Process,
    /// The run of the caller.
    pub pid: ProcessId,
    /// How many of its connections.
    pub cut_off: u64,
}

/// What follows from an accusation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is shown.
    Shown,
    /// The caller's run is ended.
    Restart,
    /// It would be, but this server is not believed about this caller for now.
    Disbelieved,
}

/// What the servers have said of their callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accusations(BTreeMap<(Process, Process), History>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct History {
    pid: ProcessId,
    /// Connections of that run.
    cut_off: u64,
    /// At most [`RESTARTS_AN_HOUR`], oldest first.
    restarts: VecDeque<Moment>,
}

impl Accusations {
    /// What follows from an accusation of a process that runs.
    pub fn hear(&mut self, now: Moment, accusation: Accusation) -> Verdict {
        let edge = (accusation.server, accusation.caller);
        let history = self.0.entry(edge).or_default();
        if history.pid != accusation.pid {
            history.pid = accusation.pid;
            history.cut_off = 0;
        }
        history.cut_off = history.cut_off.saturating_add(accusation.cut_off);
        if history.cut_off <= TOLERATED {
            return Verdict::Shown;
        }
        history.forget_old(now);
        if history.restarts.len() >= RESTARTS_AN_HOUR {
            return Verdict::Disbelieved;
        }
        history.restarts.push_back(now);
        Verdict::Restart
    }

    /// Who is not believed about whom.
    pub fn disbelieved(&self, now: Moment) -> impl Iterator<Item = (Process, Process)> {
        let used_up = move |history: &History| {
            let recent = |restart: &&Moment| now.saturating_sub(**restart) <= HOUR;
            history.restarts.iter().filter(recent).count() >= RESTARTS_AN_HOUR
        };
        let all = self.0.iter();
        all.filter(move |(_, history)| used_up(history))
            .map(|(edge, _)| *edge)
    }
}

impl History {
    fn forget_old(&mut self, now: Moment) {
        self.restarts
            .retain(|restart| now.saturating_sub(*restart) <= HOUR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accuse(all: &mut Accusations, at: u64, pid: ProcessId, cut_off: u64) -> Verdict {
        let accusation = Accusation {
            server: Process::PodWorkerPool,
            caller: Process::Pleg,
            pid,
            cut_off,
        };
        all.hear(Duration::from_secs(at), accusation)
    }

    #[test]
    fn who_is_cut_off_again_in_the_same_run_is_restarted() {
        let mut all = Accusations::default();
        assert_eq!(accuse(&mut all, 0, 7, 1), Verdict::Shown);
        assert_eq!(accuse(&mut all, 5000, 7, 1), Verdict::Restart);
        assert_eq!(accuse(&mut all, 5001, 8, 1), Verdict::Shown, "another run");
        assert_eq!(
            accuse(&mut all, 5002, 9, 2),
            Verdict::Restart,
            "both in one"
        );
        assert_eq!(accuse(&mut all, 5003, 10, 0), Verdict::Shown, "of nothing");
        assert_eq!(accuse(&mut all, 5003, 10, u64::MAX), Verdict::Restart);
        assert_eq!(accuse(&mut all, 5003, 10, u64::MAX), Verdict::Disbelieved);
    }

    #[test]
    fn a_server_that_lies_has_each_caller_restarted_a_few_times_an_hour() {
        let mut all = Accusations::default();
        let mut restarts = Vec::new();
        for second in 0..7200 {
            let pid = i32::try_from(second).unwrap();
            if accuse(&mut all, second, pid, 5) == Verdict::Restart {
                restarts.push(second);
            }
        }
        assert_eq!(restarts, [0, 1, 2, 3601, 3602, 3603]);
        let at = |second| all.disbelieved(Duration::from_secs(second));
        let edge = (Process::PodWorkerPool, Process::Pleg);
        assert_eq!(at(7200).collect::<Vec<_>>(), [edge]);
        assert_eq!(at(7204).count(), 0);
        // Others are believed meanwhile.
        let accusation = Accusation {
            server: Process::PodWorkerPool,
            caller: Process::Prober,
            pid: 1,
            cut_off: 2,
        };
        let verdict = all.hear(Duration::from_secs(7200), accusation);
        assert_eq!(verdict, Verdict::Restart);
    }
}
