//! What the main loop publishes for the server: the state of all processes at
//! one moment, in values that do not change while nothing happens.

use std::collections::BTreeMap;

use tokio::time::Instant;
use topology::Process;

use crate::policy::{Fleet, Moment, Pace, State};
use crate::record::{CrashRing, Record};

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessSnapshot {
    pub(crate) condition: Condition,
    /// Pid and since when.
    pub(crate) running: Option<(i32, Moment)>,
    pub(crate) record: Record,
}

/// The state as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Starting,
    Ready,
    /// Will be started at this moment.
    Backoff(Moment),
    /// Too many crashes; when it will be started, where that is known.
    CrashLooping(Option<Moment>),
    BadConfiguration,
    Stopping,
    Stopped,
}

impl Condition {
    fn of(state: State, pace: &Pace) -> Condition {
        let looping = pace.is_crash_looping();
        match state {
            State::Waiting { due } if looping => Condition::CrashLooping(Some(due)),
            State::Waiting { due } => Condition::Backoff(due),
            State::Launching | State::Starting { .. } if looping => Condition::CrashLooping(None),
            State::Launching | State::Starting { .. } => Condition::Starting,
            State::Ready { .. } => Condition::Ready,
            State::Aborting { .. } | State::Stopping { .. } => Condition::Stopping,
            State::BadConfiguration => Condition::BadConfiguration,
            State::Stopped => Condition::Stopped,
        }
    }
}

/// All processes but the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The zero of all moments.
    pub(crate) start: Instant,
    pub(crate) processes: BTreeMap<Process, ProcessSnapshot>,
    pub(crate) crashes: CrashRing,
    /// How much of earlier runs the kernel cannot end.
    pub(crate) left_over: BTreeMap<Process, usize>,
    /// Who does not see the files that the configuration names now, for people.
    pub(crate) outdated_mounts: Vec<String>,
}

impl Snapshot {
    /// Before anything was started.
    pub(crate) fn empty(start: Instant) -> Snapshot {
        Snapshot {
            start,
            processes: BTreeMap::new(),
            crashes: CrashRing::default(),
            left_over: BTreeMap::new(),
            outdated_mounts: Vec::new(),
        }
    }

    pub(crate) fn of(
        start: Instant,
        fleet: &Fleet,
        records: &BTreeMap<Process, Record>,
        crashes: &CrashRing,
    ) -> Snapshot {
        let processes = fleet.machines().map(|(process, machine)| {
            let snapshot = ProcessSnapshot {
                condition: Condition::of(machine.state(), machine.pace()),
                running: machine.running(),
                record: records.get(&process).cloned().unwrap_or_default(),
            };
            (process, snapshot)
        });
        Snapshot {
            start,
            processes: processes.collect(),
            crashes: crashes.clone(),
            ..Snapshot::empty(start)
        }
    }
}
