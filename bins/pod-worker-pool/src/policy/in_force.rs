//! Which policy holds after a reading of the file. Pure.

use std::sync::Arc;

use clock::UnixNanos;
use node_policy::{Mode, Policy, Protected};

use crate::root_file::FileError;

/// Where the policy in force comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// There is no file: `baseline` for every source.
    NoFile,
    /// The file, as it was when it was last good.
    File,
    /// An earlier process has read it from the file, and this one could not.
    LastGood,
    /// The file is not good and never was: nothing new is started.
    Nothing,
}

impl Origin {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Origin::NoFile => "no file",
            Origin::File => "file",
            Origin::LastGood => "last good file",
            Origin::Nothing => "nothing",
        }
    }
}

/// The policy in force.
#[derive(Clone, Debug)]
pub(super) struct InForce {
    /// Absent: nothing new is started.
    pub(super) policy: Option<Arc<Policy>>,
    /// What the policy was read from.
    pub(super) text: String,
    pub(super) origin: Origin,
    /// Since when it is in force.
    pub(super) since: UnixNanos,
    /// Why the file as it is now is not what is in force.
    pub(super) problem: Option<String>,
}

impl InForce {
    /// Before the file is read for the first time: what an earlier process remembers.
    pub(super) fn at_start(
        remembered: Option<&str>,
        protected: &Protected,
        now: UnixNanos,
    ) -> InForce {
        let text = remembered.unwrap_or_default().to_owned();
        let policy = remembered.map(|text| Policy::parse(text, protected.clone()));
        let (policy, origin) = match policy {
            Some(Ok(policy)) => (Some(Arc::new(policy)), Origin::LastGood),
            Some(Err(_)) | None => (None, Origin::Nothing),
        };
        InForce {
            policy,
            text,
            origin,
            since: now,
            problem: None,
        }
    }

    /// After a reading. What is broken or gone changes nothing but what is shown.
    pub(super) fn after(
        self,
        found: Result<Option<String>, FileError>,
        protected: &Protected,
        now: UnixNanos,
    ) -> InForce {
        let text = match found {
            Err(error) => return self.with_problem(telemetry::chain(&error)),
            Ok(Some(text)) => text,
            Ok(None) => {
                // The process before remembers an empty text where there was no file.
                let had_file = match self.origin {
                    Origin::File => true,
                    Origin::LastGood => !self.text.is_empty(),
                    Origin::NoFile | Origin::Nothing => false,
                };
                return match self.origin {
                    _ if had_file => {
                        let advice = "the file is gone; for a policy without grants leave it empty";
                        self.with_problem(advice.to_owned())
                    }
                    Origin::NoFile => self,
                    Origin::File | Origin::LastGood | Origin::Nothing => InForce {
                        policy: Some(Arc::new(Policy::without_file(protected.clone()))),
                        text: String::new(),
                        origin: Origin::NoFile,
                        since: now,
                        problem: None,
                    },
                };
            }
        };
        match Policy::parse(&text, protected.clone()) {
            Err(error) => self.with_problem(error.to_string()),
            Ok(_) if text == self.text && self.origin == Origin::File => InForce {
                problem: None,
                ..self
            },
            Ok(policy) => InForce {
                policy: Some(Arc::new(policy)),
                text,
                origin: Origin::File,
                since: now,
                problem: None,
            },
        }
    }

    fn with_problem(self, problem: String) -> InForce {
        let is_default = self.text.is_empty() && self.origin != Origin::File;
        let consequence = match self.policy {
            Some(_) if is_default => "baseline stays in force, as without a file",
            Some(_) => "the last good policy stays in force",
            None => "there is no policy that was good, so nothing new is started",
        };
        InForce {
            problem: Some(format!("{problem}; {consequence}")),
            ..self
        }
    }

    pub(super) fn mode(&self) -> Option<Mode> {
        self.policy.as_ref().map(|policy| policy.mode())
    }

