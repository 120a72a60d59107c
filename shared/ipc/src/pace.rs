//! So many units a second, and some at once after a quiet time.

use std::time::Duration;

use tokio::time::Instant;

/// When the next may begin.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Duration,
    at_once: u32,
    next: Option<Instant>,
}

impl Pace {
    /// So many a second; after a quiet time `at_once` of them, which is 1 at least.
    pub(crate) fn new(a_second: u32, at_once: u32) -> Pace {
        Pace {
            interval: Duration::from_secs(1) / a_second.max(1),
            at_once,
            next: None,
        }
    }

    /// When so many that have come now may begin.
    pub(crate) fn reserve(&mut self, now: Instant, count: u32) -> Instant {
        let unused = now.checked_sub(self.interval * self.at_once.saturating_sub(1));
        let next = self.next.max(unused).unwrap_or(now);
        self.next = Some(next + self.interval * count);
        next
    }

    /// Lets what comes after `latest` begin then.
    pub(crate) fn forgive(&mut self, latest: Instant) {
        self.next = self.next.map(|next| next.min(latest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_has_as_many_as_it_says() {
        let start = Instant::now();
        let mut pace = Pace::new(10, 10);
        let waits = |pace: &mut Pace, now: Instant, count| {
            let begin = pace.reserve(now, count);
            begin.saturating_duration_since(now).as_millis()
        };
        // The first ten at once, then one every 100 ms.
        let all: Vec<u128> = (0..13).map(|_| waits(&mut pace, start, 1)).collect();
        assert_eq!(all, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 200, 300]);
        // What was used in advance is paid for, and no more is saved than a second's.
        let later = start + Duration::from_millis(400);
        assert_eq!(waits(&mut pace, later, 1), 0);
        assert_eq!(waits(&mut pace, later, 1), 100);
        let much_later = start + Duration::from_secs(100);
        let free = (0..50).filter(|_| waits(&mut pace, much_later, 1) == 0);
        assert_eq!(free.count(), 10);
        // Those that come together are paid for by the next.
        let at_last = start + Duration::from_secs(200);
        let all: Vec<u128> = (0..3).map(|_| waits(&mut pace, at_last, 15)).collect();
        assert_eq!(all, [0, 600, 2_100]);
        // Fewer at once are as many a second.
        let mut pace = Pace::new(10, 2);
        let all: Vec<u128> = (0..4).map(|_| waits(&mut pace, start, 1)).collect();
        assert_eq!(all, [0, 0, 100, 200]);
        let much_later = start + Duration::from_secs(100);
        let free = (0..50).filter(|_| waits(&mut pace, much_later, 1) == 0);
        assert_eq!(free.count(), 2);
    }
}
