//! How fast a process that fails is started again.
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

use backoff::Curve;

/// Time since the supervisor started, of a clock that never jumps.
pub type Moment = Duration;

/// The first wait that is one; the very first restart happens at once, since a
/// single crash is usually over with it.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// Each wait is changed by a random part of up to this much, so that processes
/// that crash together do not come back together.
pub const JITTER: f64 = 0.2;

/// Readiness for this long ends a series of crashes.
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
        /// Crashes in this series.
        failures: u32,
        /// When; at most [`CRASH_LOOP_RESTARTS`], oldest first.
        recent: VecDeque<Moment>,
    },
    /// Too many crashes; still retried.
    CrashLooping {
        /// Crashes in this series.
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

    /// Counts a crash and tells how long to wait because of it. `jitter` is a
    /// random number within -1 ..= 1.
    pub fn crashed(&mut self, now: Moment, cap: Duration, jitter: f64) -> Duration {
        let failures = match self {
            Pace::Steady { failures, recent } => {
                let failures = failures.saturating_add(1);
                recent.retain(|crash| now.saturating_sub(*crash) <= CRASH_LOOP_WINDOW);
                if recent.len() >= CRASH_LOOP_RESTARTS {
                    *self = Pace::CrashLooping { failures };
                } else {
                    recent.push_back(now);
                    let recent = std::mem::take(recent);
                    *self = Pace::Steady { failures, recent };
                }
                failures
            }
            Pace::CrashLooping { failures } => {
                *failures = failures.saturating_add(1);
                *failures
            }
        };
        let curve = Curve {
            base: FIRST_WAIT,
            cap,
            immediate: 1,
        };
        backoff::jittered(curve.wait(failures), JITTER, jitter)
    }

    /// Whether it shows as crash-looping.
    #[must_use]
    pub fn is_crash_looping(&self) -> bool {
        matches!(self, Pace::CrashLooping { .. })
    }
}

impl Default for Pace {
    fn default() -> Self {
        Pace::new()
    }
}