    /// Whether nobody needs to be told of the difference.
    pub(super) fn says_the_same(&self, other: &InForce) -> bool {
        (self.origin, &self.text, &self.problem) == (other.origin, &other.text, &other.problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "mode = \"audit\"";
    const NOW: UnixNanos = UnixNanos(7);

    fn start(remembered: Option<&str>) -> InForce {
        InForce::at_start(remembered, &Protected::default(), UnixNanos(1))
    }

    fn reading(text: Option<&str>) -> Result<Option<String>, FileError> {
        Ok(text.map(str::to_owned))
    }

    fn after(before: InForce, found: Result<Option<String>, FileError>) -> InForce {
        before.after(found, &Protected::default(), NOW)
    }

    const BROKEN: &str = "mode = 1";

    /// Where the policy comes from, its mode, and whether a problem is shown.
    type Shown = (Origin, Option<Mode>, bool);

    fn shown(state: &InForce) -> Shown {
        (state.origin, state.mode(), state.problem.is_some())
    }

    fn file() -> InForce {
        after(start(None), reading(Some(GOOD)))
    }

    #[test]
    fn what_the_first_reading_leads_to() {
        let baseline = Some(Mode::Enforce);
        let cases: [(Option<&str>, Option<&str>, Shown); 8] = [
            // A process before has found no file.
            (Some(""), None, (Origin::NoFile, baseline, false)),
            (Some(""), Some(BROKEN), (Origin::LastGood, baseline, true)),
            (None, None, (Origin::NoFile, Some(Mode::Enforce), false)),
            (None, Some(GOOD), (Origin::File, Some(Mode::Audit), false)),
            (None, Some(BROKEN), (Origin::Nothing, None, true)),
            (
                Some(GOOD),
                Some(BROKEN),
                (Origin::LastGood, Some(Mode::Audit), true),
            ),
            (
                Some(GOOD),
                None,
                (Origin::LastGood, Some(Mode::Audit), true),
            ),
            // What an earlier process remembers is no policy any more.
            (
                Some(BROKEN),
                None,
                (Origin::NoFile, Some(Mode::Enforce), false),
            ),
        ];
        for (remembered, text, expected) in cases {
            let state = after(start(remembered), reading(text));
            assert_eq!(shown(&state), expected, "{remembered:?} {text:?}");
        }
    }

    #[test]
    fn what_a_later_reading_leads_to() {
        let no_file = || after(start(None), reading(None));
        let broken = || after(start(None), reading(Some(BROKEN)));
        let kept = (Origin::File, Some(Mode::Audit), true);
        let good = (Origin::File, Some(Mode::Audit), false);
        let cases: [(InForce, Option<&str>, Shown); 7] = [
            (file(), Some(BROKEN), kept),
            (file(), None, kept),
            (file(), Some(""), (Origin::File, Some(Mode::Enforce), false)),
            (broken(), Some(GOOD), good),
            (broken(), None, (Origin::NoFile, Some(Mode::Enforce), false)),
            (
                no_file(),
                Some(BROKEN),
                (Origin::NoFile, Some(Mode::Enforce), true),
            ),
            (no_file(), Some(GOOD), good),
        ];
        for (before, text, expected) in cases {
            let what = format!("{before:?} {text:?}");
            assert_eq!(shown(&after(before, reading(text))), expected, "{what}");
        }
        let writable = Err(FileError::WritableByOthers { mode: 0o666 });
        assert_eq!(shown(&after(file(), writable)), kept);
    }

    #[test]
    fn it_is_in_force_since_it_changed() {
        let file = after(start(None), reading(Some(GOOD)));
        assert_eq!(file.since, NOW);
        let later = |found| {
            file.clone()
                .after(found, &Protected::default(), UnixNanos(9))
        };
        assert_eq!(later(reading(Some(GOOD))).since, NOW);
        assert_eq!(later(reading(Some("mode = 1"))).since, NOW);
        assert_eq!(later(reading(Some(""))).since, UnixNanos(9));
        assert!(later(reading(Some(GOOD))).says_the_same(&file));
        assert!(!later(reading(None)).says_the_same(&file));
    }
}
