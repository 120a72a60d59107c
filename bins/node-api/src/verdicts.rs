//! What the API server said of a token or a user, as long as it stands. Pure: time is passed in.

use std::collections::HashMap;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

/// Most verdicts that are kept; when there are more, those that stand longest go first.
const MAX_VERDICTS: usize = 1024;

/// What a verdict is about, without being it: tokens are not kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Subject([u8; 32]);

impl Subject {
    /// Of these texts, in this order.
    pub(crate) fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Subject {
        let mut digest = Sha256::new();
        for text in texts {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        }
        Subject(digest.finalize().into())
    }
}

/// Verdicts by what they are about.
pub(crate) struct Verdicts<T>(HashMap<Subject, Verdict<T>>);

struct Verdict<T> {
    value: T,
    until: Duration,
}

impl<T: Clone> Verdicts<T> {
    pub(crate) fn new() -> Verdicts<T> {
        Verdicts(HashMap::new())
    }

    /// The verdict that stands now.
    pub(crate) fn get(&self, subject: Subject, now: Duration) -> Option<T> {
        let found = self.0.get(&subject).filter(|it| it.until > now);
        found.map(|it| it.value.clone())
    }

    /// A verdict that stands until then.
    pub(crate) fn set(&mut self, subject: Subject, value: T, now: Duration, until: Duration) {
        if self.0.len() >= MAX_VERDICTS {
            self.0.retain(|_, verdict| verdict.until > now);
        }
        if self.0.len() >= MAX_VERDICTS {
            let ends = self.0.iter().map(|(subject, it)| (it.until, *subject));
            if let Some((_, first)) = ends.min_by_key(|(until, _)| *until) {
                self.0.remove(&first);
            }
        }
        self.0.insert(subject, Verdict { value, until });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_stands_until_its_time_and_no_more_are_kept_than_fit() {
        let at = Duration::from_secs;
        let subject = |number: usize| Subject::of([&*number.to_string()]);
        let mut verdicts = Verdicts::new();
        verdicts.set(subject(0), true, at(0), at(30));
        assert_eq!(verdicts.get(subject(0), at(29)), Some(true));
        assert_eq!(verdicts.get(subject(0), at(30)), None);
        for number in 1..2 * MAX_VERDICTS {
            verdicts.set(subject(number), true, at(0), at(60 + number as u64));
        }
        assert_eq!(verdicts.0.len(), MAX_VERDICTS);
        let newest = subject(2 * MAX_VERDICTS - 1);
        assert_eq!(verdicts.get(newest, at(1)), Some(true));
    }

    #[test]
    fn texts_are_kept_apart() {
        assert!(Subject::of(["ab", "c"]) != Subject::of(["a", "bc"]));
    }
}
