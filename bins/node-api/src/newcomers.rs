//! Connections that have shown no credentials yet: so many at once, and each for so long.
//!
//! When one more comes, the oldest has to go: whoever holds connections without showing
//! credentials cannot keep out whoever has some.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Most of them.
const MAX: usize = 64;

/// How long one may take: a TLS handshake and the head of a request.
pub(crate) const TIME: Duration = Duration::from_secs(10);

/// All of them.
#[derive(Clone, Default)]
pub(crate) struct Newcomers(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    next: u64,
    oldest_first: VecDeque<(u64, CancellationToken)>,
}

/// A place among them, given back when dropped.
pub(crate) struct Newcomer {
    all: Newcomers,
    number: u64,
    /// Cancelled when it has to go.
    pub(crate) has_to_go: CancellationToken,
}

impl Newcomers {
    /// A place for one more.
    pub(crate) fn admit(&self) -> Newcomer {
        let mut waiting = self.lock();
        if waiting.oldest_first.len() >= MAX
            && let Some((_, oldest)) = waiting.oldest_first.pop_front()
        {
            oldest.cancel();
        }
        let (number, has_to_go) = (waiting.next, CancellationToken::new());
        waiting.next += 1;
        waiting.oldest_first.push_back((number, has_to_go.clone()));
        Newcomer {
            all: self.clone(),
            number,
            has_to_go,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        let mut waiting = self.all.lock();
        waiting
            .oldest_first
            .retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_has_to_go_when_one_more_comes() {
        let all = Newcomers::default();
        let mut waiting: Vec<Newcomer> = (0..MAX).map(|_| all.admit()).collect();
        // It has shown who it is.
        drop(waiting.remove(0));
        let one_more = all.admit();
        assert!(waiting.iter().all(|it| !it.has_to_go.is_cancelled()));
        let another = all.admit();
        let gone = waiting.iter().filter(|it| it.has_to_go.is_cancelled());
        assert_eq!(gone.count(), 1);
        assert!(waiting[0].has_to_go.is_cancelled());
        assert!(!one_more.has_to_go.is_cancelled() && !another.has_to_go.is_cancelled());
    }
}
