//! How many requests are made in a lane: 50 a second over time, `BURST` at once after a pause. The
//! kubelet's numbers (`kubeAPIQPS`, `kubeAPIBurst`). Pure: time is passed in.

use std::time::Duration;

/// Time between two requests, over time: 50 a second.
const INTERVAL: Duration = Duration::from_millis(20);

/// Requests at once after a pause.
const BURST: u32 = 100;

/// Requests that wait for their turn among themselves only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Of the Lease, which never waits.
    Lease,
    /// Of statuses and ends of pods, and of the Node's status.
    Status,
    /// Of events.
    Event,
    /// Of reviews, for which a client of the node waits.
    Review,
    /// All others.
    Other,
}

/// The pace of each lane that has one.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    status: Pace,
    event: Pace,
    review: Pace,
    other: Pace,
}

impl Paces {
    /// None for the Lease.
    pub(crate) fn of(&mut self, lane: Lane) -> Option<&mut Pace> {
        match lane {
            Lane::Lease => None,
            Lane::Status => Some(&mut self.status),
            Lane::Event => Some(&mut self.event),
            Lane::Review => Some(&mut self.review),
            Lane::Other => Some(&mut self.other),
        }
    }
}

/// The requests that were made.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the next request would be due if they had been made evenly.
    due: Duration,
    /// The API server has asked for a pause until then.
    paused_until: Duration,
}

impl Pace {
    /// How long the next request waits; it counts as made.
    pub(crate) fn admit(&mut self, now: Duration) -> Duration {
        let due = self.due.max(now);
        self.due = due + INTERVAL;
        let of_rate = (due + INTERVAL).saturating_sub(now + INTERVAL * BURST);
        of_rate.max(self.paused_until.saturating_sub(now))
    }

    /// The API server has too much to do.
    pub(crate) fn pause(&mut self, now: Duration, wait: Duration) {
        self.paused_until = self.paused_until.max(now + wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_what_follows_goes_evenly() {
        let mut pace = Pace::default();
        let now = Duration::from_secs(9);
        for _ in 0..BURST {
            assert_eq!(pace.admit(now), Duration::ZERO);
        }
        assert_eq!(pace.admit(now), INTERVAL);
        assert_eq!(pace.admit(now), INTERVAL * 2);
        // After a second without requests 50 more go at once.
        let later = now + INTERVAL * 2 + Duration::from_secs(1);
        let at_once = (0..200).take_while(|_| pace.admit(later).is_zero());
        assert_eq!(at_once.count(), 50);
    }

    #[test]
    fn a_server_that_asks_for_a_pause_gets_it() {
        let mut pace = Pace::default();
        let now = Duration::from_secs(9);
        pace.pause(now, Duration::from_secs(2));
        pace.pause(now, Duration::from_secs(1));
        assert_eq!(pace.admit(now), Duration::from_secs(2));
        assert_eq!(pace.admit(now + Duration::from_secs(2)), Duration::ZERO);
    }
}
