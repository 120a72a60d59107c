//! Wall time from one place, so that a test or the simulation can set it.
//!
//! Durations and timers are tokio's; this crate is for timestamps that people or
//! other systems see, for deadlines that must survive a restart, and for one timer
//! that tokio lacks. It also reads durations as Go writes them, which is how Kubernetes
//! has them.

mod go_duration;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::ClockId;
use tokio::time::Instant;

pub use go_duration::parse_go_duration;

/// A point in wall time: nanoseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixNanos(pub i64);

impl UnixNanos {
    /// Time between `earlier` and `self`; zero when the clock went back.
    #[must_use]
    pub fn since(self, earlier: UnixNanos) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// `self` plus a duration, saturating.
    #[must_use]
    pub fn plus(self, duration: Duration) -> UnixNanos {
        let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        UnixNanos(self.0.saturating_add(nanos))
    }
}

impl fmt::Debug for UnixNanos {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}.{:09}s",
            self.0.div_euclid(1_000_000_000),
            self.0.rem_euclid(1_000_000_000)
        )
    }
}

/// Where wall time comes from. Cloning shares the source.
#[derive(Clone, Debug)]
pub struct WallClock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    /// Follows tokio's (possibly paused) clock from a fixed start, shifted by
    /// an offset that a test changes to make wall time jump.
    Simulated {
        start: Instant,
        start_nanos: i64,
        shift_nanos: Arc<AtomicI64>,
    },
}

impl WallClock {
    /// The system's clock.
    #[must_use]
    pub fn system() -> WallClock {
        WallClock(Source::System)
    }

    /// A clock that starts at `start_nanos` now and then follows tokio time.
    /// Must be called inside a tokio runtime when its clock is paused.
    #[must_use]
    pub fn simulated(start_nanos: UnixNanos) -> WallClock {
        WallClock(Source::Simulated {
            start: Instant::now(),
            start_nanos: start_nanos.0,
            shift_nanos: Arc::new(AtomicI64::new(0)),
        })
    }

    /// Now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads wall time"
    )]
    pub fn now(&self) -> UnixNanos {
        match &self.0 {
            Source::System => {
                let since = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                UnixNanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
            }
            Source::Simulated {
                start,
                start_nanos,
                shift_nanos,
            } => UnixNanos(start_nanos.saturating_add(shift_nanos.load(Ordering::Relaxed)))
                .plus(start.elapsed()),
        }
    }

    /// The same clock as if it had never jumped, and never will: by it a test tells how long
    /// something really took. The system's is what it is.
    #[must_use]
    pub fn without_jumps(&self) -> WallClock {
        match &self.0 {
            Source::System => WallClock::system(),
            Source::Simulated {
                start, start_nanos, ..
            } => WallClock(Source::Simulated {
                start: *start,
                start_nanos: *start_nanos,
                shift_nanos: Arc::default(),
            }),
        }
    }

    /// Time since the machine was booted, its sleep included (CLOCK_BOOTTIME): it never
    /// jumps, and the next process of this boot has the same.
    #[must_use]
    pub fn since_boot(&self) -> Duration {
        match &self.0 {
            Source::System => {
                let now = nix::time::clock_gettime(ClockId::CLOCK_BOOTTIME);
                now.map_or_else(|_| Instant::now().into_std().elapsed(), Duration::from)
            }
            Source::Simulated { start, .. } => start.elapsed(),
        }
    }

    /// Makes a simulated clock jump; does nothing to the system's.
    pub fn jump(&self, nanos: i64) {
        if let Source::Simulated { shift_nanos, .. } = &self.0 {
            shift_nanos.fetch_add(nanos, Ordering::Relaxed);
        }
    }
}

/// Sleeps until `deadline`; for ever if there is none. Cancel-safe.
pub async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

impl Default for WallClock {
    fn default() -> Self {
        WallClock::system()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_follows_tokio_time_and_jumps() {
        let clock = WallClock::simulated(UnixNanos(1_000));
        tokio::time::advance(Duration::from_nanos(5_000_000)).await;
        assert_eq!(clock.now(), UnixNanos(5_001_000));
        let steady = clock.without_jumps();
        clock.jump(-1_000);
        assert_eq!(clock.now(), UnixNanos(5_000_000));
        assert_eq!(steady.now(), UnixNanos(5_001_000));
        assert_eq!(clock.since_boot(), Duration::from_millis(5));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_deadline_the_sleep_never_ends() {
        let start = Instant::now();
        let deadline = start + Duration::from_secs(5);
        sleep_until(Some(deadline)).await;
        assert_eq!(Instant::now(), deadline);
        let long = Duration::from_secs(365 * 24 * 3600);
        assert!(tokio::time::timeout(long, sleep_until(None)).await.is_err());
    }

    #[test]
    fn since_is_zero_when_the_clock_went_back() {
        assert_eq!(UnixNanos(1).since(UnixNanos(5)), Duration::ZERO);
    }
}
