//! One process as the supervisor sees it.
//!
//! ```text
//!               +---------------- Ended(78) --------------> BadConfiguration
//!               |                                                 | Restart,
//!   Waiting --> Launching --> Starting --> Ready                  | Reconfigured
//!      ^  ^         |             |  |       |  |                 v
//!      |  +-- LaunchFailed        |  |       |  |             (Waiting)
//!      |                          |  |       |  |
//!      +------ Ended -------------+--|-------+  |
//!      |                             |          |
//!      +------ Ended --- Aborting <--+----------+  start timeout, watchdog
//!      |
//!      +------ Ended --- Stopping <-- any that runs: Restart, Reconfigured
//!
//!   Stopped <- Ended --- Stopping <-- any that runs: Stop
//!   Stopped <----------- any that does not run: Stop
//! ```
//!
//! - `Waiting` -> `Launching`: its wait is over; the shell is told to start it.
//! - `Launching` -> `Starting`: the shell has started it.
//! - `Launching` -> `Waiting`: it could not be started, which counts as a crash; or
//!   something of its last run has not ended yet (`Occupied`), which does not.
//! - `Starting` -> `Ready`: it said so.
//! - `Starting` -> `Aborting`: not ready within [`START_TIMEOUT`].
//! - `Ready` -> `Aborting`: silent for [`WATCHDOG_SILENCE`]; SIGABRT now, SIGKILL
//!   [`KILL_AFTER_ABORT`] later.
//! - `Starting`, `Ready`, `Aborting` -> `Waiting`: it ended by itself or because
//!   of the abort; exit code [`BAD_CONFIGURATION`] leads to `BadConfiguration`.
//! - running -> `Stopping`: SIGTERM now, SIGKILL after [`STOP_GRACE`].
//! - `Stopping` -> `Waiting` or `Stopped`, as was asked for.

use std::time::Duration;

use backoff::pace::{Moment, Pace};

/// How long a process may take until it is ready.
pub const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Silence of a main loop that counts as hung. One that is well speaks every 2 s, and after
/// 3 s at the latest ([`process::BEAT_INTERVAL`], looked at each second), so it may have
/// stood still for a little more than 2 s only.
pub const WATCHDOG_SILENCE: Duration = Duration::from_secs(5);

/// Time for a hung process to leave its traces after SIGABRT.
pub const KILL_AFTER_ABORT: Duration = Duration::from_secs(2);

/// Time from SIGTERM to SIGKILL: starts at the runtime that are under way get 4 s, and there
/// is some time to tell.
pub const STOP_GRACE: Duration = Duration::from_secs(6);

/// How often it is looked whether all of the last run has ended.
pub const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How long a start waits for that. What the kernel cannot end in this time may hang
/// in it for ever.
pub const LEFTOVER_PATIENCE: Duration = Duration::from_secs(5);

/// With this exit code a process says that starting it again does not help.
pub const BAD_CONFIGURATION: i32 = process::EXIT_BAD_CONFIGURATION as i32;

/// A process id, as the shell knows it.
pub type ProcessId = i32;

/// A signal that the supervisor sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Stop in order.
    Terminate,
    /// Leave traces and end.
    Abort,
    /// End.
    Kill,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By this signal.
    Signal(i32),
    /// With this exit code, possibly 0.
    Exit(i32),
}

/// Why a running process is being aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alert {
    /// It was not ready in time.
    StartTimeout,
    /// Its main loop is silent.
    Watchdog,
}

/// What follows once a stopping process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterStop {
    /// It is started again.
    Start,
    /// It stays away.
    Stay,
}

/// Whether the last signal was already sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// SIGKILL follows at this moment.
    Grace(Moment),
    /// SIGKILL was sent; only the kernel can delay the end now.
    Killed,
}

/// The state of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Will be started at `due`.
    Waiting {
        /// When.
        due: Moment,
    },
    /// The shell was told to start it and has not answered.
    Launching,
    /// Runs, not ready yet.
    Starting {
        /// Its process.
        pid: ProcessId,
        /// Since when it runs.
        started: Moment,
    },
    /// Runs and serves.
    Ready {
        /// Its process.
        pid: ProcessId,
        /// Since when it runs.
        started: Moment,
        /// Since when it serves.
        ready: Moment,
        /// When its main loop last spoke.
        last_beat: Moment,
    },
    /// Runs and is being ended because of an alert.
    Aborting {
        /// Its process.
        pid: ProcessId,
        /// Since when it runs.
        started: Moment,
        /// Why.
        alert: Alert,
        /// How far the ending is.
        phase: Phase,
    },
    /// Runs and was asked to stop.
    Stopping {
        /// Its process.
        pid: ProcessId,
        /// Since when it runs.
        started: Moment,
        /// How far the stop is.
        phase: Phase,
        /// What follows.
        then: AfterStop,
    },
    /// Ended with code 78: waits for a changed configuration or a restart.
    BadConfiguration,
    /// Does not run and will not.
    Stopped,
}

