//! When the supervisor itself speaks to the watchdog of whoever started it
//! (sd_watchdog_enabled(3)): at twice the rate that it is asked for.

use std::time::Duration;

use super::Moment;

/// Speaking more often than this keeps nobody better informed, whatever silence
/// somebody allows.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The beats of the main loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    every: Duration,
    due: Moment,
}

impl Heartbeat {
    /// Due at once, and then often enough for a watchdog that acts after
    /// `silence`; `None` where a zero says that there is none.
    #[must_use]
    pub fn within(silence: Duration) -> Option<Heartbeat> {
        (!silence.is_zero()).then(|| Heartbeat {
            every: (silence / 2).max(SHORTEST_INTERVAL),
            due: Moment::ZERO,
        })
    }

    /// When the main loop has to speak at the latest.
    #[must_use]
    pub fn due(&self) -> Moment {
        self.due
    }

    /// Whether it is to speak now; then the next time is later.
    #[must_use]
    pub fn beats(&mut self, now: Moment) -> bool {
        let beats = self.due <= now;
        if beats {
            self.due = now.saturating_add(self.every);
        }
        beats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_wakes_when_it_is_due_speaks_twice_in_the_silence_that_is_allowed() {
        let silence = Duration::from_secs(30);
        let mut heartbeat = Heartbeat::within(silence).unwrap();
        let mut spoken = Vec::new();
        while spoken.len() < 5 {
            let now = heartbeat.due();
            assert!(heartbeat.beats(now));
            // Whatever else wakes it meanwhile.
            assert!(!heartbeat.beats(now) && !heartbeat.beats(now + silence / 3));
            spoken.push(now.as_secs());
        }
        assert_eq!(spoken, [0, 15, 30, 45, 60]);
    }

    #[test]
    fn no_silence_means_no_watchdog_and_a_tiny_one_does_not_make_the_loop_spin() {
        assert_eq!(Heartbeat::within(Duration::ZERO), None);
        let mut heartbeat = Heartbeat::within(Duration::from_micros(1)).unwrap();
        assert!(heartbeat.beats(Moment::ZERO));
        assert_eq!(heartbeat.due(), SHORTEST_INTERVAL);
    }
}
