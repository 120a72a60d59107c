//! Exponential back-off as arithmetic: no clock, no sleeping.
//!
//! Who waits, and for what, is the caller's business. The rule by which processes are
//! started again is [`pace`]; that of containers lives with who applies it.

pub mod pace;

use std::time::Duration;

/// The shape of a back-off: `base`, doubled at each failure, up to `cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curve {
    /// Wait after the first failure that waits at all.
    pub base: Duration,
    /// The longest wait.
    pub cap: Duration,
    /// How many failures are retried at once before `base` applies.
    pub immediate: u32,
}

impl Curve {
    /// Reconnecting to a peer process on this machine: it is usually back
    /// within milliseconds, and a connect that fails costs next to nothing.
    pub const RECONNECT: Curve = Curve {
        base: Duration::from_millis(5),
        cap: Duration::from_millis(500),
        immediate: 1,
    };

    /// The wait after `failures` failures in a row (0 and below `immediate`: none).
    #[must_use]
    pub fn wait(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(self.immediate + 1) else {
            return Duration::ZERO;
        };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.base
            .checked_mul(factor)
            .unwrap_or(self.cap)
            .min(self.cap)
    }
}

/// Counts failures along a curve.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    curve: Curve,
    failures: u32,
}

impl Backoff {
    /// A back-off without failures yet.
    #[must_use]
    pub fn new(curve: Curve) -> Backoff {
        Backoff { curve, failures: 0 }
    }

    /// Counts a failure and returns how long to wait because of it.
    pub fn failed(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.curve.wait(self.failures)
    }

    /// A success: the next failure is the first again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// `duration` changed by a factor within `1 ± fraction`; `random` is a random number
/// within -1 ..= 1, which the caller has drawn.
#[must_use]
pub fn jittered(duration: Duration, fraction: f64, random: f64) -> Duration {
    duration.mul_f64(1.0 + fraction * random.clamp(-1.0, 1.0))
}

/// `duration` lengthened by a random part of up to `fraction` (the kubelet's
/// `wait.Jitter`).
#[must_use]
pub fn lengthened(duration: Duration, fraction: f64, random: &mut impl rand::Rng) -> Duration {
    duration.mul_f64(1.0 + fraction * random.random_range(0.0..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_doubles_up_to_its_cap() {
        let curve = Curve {
            base: Duration::from_millis(50),
            cap: Duration::from_secs(10),
            immediate: 1,
        };
        let waits: Vec<u64> = (0..12)
            .map(|failures| u64::try_from(curve.wait(failures).as_millis()).unwrap())
            .collect();
        assert_eq!(
            waits,
            [
                0, 0, 50, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000
            ]
        );
        assert_eq!(curve.wait(u32::MAX), curve.cap);
    }

    #[test]
    fn a_success_starts_over() {
        let mut backoff = Backoff::new(Curve {
            immediate: 0,
            ..Curve::RECONNECT
        });
        assert_eq!(backoff.failed(), Duration::from_millis(5));
        assert_eq!(backoff.failed(), Duration::from_millis(10));
        backoff.reset();
        assert_eq!(backoff.failed(), Duration::from_millis(5));
    }

    #[test]
    fn jitter_stays_within_its_fraction() {
        for (number, expected) in [(-9.0, 8), (-1.0, 8), (0.0, 10), (1.0, 12), (9.0, 12)] {
            let both = jittered(Duration::from_secs(10), 0.2, number);
            assert_eq!(both, Duration::from_secs(expected), "{number}");
        }
        let mut random = rand::rng();
        for _ in 0..1000 {
            let longer = lengthened(Duration::from_secs(10), 0.5, &mut random);
            assert!((10.0..=15.0).contains(&longer.as_secs_f64()), "{longer:?}");
        }
    }
}
