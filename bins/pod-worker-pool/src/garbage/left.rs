//! [`Left`]: garbage that cannot be removed, for people. A pod without a worker has nobody
//! else who could tell of it.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the last round could not remove. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// What was noted since the last round ended: what goes on beside the rounds, too.
    noted: BTreeSet<String>,
    /// What is told until the next one has ended; empty if nothing is left.
    told: String,
}

/// What is logged.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Begins(String),
    Ends,
}

impl Left {
    /// Something cannot be removed.
    pub(super) fn note(&self, what: impl Display, error: impl Display) {
        let noted = format!("{what}: {error}");
        tracing::debug!("garbage not removed: {noted}");
        self.lock().noted.insert(noted);
    }

    /// The round has ended.
    pub(super) fn end(&self) {
        match self.tell() {
            Some(Change::Begins(told)) => tracing::warn!("{told}; each round tries again"),
            Some(Change::Ends) => tracing::info!("no garbage is left any more"),
            None => {}
        }
    }

    fn tell(&self) -> Option<Change> {
        let state = &mut *self.lock();
        let noted = std::mem::take(&mut state.noted);
        let told = match (noted.first(), noted.len()) {
            (None, _) => String::new(),
            (Some(first), 1) => format!("garbage is left: {first}"),
            (Some(first), all) => format!("garbage is left: {first}, and {} more", all - 1),
        };
        let before = std::mem::replace(&mut state.told, told.clone());
        match (before.is_empty(), told.is_empty()) {
            (true, false) => Some(Change::Begins(told)),
            (false, true) => Some(Change::Ends),
            _ => None,
        }
    }

    /// A line for `bulkhead status`; empty if there is nothing to tell.
    pub(crate) fn status_line(&self) -> String {
        self.lock().told.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_round_after_round_is_logged_once_and_shown_as_long_as_it_is() {
        let left = Left::default();
        let round = |of: &[&str]| {
            for id in of {
                left.note(format_args!("container {id}"), "refused");
            }
            left.tell()
        };
        assert_eq!(round(&[]), None);
        let one = "garbage is left: container a: refused".to_owned();
        assert_eq!(round(&["a"]), Some(Change::Begins(one.clone())));
        for _ in 0..10 {
            assert_eq!((round(&["a"]), left.status_line()), (None, one.clone()));
        }
        assert_eq!(round(&["b", "a", "a"]), None);
        assert_eq!(left.status_line(), format!("{one}, and 1 more"));
        assert_eq!(round(&[]), Some(Change::Ends));
        assert_eq!(left.status_line(), "");
    }
}
