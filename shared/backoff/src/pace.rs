//! How fast a process that fails is started again.
//!
//! A crash before [`SOON`] doubles the wait. Readiness for [`READY_FOR_HALF`] times
//! the last wait halves it, as often as there was time for that, and a crash after
//! that or in between does not double it: who is killed now and then, by whatever is
//! outside of it, does not wait.
//!
//! ```text
//!            6th crash within 60 s
//!   Steady ------------------------> CrashLooping
//!      ^                                  |
//!      +---- 60 s of readiness, or -------+
//!            an explicit restart
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use crate::{Curve, jittered};

/// Time since the supervisor started, of a clock that never jumps.
pub type Moment = Duration;

/// The first wait that is one; the very first restart happens at once, since a
/// single crash is usually over with it.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// A crash after less readiness than this comes soon after the start.
pub const SOON: Duration = Duration::from_secs(1);

/// Readiness for this many times the last wait halves it.
pub const READY_FOR_HALF: u32 = 10;

/// Each wait is changed by a random part of up to this much, so that processes
/// that crash together do not come back together.
pub const JITTER: f64 = 0.2;

/// Readiness for this long ends a series of crashes, however long the last wait was.
pub const STEADY_AFTER: Duration = Duration::from_secs(60);

/// More crashes than this within [`CRASH_LOOP_WINDOW`] show as crash-looping.
pub const CRASH_LOOP_RESTARTS: usize = 5;

/// See [`CRASH_LOOP_RESTARTS`].
pub const CRASH_LOOP_WINDOW: Duration = Duration::from_secs(60);

/// The series of crashes that a process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Few crashes, or none: the moments of the latest ones and how many there
    /// were in this series.
    Steady {
        /// How often the wait was doubled, and not halved again; the first crash counts.
        failures: u32,
        /// When they were; at most [`CRASH_LOOP_RESTARTS`], oldest first.
        recent: VecDeque<Moment>,
    },
    /// Too many crashes; still retried.
    CrashLooping {
        /// As above.
        failures: u32,
    },
}

impl Pace {
    /// Without any crash.
    #[must_use]
    pub fn new() -> Pace {
        Pace::Steady {
            failures: 0,
            recent: VecDeque::new(),
        }
    }

    /// In a series of which so many failures are left: for who remembers nothing else.
    #[must_use]
    pub fn after(failures: u32) -> Pace {
        Pace::Steady {
            failures,
            recent: VecDeque::new(),
        }
    }

    /// How often the wait was doubled, and not halved again.
    #[must_use]
    pub fn failures(&self) -> u32 {
        let (Pace::Steady { failures, .. } | Pace::CrashLooping { failures }) = self;
        *failures
    }

    /// Takes note that it was ready for this long, and is no more. To be followed by
    /// [`Pace::crashed`] when that was a crash.
    pub fn was_ready(&mut self, ready_for: Duration, cap: Duration) {
        if ready_for >= STEADY_AFTER {
            *self = Pace::new();
            return;
        }
        if ready_for < SOON {
            return;
        }
        let (Pace::Steady { failures, .. } | Pace::CrashLooping { failures }) = self;
        let mut unused = ready_for;
        while *failures > 1 {
            let for_half = READY_FOR_HALF * curve(cap).wait(*failures);
            let Some(rest) = unused.checked_sub(for_half) else {
                break;
            };
            unused = rest;
            *failures -= 1;
        }
        // What the crash to come adds.
        *failures = failures.saturating_sub(1);
    }

    /// Counts a crash and tells how long to wait because of it. `jitter` is a
    /// random number within -1 ..= 1.
    pub fn crashed(&mut self, now: Moment, cap: Duration, jitter: f64) -> Duration {
        let (Pace::Steady { failures, .. } | Pace::CrashLooping { failures }) = self;
        // Past the longest wait there is nothing to double, nor to halve one by one.
        if *failures == 0 || curve(cap).wait(*failures) < cap {
            *failures += 1;
        }
        let failures = *failures;
        if let Pace::Steady { recent, .. } = self {
            recent.retain(|crash| now.saturating_sub(*crash) <= CRASH_LOOP_WINDOW);
            if recent.len() >= CRASH_LOOP_RESTARTS {
                *self = Pace::CrashLooping { failures };
            } else {
                recent.push_back(now);
            }
        }
        jittered(curve(cap).wait(failures), JITTER, jitter)
    }

    /// Whether it shows as crash-looping.
    #[must_use]
    pub fn is_crash_looping(&self) -> bool {
        matches!(self, Pace::CrashLooping { .. })
    }
}

fn curve(cap: Duration) -> Curve {
    Curve {
        base: FIRST_WAIT,
        cap,
        immediate: 1,
    }
}

impl Default for Pace {
    fn default() -> Self {
        Pace::new()
    }
}

#[cfg(test)]
mod tests;
