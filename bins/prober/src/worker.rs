//! One probe of one container instance: when it is tried, and what its tries
//! add up to. Pure: time and randomness are passed in.
//!
//! Rules of the kubelet's prober (1.26 `pkg/kubelet/prober/worker.go`), except
//! that a worker belongs to one container instance, so that nothing of an old
//! instance can reach a new one.
//!
//! ```text
//!              allow                    begin
//!   Paused ------------> Waiting ------------------> Probing
//!     ^                   |   ^                       |  |
//!     +-------------------+   +-----------------------+  |
//!     |     disallow              finish: go on          |
//!     |                                                  | finish: the last word
//!     +--------------------------------------------------+
//!                                                        v
//!                                            OnHold or Stopped
//! ```
//!
//! - Paused -> Waiting: the container runs and, but for a startup probe, has
//!   started;
//! - Waiting, Probing -> Paused: it does not any more;
//! - Waiting -> Probing: the time of a try has come;
//! - Probing -> Waiting: the try added to a streak, or had to be thrown away;
//! - Probing -> OnHold: a liveness or startup probe failed often enough, so the
//!   container will be replaced and there is nothing more to find out;
//! - Probing -> Stopped: a startup probe succeeded;
//! - any but OnHold -> Stopped: liveness and startup of a pod that terminates.

use std::time::Duration;

use crate::spec::Timing;
use crate::{Kind, Moment};

/// What is known of a container instance by one probe, after thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProbeResult {
    /// Nothing yet.
    Unknown,
    /// Alive, ready or started.
    Success,
    /// Not.
    Failure,
}

/// A result and why, for people; `message` is empty while no try has led to it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Verdict {
    /// The result.
    pub result: ProbeResult,
    /// Why.
    pub message: String,
}

impl Verdict {
    /// What holds before the first try: not ready, but alive.
    #[must_use]
    pub(crate) fn initial(kind: Kind) -> Verdict {
        let result = match kind {
            Kind::Liveness => ProbeResult::Success,
            Kind::Readiness => ProbeResult::Failure,
            Kind::Startup => ProbeResult::Unknown,
        };
        Verdict {
            result,
            message: String::new(),
        }
    }
}

/// How one try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The target is well. The text is a warning, or empty.
    Success(String),
    /// The target is not well, or did not answer in time.
    Failure(String),
    /// It could not be found out, through no fault of the target: thrown away.
    Error(String),
}

/// Equal outcomes in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Streak {
    successes: u32,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Paused {
        /// When the next try was planned, if one was: probes that are paused together, by a
        /// restart of the pool, do not begin together.
        tick: Option<Moment>,
    },
    Waiting {
        at: Moment,
        streak: Streak,
    },
    Probing {
        attempt: u64,
        /// When the try was due; the next is due a whole number of periods later.
        due: Moment,
        streak: Streak,
    },
    OnHold,
    Stopped,
}

/// Names one try of this run of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt(pub u64);

/// One probe of one container instance.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    kind: Kind,
    timing: Timing,
    /// No try before: the end of the initial delay, and of the first period for liveness.
    not_before: Moment,
    /// Failures count from here on.
    counts_from: Moment,
    phase: Phase,
    verdict: Verdict,
}

impl Worker {
    /// A worker that is not allowed to probe yet. `age` is how long the container
    /// runs already; `seed` is what was known of this instance before a restart of
    /// this process.
    ///
    /// In a kubelet the first try comes up to a period after the start of the container, with
    /// the next tick of a clock that began before it. So no container is killed here for what
    /// it did in its first period: liveness is not tried in it, and a startup probe is, for a
    /// container that has started already, but its failures do not count.
    #[must_use]
    pub(crate) fn new(
        kind: Kind,
        timing: Timing,
        age: Duration,
        seed: Option<Verdict>,
        now: Moment,
    ) -> Worker {
        let seed = seed.filter(|seed| seed.result != ProbeResult::Unknown);
        let phase = match (kind, seed.as_ref().map(|seed| seed.result)) {
            (Kind::Liveness | Kind::Startup, Some(ProbeResult::Failure)) => Phase::OnHold,
            (Kind::Startup, Some(ProbeResult::Success)) => Phase::Stopped,
            _ => Phase::Paused { tick: None },
        };
        let first_period = match kind {
            Kind::Liveness | Kind::Startup => timing.period,
            Kind::Readiness => Duration::ZERO,
        };
        let earliest = match kind {
            Kind::Liveness => timing.initial_delay.max(first_period),
            Kind::Readiness | Kind::Startup => timing.initial_delay,
        };
        Worker {
            kind,
            timing,
            not_before: now + earliest.saturating_sub(age),
            counts_from: now + first_period.saturating_sub(age),
            phase,
            verdict: seed.unwrap_or_else(|| Verdict::initial(kind)),
        }
    }

