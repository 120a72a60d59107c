//! Not ringing too often: how often some events come is up to what runs in a
//! container, and each makes a worker look.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Least time between two bells for one thing. A program whose children run out of
/// memory again and again makes thousands of events a second, which change nothing
/// that a look would show; the end of the container itself is another event.
const PAUSE: Duration = Duration::from_secs(1);

/// Things of which the last bell is remembered: more than pods of a full node. One
/// that is not remembered rings.
const MAX_REMEMBERED: usize = 1024;

/// When it rang last, by what it rang for. Pure: the caller brings the clock.
#[derive(Debug, Default)]
pub(super) struct Pace(HashMap<String, Instant>);

impl Pace {
    /// Whether this event may ring.
    pub(super) fn allows(&mut self, what: &str, now: Instant) -> bool {
        let is_recent = |last: &Instant| now < *last + PAUSE;
        if self.0.get(what).is_some_and(is_recent) {
            return false;
        }
        if self.0.len() >= MAX_REMEMBERED {
            self.0.retain(|_, last| is_recent(last));
        }
        if self.0.len() < MAX_REMEMBERED {
            self.0.insert(what.to_owned(), now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_thing_rings_once_a_second_and_delays_no_other() {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut pace = Pace::default();
        for (what, millis, rings) in [
            ("a", 0, true),
            ("a", 0, false),
            ("b", 1, true),
            ("a", 999, false),
            ("a", 1000, true),
            ("b", 1000, false),
            ("a", 1999, false),
        ] {
            assert_eq!(pace.allows(what, at(millis)), rings, "{what} {millis}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_has_a_bound_and_is_forgotten() {
        let begun = Instant::now();
        let mut pace = Pace::default();
        for number in 0..MAX_REMEMBERED + 10 {
            assert!(pace.allows(&number.to_string(), begun));
        }
        assert_eq!(pace.0.len(), MAX_REMEMBERED);
        assert!(pace.allows("another", begun + PAUSE));
        assert_eq!(pace.0.len(), 1);
    }
}