/// What happened to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The shell started it.
    Launched(ProcessId),
    /// The shell could not start it.
    LaunchFailed,
    /// The shell did not start it, since something of its last run has not ended yet.
    Occupied,
    /// It said that it is ready.
    Ready,
    /// Its main loop spoke.
    Beat,
    /// It ended and was reaped.
    Ended(Ending),
    /// Time passed.
    Tick,
    /// Somebody asked for a restart.
    Restart,
    /// Its configuration changed.
    Reconfigured,
    /// It is to stop for good.
    Stop,
    /// It is to end at once, for good.
    Kill,
}

/// What the shell has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start it once all of its last run has ended, then answer with `Launched` or
    /// `LaunchFailed`; else answer with `Occupied`.
    Launch,
    /// Start it whatever is left of its last run, and answer as to `Launch`.
    LaunchBeside,
    /// Send a signal.
    Signal(ProcessId, Signal),
}

/// What an ending that happens now would be due to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// The process itself.
    Own,
    /// An alert of the supervisor.
    Alert(Alert),
    /// Somebody's wish.
    Asked,
}

/// One process: its state and its series of crashes.
#[derive(Clone, Debug)]
pub struct Machine {
    state: State,
    pace: Pace,
    backoff_cap: Duration,
    /// Since when something of its last run keeps it from starting.
    occupied_since: Option<Moment>,
}

impl Machine {
    /// To be started at once.
    #[must_use]
    pub fn new(backoff_cap: Duration) -> Machine {
        Machine {
            state: State::Waiting {
                due: Duration::ZERO,
            },
            pace: Pace::new(),
            backoff_cap,
            occupied_since: None,
        }
    }

    /// Changes the longest wait, from the next crash on.
    pub fn set_backoff_cap(&mut self, backoff_cap: Duration) {
        self.backoff_cap = backoff_cap;
    }

    /// Where it is.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Its series of crashes.
    #[must_use]
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Its process, while there is one.
    #[must_use]
    pub fn pid(&self) -> Option<ProcessId> {
        self.running().map(|(pid, _started)| pid)
    }

    /// Its process and since when it runs, while there is one.
    #[must_use]
    pub fn running(&self) -> Option<(ProcessId, Moment)> {
        match self.state {
            State::Starting { pid, started }
            | State::Ready { pid, started, .. }
            | State::Aborting { pid, started, .. }
            | State::Stopping { pid, started, .. } => Some((pid, started)),
            State::Waiting { .. } | State::Launching | State::BadConfiguration | State::Stopped => {
                None
            }
        }
    }

    /// Whether only another configuration or a wish starts it again.
    #[must_use]
    pub fn waits_for_configuration(&self) -> bool {
        self.state == State::BadConfiguration
    }

    /// What an ending that happens now would be due to.
    #[must_use]
    pub fn intent(&self) -> Intent {
        match self.state {
            State::Aborting { alert, .. } => Intent::Alert(alert),
            State::Stopping { .. } => Intent::Asked,
            _ => Intent::Own,
        }
    }

