//! Which worker's step is due when.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

/// One time for each worker at most. Pure: the actor brings the clock.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    by_time: BTreeSet<(Instant, String)>,
    by_uid: HashMap<String, Instant>,
}

impl Schedule {
    /// Sets when a worker is due, unless it is due earlier already.
    pub(super) fn at_latest(&mut self, uid: &str, at: Instant) {
        if self.by_uid.get(uid).is_none_or(|&known| at < known) {
            self.cancel(uid);
            self.by_uid.insert(uid.to_owned(), at);
            self.by_time.insert((at, uid.to_owned()));
        }
    }

    /// The worker is not due any more.
    pub(super) fn cancel(&mut self, uid: &str) {
        if let Some(at) = self.by_uid.remove(uid) {
            self.by_time.remove(&(at, uid.to_owned()));
        }
    }

    /// When the next worker is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes a worker that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<String> {
        let (at, uid) = self.by_time.first()?;
        if *at > now {
            return None;
        }
        let uid = uid.clone();
        self.cancel(&uid);
        Some(uid)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_times_counts_and_each_is_taken_once() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let mut schedule = Schedule::default();
        schedule.at_latest("a", later(5));
        schedule.at_latest("a", later(9));
        schedule.at_latest("b", later(7));
        schedule.at_latest("b", later(2));
        assert_eq!(schedule.next(), Some(later(2)));
        assert_eq!(schedule.take_due(later(1)), None);
        assert_eq!(schedule.take_due(later(6)).as_deref(), Some("b"));
        assert_eq!(schedule.take_due(later(6)).as_deref(), Some("a"));
        assert_eq!(schedule.take_due(later(99)), None);
        schedule.at_latest("c", later(1));
        schedule.cancel("c");
        assert_eq!(schedule.next(), None);
    }
}