    /// Which probe it is.
    #[must_use]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// What is known now.
    #[must_use]
    pub(crate) fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Allows or forbids probing. The first try comes at once, but not before the
    /// initial delay is over (for liveness not in the first period), and `spread` (0 to 1) periods later while this
    /// process is younger than a period: after its restart all probes begin
    /// together otherwise. After a pause tries go on at the ticks before it.
    pub(crate) fn allow(&mut self, allowed: bool, spread: f64, now: Moment) {
        self.phase = match self.phase {
            Phase::Paused { tick } if allowed => Phase::Waiting {
                at: match tick {
                    Some(tick) => tick_from(tick, self.timing.period, now),
                    None => self.first(spread, now),
                },
                streak: Streak::default(),
            },
            Phase::Waiting { at, .. } if !allowed => Phase::Paused { tick: Some(at) },
            Phase::Probing { due, .. } if !allowed => Phase::Paused { tick: Some(due) },
            phase => phase,
        };
    }

    /// When the first try is due.
    fn first(&self, spread: f64, now: Moment) -> Moment {
        let wait = if self.timing.period > now {
            self.timing.period.mul_f64(spread.clamp(0.0, 1.0))
        } else {
            Duration::ZERO
        };
        (now + wait).max(self.not_before)
    }

    /// When the next try is due; `None` when none is planned, or one runs.
    #[must_use]
    pub(crate) fn due(&self) -> Option<Moment> {
        match self.phase {
            Phase::Waiting { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Begins a try, if one is due. `attempt` names it for [`Worker::finish`].
    pub(crate) fn begin(&mut self, attempt: Attempt, now: Moment) -> bool {
        match self.phase {
            Phase::Waiting { at, streak } if at <= now => {
                self.phase = Phase::Probing {
                    attempt: attempt.0,
                    due: at,
                    streak,
                };
                true
            }
            _ => false,
        }
    }

    /// A try ended; one that does not count any more is ignored. Returns whether
    /// the verdict changed.
    pub(crate) fn finish(&mut self, attempt: Attempt, outcome: Outcome, now: Moment) -> bool {
        let Phase::Probing {
            attempt: current,
            due,
            streak,
        } = self.phase
        else {
            return false;
        };
        if current != attempt.0 {
            return false;
        }
        let mut go_on = |streak| {
            self.phase = Phase::Waiting {
                at: next_tick(due, self.timing.period, now),
                streak,
            };
        };
        let (result, message) = match outcome {
            Outcome::Error(_) => {
                go_on(streak);
                return false;
            }
            Outcome::Success(warning) => {
                let successes = streak.successes.saturating_add(1);
                go_on(Streak {
                    successes,
                    failures: 0,
                });
                if successes < self.timing.success_threshold {
                    return false;
                }
                (ProbeResult::Success, warning)
            }
            Outcome::Failure(_) if due < self.counts_from => {
                go_on(Streak::default());
                return false;
            }
            Outcome::Failure(message) => {
                let failures = streak.failures.saturating_add(1);
                go_on(Streak {
                    successes: 0,
                    failures,
                });
                if failures < self.timing.failure_threshold {
                    return false;
                }
                (ProbeResult::Failure, message)
            }
        };
        match (self.kind, result) {
            (Kind::Liveness | Kind::Startup, ProbeResult::Failure) => self.phase = Phase::OnHold,
            (Kind::Startup, ProbeResult::Success) => self.phase = Phase::Stopped,
            _ => {}
        }
        self.conclude(result, message)
    }

    /// The pod terminates: a liveness or startup probe has nothing more to say,
    /// unless it already failed. Returns whether the verdict changed.
    pub(crate) fn terminate(&mut self) -> bool {
        if self.kind == Kind::Readiness || self.phase == Phase::OnHold {
            return false;
        }
        self.phase = Phase::Stopped;
        self.conclude(ProbeResult::Success, String::new())
    }

    /// Takes a result. The message of an unchanged result stays, so that readers
    /// are not woken for each try.
    fn conclude(&mut self, result: ProbeResult, message: String) -> bool {
        let news = self.verdict.result != result
            || (self.verdict.message.is_empty() && !message.is_empty());
        if news {
            self.verdict = Verdict { result, message };
        }
        news
    }
}

/// The first tick after `due`, a whole number of periods later, that is not over
/// at `now`: a slow target is not probed back to back.
fn next_tick(due: Moment, period: Duration, now: Moment) -> Moment {
    tick_from(due + period, period, now)
}

/// The first of the ticks from this one on, a period apart, that is not over at `now`.
fn tick_from(tick: Moment, period: Duration, now: Moment) -> Moment {
    let late = now.saturating_sub(tick).as_nanos();
    let periods = late.div_ceil(period.as_nanos().max(1));
    tick + period.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
