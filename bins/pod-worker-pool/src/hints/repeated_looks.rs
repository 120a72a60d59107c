//! Looking again: a runtime tells of an end before its own lists show it.
//!
//! containerd publishes the exit of a task, then cleans up, then writes the new
//! state down. Who looks at the first bell sees a container that runs, and nothing
//! rings after that. So an end is looked after a few more times, soon and then
//! less soon, until it shows; pleg's relist is the net below that.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Waits between the looks. The first are about what the clean-up of a task
/// takes; together they end where a relist would have noticed anyway.
const WAITS: [Duration; 6] = [
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(60),
    Duration::from_millis(150),
    Duration::from_millis(400),
];

/// Ends that are looked after at once; more than containers of a full node.
const MAX_LOOKED_AFTER: usize = 1024;

/// An end that may not show yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    /// Its pod.
    pub(super) uid: String,
    /// The container or sandbox.
    pub(super) id: String,
}

/// The ends that are looked after. Pure: the caller brings the clock.
#[derive(Debug, Default)]
pub(super) struct RepeatedLooks {
    /// When each is due, and how many waits it has had.
    known: BTreeMap<End, (Instant, usize)>,
}

impl RepeatedLooks {
    /// The runtime told of an end; a repeated bell begins anew.
    pub(super) fn heard(&mut self, end: End, now: Instant) {
        if self.known.len() < MAX_LOOKED_AFTER || self.known.contains_key(&end) {
            self.wait(end, now, 0);
        }
    }

    /// When the next look is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.known.values().map(|(at, _)| *at).min()
    }

    /// Takes an end that is due, with the number of waits it has had. The caller
    /// looks, and gives it back to `still_hidden` if it does not show.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(End, usize)> {
        let (end, (_, waits)) = self.known.iter().find(|(_, (at, _))| *at <= now)?;
        let due = (end.clone(), *waits);
        self.known.remove(&due.0);
        Some(due)
    }

    /// An end that was taken does not show yet; after the last wait it is let go.
    pub(super) fn still_hidden(&mut self, end: End, waits: usize, now: Instant) {
        self.wait(end, now, waits + 1);
    }

    fn wait(&mut self, end: End, now: Instant, waits: usize) {
        if let Some(wait) = WAITS.get(waits) {
            self.known.insert(end, (now + *wait, waits));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(id: &str) -> End {
        End {
            uid: "u1".into(),
            id: id.into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_does_not_show_is_looked_after_a_few_times() {
        let begun = Instant::now();
        let mut repeated = RepeatedLooks::default();
        repeated.heard(end("c"), begun);
        let mut looks = Vec::new();
        while let Some(at) = repeated.next() {
            assert_eq!(repeated.take_due(at - Duration::from_nanos(1)), None);
            let (end, waits) = repeated.take_due(at).unwrap();
            looks.push((at - begun).as_millis());
            repeated.still_hidden(end, waits, at);
        }
        assert_eq!(looks, [5, 15, 40, 100, 250, 650]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_bell_begins_anew_and_one_that_shows_is_let_go() {
        let begun = Instant::now();
        let mut repeated = RepeatedLooks::default();
        repeated.heard(end("c"), begun);
        let later = begun + Duration::from_millis(3);
        repeated.heard(end("c"), later);
        assert_eq!(repeated.next(), Some(later + WAITS[0]));
        assert!(repeated.take_due(later + WAITS[0]).is_some());
        assert_eq!(repeated.next(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_bounded() {
        let mut repeated = RepeatedLooks::default();
        for number in 0..MAX_LOOKED_AFTER + 9 {
            repeated.heard(end(&number.to_string()), Instant::now());
        }
        assert_eq!(repeated.known.len(), MAX_LOOKED_AFTER);
    }
}
