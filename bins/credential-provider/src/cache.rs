//! Which answers still count for which images. Pure: the time is given.

use std::collections::BTreeMap;

use pull_credentials::Keyring;
use tokio::time::Instant;

use crate::exchange::{Answer, Scope};

/// Most answers that are kept.
const MAX_ANSWERS: usize = 512;

/// Most bytes of all answers that are kept together.
const MAX_BYTES: usize = 8 << 20;

/// What an answer counts for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum For {
    Image(String),
    Registry(String),
    All,
}

impl For {
    fn of(scope: Scope, repository: &str) -> For {
        match scope {
            Scope::Image => For::Image(repository.to_owned()),
            Scope::Registry => {
                let registry = repository.split('/').next().unwrap_or_default();
                For::Registry(registry.to_owned())
            }
            Scope::Global => For::All,
        }
    }
}

#[derive(Debug)]
struct Entry {
    until: Instant,
    bytes: usize,
    keyring: Keyring,
}

/// Answers of all programs, which are named by their place in the configuration.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: BTreeMap<(usize, For), Entry>,
}

impl Cache {
    /// What a program answered that still counts for the image.
    pub(crate) fn find(&self, program: usize, repository: &str, now: Instant) -> Option<Keyring> {
        let scopes = [Scope::Image, Scope::Registry, Scope::Global];
        let mut found = scopes.into_iter().filter_map(|scope| {
            let key = (program, For::of(scope, repository));
            self.entries.get(&key).filter(|entry| entry.until > now)
        });
        found.next().map(|entry| entry.keyring.clone())
    }

    /// Keeps what a program answered for the image, as long as it counts. What ends first
    /// goes where there is too much.
    pub(crate) fn keep(&mut self, program: usize, repository: &str, answer: &Answer, now: Instant) {
        self.entries.retain(|_, entry| entry.until > now);
        let Some(until) = now.checked_add(answer.lasts).filter(|until| *until > now) else {
            return;
        };
        let entry = Entry {
            until,
            bytes: answer.bytes,
            keyring: answer.keyring.clone(),
        };
        let key = (program, For::of(answer.scope, repository));
        self.entries.insert(key, entry);
        while self.entries.len() > MAX_ANSWERS || self.bytes() > MAX_BYTES {
            let first = self.entries.iter().min_by_key(|(_, entry)| entry.until);
            let Some(key) = first.map(|(key, _)| key.clone()) else {
                return;
            };
            self.entries.remove(&key);
        }
    }

    fn bytes(&self) -> usize {
        self.entries.values().map(|entry| entry.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn answer(scope: Scope, lasts: Duration, bytes: usize) -> Answer {
        let user = ["a.io", "u", "p"].map(str::to_owned).into();
        Answer {
            keyring: Keyring::of_users([user]),
            scope,
            lasts,
            bytes,
        }
    }

    #[test]
    fn an_answer_counts_for_its_scope_its_program_and_its_time() {
        let now = Instant::now();
        for (scope, repository, program, after, expected) in [
            (Scope::Image, "a.io/web", 0, Duration::ZERO, true),
            (Scope::Image, "a.io/web", 0, MINUTE / 2, true),
            (Scope::Image, "a.io/web", 0, MINUTE, false),
            (Scope::Image, "a.io/web", 1, Duration::ZERO, false),
            (Scope::Image, "a.io/other", 0, Duration::ZERO, false),
            (Scope::Registry, "a.io/other", 0, Duration::ZERO, true),
            (Scope::Registry, "b.io/web", 0, Duration::ZERO, false),
            (Scope::Registry, "a.io:5000/web", 0, Duration::ZERO, false),
            (Scope::Global, "b.io/web", 0, Duration::ZERO, true),
            (Scope::Global, "b.io/web", 1, Duration::ZERO, false),
            (Scope::Global, "b.io/web", 0, MINUTE, false),
        ] {
            let mut cache = Cache::default();
            cache.keep(0, "a.io/web", &answer(scope, MINUTE, 1), now);
            let found = cache.find(program, repository, now + after).is_some();
            assert_eq!(
                found, expected,
                "{scope:?} {repository} {program} {after:?}"
            );
        }
    }

    #[test]
    fn an_answer_without_a_time_is_not_kept_and_none_lasts_for_ever() {
        let now = Instant::now();
        let mut cache = Cache::default();
        cache.keep(0, "a.io/web", &answer(Scope::Image, Duration::ZERO, 1), now);
        assert!(cache.find(0, "a.io/web", now).is_none());
        cache.keep(0, "a.io/web", &answer(Scope::Image, Duration::MAX, 1), now);
        assert!(cache.find(0, "a.io/web", now).is_none());
    }

    #[test]
    fn what_ends_first_goes_where_there_is_too_much() {
        let now = Instant::now();
        let mut cache = Cache::default();
        let lasts = |number: usize| MINUTE * u32::try_from(number + 1).unwrap();
        for number in 0..=MAX_ANSWERS {
            let answer = answer(Scope::Image, lasts(number), 1);
            cache.keep(0, &format!("a.io/{number}"), &answer, now);
        }
        assert_eq!(cache.entries.len(), MAX_ANSWERS);
        assert!(cache.find(0, "a.io/0", now).is_none());
        assert!(cache.find(0, "a.io/1", now).is_some());
        let large = answer(Scope::Image, lasts(MAX_ANSWERS + 1), MAX_BYTES);
        cache.keep(0, "a.io/large", &large, now);
        assert_eq!(cache.entries.len(), 1);
        assert!(cache.find(0, "a.io/large", now).is_some());
    }
}
