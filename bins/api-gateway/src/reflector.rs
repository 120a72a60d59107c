//! When to list and when to watch, as client-go's reflector does
//! (tools/cache/reflector.go). Pure: it takes what came of the last request and says
//! which is the next.
//!
//! ```text
//!            listed                  ends, or cannot begin
//!   List ------------> Watch ------------------------------> Watch, from the last version
//!    ^  ^-- fails --.    |
//!    '--- 410 ------+----'
//! ```
//!
//! A list is never older than what was seen: it asks for the last version. Only where the API
//! server has forgotten that one, it asks for the newest.

use std::time::Duration;

use backoff::{Backoff, Curve, jittered};

/// Waits after failures; the reflector's numbers.
const CURVE: Curve = Curve {
    base: Duration::from_millis(800),
    cap: Duration::from_secs(30),
    immediate: 0,
};

/// After so long without a failure the next one is the first again.
const QUIET: Duration = Duration::from_secs(120);

/// A watch that ends sooner, without any event, has failed.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);

/// Which version a list or watch begins with, in the words of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Whatever the API server has in its cache.
    Any,
    /// This one or a newer one.
    NotOlderThan(String),
    /// The newest of all.
    Newest,
}

/// The next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    List(Version),
    /// Watch from this version on.
    Watch(String),
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A list, of this version.
    Listed(String),
    /// The version that the list asked for is not there: forgotten, or not reached yet.
    ListExpired,
    ListFailed,
    /// A watch went on to this version, and ended as watches do.
    WatchEnded {
        version: String,
        lasted: Duration,
        had_events: bool,
    },
    /// It could not begin, or broke off: the version stands.
    WatchFailed,
    /// The API server has forgotten the version from which it was to begin.
    WatchExpired,
}

/// The state between two requests.
#[derive(Debug)]
pub(crate) struct Reflector {
    next: Next,
    /// The last version seen; none before the first list.
    seen: Option<String>,
    backoff: Backoff,
    failed_at: Duration,
}

impl Reflector {
    /// Begins with a list that is not older than `seen`.
    pub(crate) fn new(seen: Option<String>) -> Reflector {
        let version = seen.clone().map_or(Version::Any, Version::NotOlderThan);
        Reflector {
            next: Next::List(version),
            seen,
            backoff: Backoff::new(CURVE),
            failed_at: Duration::ZERO,
        }
    }

    /// What to ask.
    pub(crate) fn next(&self) -> &Next {
        &self.next
    }

    /// Takes in what came of it; returns how long to wait before the next. `random` is a
    /// random number within 0 ..= 1.
    pub(crate) fn on(&mut self, outcome: Outcome, now: Duration, random: f64) -> Duration {
        let version = self.seen.clone();
        let (next, is_failure) = match outcome {
            Outcome::Listed(version) => {
                self.seen = Some(version.clone());
                (Next::Watch(version), false)
            }
            Outcome::ListExpired => {
                // Asked for the newest, an API server that says so is not well.
                let is_failure = self.next == Next::List(Version::Newest);
                (Next::List(Version::Newest), is_failure)
            }
            Outcome::WatchEnded {
                version,
                lasted,
                had_events,
            } => {
                self.seen = Some(version.clone());
                let is_failure = is_too_short(lasted, had_events);
                (Next::Watch(version), is_failure)
            }
            Outcome::ListFailed | Outcome::WatchFailed => (self.next.clone(), true),
            Outcome::WatchExpired => {
                let version = version.map_or(Version::Any, Version::NotOlderThan);
                // Without a wait, an API server that says so each time would be asked all the time.
                (Next::List(version), true)
            }
        };
        self.next = next;
        if !is_failure {
            return Duration::ZERO;
        }
        if now.saturating_sub(self.failed_at) > QUIET {
            self.backoff.reset();
        }
        self.failed_at = now;
        // From one to two times the wait.
        jittered(self.backoff.failed() * 3 / 2, 1.0 / 3.0, random * 2.0 - 1.0)
    }
}

/// Whether a watch that ended has failed.
pub(crate) fn is_too_short(lasted: Duration, had_events: bool) -> bool {
    lasted < SHORTEST_WATCH && !had_events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(version: &str) -> Next {
        Next::List(Version::NotOlderThan(version.to_owned()))
    }

    fn watch(version: &str) -> Next {
        Next::Watch(version.to_owned())
    }

    fn ended(version: &str, seconds: u64, had_events: bool) -> Outcome {
        Outcome::WatchEnded {
            version: version.to_owned(),
            lasted: Duration::from_secs(seconds),
            had_events,
        }
    }

    #[test]
    fn each_outcome_has_its_next_request() {
        let newest = || Next::List(Version::Newest);
        let waits = true;
        for (seen, outcomes, expected, expected_wait) in [
            (None, vec![], Next::List(Version::Any), false),
            (Some("7"), vec![], list("7"), false),
            (
                None,
                vec![Outcome::ListFailed],
                Next::List(Version::Any),
                waits,
            ),
            (Some("7"), vec![Outcome::ListExpired], newest(), false),
            (
                Some("7"),
                vec![Outcome::ListExpired, Outcome::ListExpired],
                newest(),
                waits,
            ),
            (None, vec![Outcome::Listed("9".into())], watch("9"), false),
            (
                None,
                vec![Outcome::Listed("9".into()), ended("12", 400, false)],
                watch("12"),
                false,
            ),
            (
                None,
                vec![Outcome::Listed("9".into()), ended("12", 0, true)],
                watch("12"),
                false,
            ),
            (
                None,
                vec![Outcome::Listed("9".into()), ended("9", 0, false)],
                watch("9"),
                waits,
            ),
            (
                None,
                vec![Outcome::Listed("9".into()), Outcome::WatchFailed],
                watch("9"),
                waits,
            ),
            (
                None,
                vec![
                    Outcome::Listed("9".into()),
                    ended("12", 400, false),
                    Outcome::WatchExpired,
                ],
                list("12"),
                waits,
            ),
        ] {
            let mut reflector = Reflector::new(seen.map(str::to_owned));
            let mut wait = Duration::ZERO;
            for outcome in outcomes.clone() {
                wait = reflector.on(outcome, Duration::ZERO, 0.5);
            }
            assert_eq!(*reflector.next(), expected, "{seen:?} {outcomes:?}");
            assert_eq!(
                wait > Duration::ZERO,
                expected_wait,
                "{seen:?} {outcomes:?}"
            );
        }
    }

    #[test]
    fn waits_grow_to_a_minute_at_most_and_begin_again_after_quiet_minutes() {
        let mut reflector = Reflector::new(None);
        let mut now = Duration::ZERO;
        let fail =
            |reflector: &mut Reflector, now, random| reflector.on(Outcome::ListFailed, now, random);
        let millis = Duration::from_millis;
        assert_eq!(fail(&mut reflector, now, 0.0), millis(800));
        assert_eq!(fail(&mut reflector, now, 1.0), millis(3200));
        for _ in 0..20 {
            now += Duration::from_secs(30);
            assert!(fail(&mut reflector, now, 1.0) <= Duration::from_secs(60));
        }
        assert_eq!(fail(&mut reflector, now, 0.0), Duration::from_secs(30));
        now += QUIET + Duration::from_secs(1);
        assert_eq!(fail(&mut reflector, now, 0.0), millis(800));
    }
}
