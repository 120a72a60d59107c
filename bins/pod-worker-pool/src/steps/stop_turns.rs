//! Whose turn it is among instances that are stopped in an order.

use std::collections::BTreeMap;

use tokio::sync::watch;
use tokio::time::Instant;

/// The instances of one stop that have ended.
#[derive(Debug)]
pub(super) struct StopTurns(watch::Sender<BTreeMap<String, bool>>);

impl Default for StopTurns {
    fn default() -> StopTurns {
        StopTurns(watch::Sender::new(BTreeMap::new()))
    }
}

impl StopTurns {
    /// The stop of an instance is over; whether that has ended.
    pub(super) fn note_end(&self, id: &str, has_ended: bool) {
        let id = id.to_owned();
        self.0.send_modify(|ends| {
            ends.insert(id, has_ended);
        });
    }

    /// Waits until these have ended, `until` then at most. `false`: one of them could not
    /// be stopped, and there is time left to try that again first.
    pub(super) async fn wait_for(&self, others: &[String], until: Instant) -> bool {
        let mut ends = self.0.subscribe();
        let all_over = ends.wait_for(|ends| {
            let has_failed = others.iter().any(|id| ends.get(id) == Some(&false));
            has_failed || others.iter().all(|id| ends.contains_key(id))
        });
        match tokio::time::timeout_at(until, all_over).await {
            Ok(Ok(ends)) => {
                let has_failed = others.iter().any(|id| ends.get(id) == Some(&false));
                !has_failed || Instant::now() >= until
            }
            Ok(Err(_)) | Err(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_turn_comes_when_all_before_it_have_ended_or_the_time_is_over() {
        let turns = StopTurns::default();
        let until = Instant::now() + Duration::from_secs(5);
        assert!(turns.wait_for(&[], until).await);
        let before = ["a".to_owned(), "b".to_owned()];
        turns.note_end("a", true);
        assert!(turns.wait_for(&before, until).await);
        assert!(Instant::now() >= until, "b has not ended");
        let until = Instant::now() + Duration::from_secs(5);
        turns.note_end("b", true);
        assert!(turns.wait_for(&before, until).await);
        turns.note_end("b", false);
        assert!(!turns.wait_for(&before, until).await);
        assert!(Instant::now() < until);
        tokio::time::sleep_until(until).await;
        assert!(turns.wait_for(&before, until).await, "b had its time");
    }
}