    /// When it wants a `Tick` at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        match self.state {
            State::Waiting { due } => Some(due),
            State::Starting { started, .. } => Some(started + START_TIMEOUT),
            State::Ready { last_beat, .. } => Some(last_beat + WATCHDOG_SILENCE),
            State::Aborting {
                phase: Phase::Grace(until),
                ..
            }
            | State::Stopping {
                phase: Phase::Grace(until),
                ..
            } => Some(until),
            State::Launching
            | State::Aborting { .. }
            | State::Stopping { .. }
            | State::BadConfiguration
            | State::Stopped => None,
        }
    }

    /// Takes an event in. `jitter` is a random number within -1 ..= 1. An event
    /// that does not fit the state changes nothing.
    pub fn step(&mut self, now: Moment, event: Event, jitter: f64) -> Option<Action> {
        match event {
            Event::Launched(pid) => {
                if self.state == State::Launching {
                    self.state = State::Starting { pid, started: now };
                    self.occupied_since = None;
                }
                None
            }
            Event::LaunchFailed => {
                if self.state == State::Launching {
                    self.crashed(now, jitter);
                }
                None
            }
            Event::Occupied => {
                if self.state == State::Launching {
                    self.occupied_since.get_or_insert(now);
                    let due = now + LOOK_AGAIN;
                    self.state = State::Waiting { due };
                }
                None
            }
            Event::Ready | Event::Beat => {
                self.heard(now, event == Event::Ready);
                None
            }
            Event::Ended(ending) => {
                self.ended(now, ending, jitter);
                None
            }
            Event::Tick => self.tick(now),
            Event::Restart | Event::Reconfigured => self.start_again(now),
            Event::Stop => self.stop(now, Signal::Terminate),
            Event::Kill => self.stop(now, Signal::Kill),
        }
    }

    fn heard(&mut self, now: Moment, says_ready: bool) {
        match &mut self.state {
            State::Ready { last_beat, .. } => *last_beat = now,
            State::Starting { pid, started } if says_ready => {
                self.state = State::Ready {
                    pid: *pid,
                    started: *started,
                    ready: now,
                    last_beat: now,
                };
            }
            // Too late for one that is being ended.
            _ => {}
        }
    }

    fn ended(&mut self, now: Moment, ending: Ending, jitter: f64) {
        match self.state {
            State::Starting { .. } | State::Ready { .. } | State::Aborting { .. } => {
                self.readiness_ended(now);
                if ending == Ending::Exit(BAD_CONFIGURATION) {
                    self.state = State::BadConfiguration;
                } else {
                    self.crashed(now, jitter);
                }
            }
            State::Stopping { then, .. } => {
                self.state = match then {
                    AfterStop::Start => State::Waiting { due: now },
                    AfterStop::Stay => State::Stopped,
                };
            }
            State::Waiting { .. } | State::Launching | State::BadConfiguration | State::Stopped => {
            }
        }
    }

    /// How long a process was ready decides how fast it is started again, whichever
    /// way its readiness ended.
    fn readiness_ended(&mut self, at: Moment) {
        if let State::Ready { ready, .. } = self.state {
            let ready_for = at.saturating_sub(ready);
            self.pace.was_ready(ready_for, self.backoff_cap);
        }
    }

    fn crashed(&mut self, now: Moment, jitter: f64) {
        let wait = self.pace.crashed(now, self.backoff_cap, jitter);
        self.state = State::Waiting { due: now + wait };
    }

    fn tick(&mut self, now: Moment) -> Option<Action> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return None;
        }
        match &mut self.state {
            State::Waiting { .. } => {
                self.state = State::Launching;
                let is_too_long = |since: Moment| now.saturating_sub(since) >= LEFTOVER_PATIENCE;
                Some(match self.occupied_since {
                    Some(since) if is_too_long(since) => Action::LaunchBeside,
                    _ => Action::Launch,
                })
            }
            State::Starting { pid, started } => {
                let (pid, started) = (*pid, *started);
                Some(self.abort(now, pid, started, Alert::StartTimeout))
            }
            State::Ready {
                pid,
                started,
                last_beat,
                ..
            } => {
                let (pid, started, last_beat) = (*pid, *started, *last_beat);
                // Silence is no readiness.
                self.readiness_ended(last_beat);
                Some(self.abort(now, pid, started, Alert::Watchdog))
            }
            State::Aborting { pid, phase, .. } | State::Stopping { pid, phase, .. } => {
                *phase = Phase::Killed;
                Some(Action::Signal(*pid, Signal::Kill))
            }
            State::Launching | State::BadConfiguration | State::Stopped => None,
        }
    }

    fn abort(&mut self, now: Moment, pid: ProcessId, started: Moment, alert: Alert) -> Action {
        self.state = State::Aborting {
            pid,
            started,
            alert,
            phase: Phase::Grace(now + KILL_AFTER_ABORT),
        };
        Action::Signal(pid, Signal::Abort)
    }

    /// Asked for by somebody: no crash, and a series of crashes is forgotten.
    fn start_again(&mut self, now: Moment) -> Option<Action> {
        match self.state {
            State::Waiting { .. } | State::BadConfiguration => {
                self.pace = Pace::new();
                self.state = State::Waiting { due: now };
                None
            }
            State::Starting { pid, started } | State::Ready { pid, started, .. } => {
                self.pace = Pace::new();
                self.state = State::Stopping {
                    pid,
                    started,
                    phase: Phase::Grace(now + STOP_GRACE),
                    then: AfterStop::Start,
                };
                Some(Action::Signal(pid, Signal::Terminate))
            }
            // It is on its way to a new start already, or gone for good.
            State::Launching | State::Aborting { .. } | State::Stopping { .. } | State::Stopped => {
                None
            }
        }
    }

    fn stop(&mut self, now: Moment, signal: Signal) -> Option<Action> {
        let (phase, then) = match signal {
            Signal::Kill => (Phase::Killed, AfterStop::Stay),
            Signal::Terminate | Signal::Abort => (Phase::Grace(now + STOP_GRACE), AfterStop::Stay),
        };
        match &mut self.state {
            State::Starting { pid, started } | State::Ready { pid, started, .. } => {
                let (pid, started) = (*pid, *started);
                self.state = State::Stopping {
                    pid,
                    started,
                    phase,
                    then,
                };
                Some(Action::Signal(pid, signal))
            }
            // Already on its way out: only the last signal is still news.
            State::Aborting {
                pid,
                started,
                phase: current,
                ..
            }
            | State::Stopping {
                pid,
                started,
                phase: current,
                ..
            } => {
                let (pid, started, current) = (*pid, *started, *current);
                let kills = phase == Phase::Killed && current != Phase::Killed;
                self.state = State::Stopping {
                    pid,
                    started,
                    phase: if kills { phase } else { current },
                    then,
                };
                kills.then_some(Action::Signal(pid, Signal::Kill))
            }
            State::Waiting { .. } | State::BadConfiguration => {
                self.state = State::Stopped;
                None
            }
            // `Launching` is answered before anything else is handled.
            State::Launching | State::Stopped => None,
        }
    }
}
