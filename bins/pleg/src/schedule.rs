//! When to relist, and what: all pods from time to time, at once a pod that the
//! runtime rang for. Pure: time is passed in.
//!
//! ```text
//!            next: due                        next: due
//!        +---------------> Relisting(All) <---+
//!   Idle-+                       |            |
//!     ^  +---------------> Relisting(Pod)     |
//!     |      next: hinted        |            |
//!     +--------------------------+ ended      (lost, or many hints)
//! ```
//!
//! - Idle -> Relisting(All): the interval is over, hints were lost, or so many pods
//!   are hinted that one list of all is cheaper;
//! - Idle -> Relisting(Pod): a pod is hinted and relists for hints may go on;
//! - Relisting -> Idle: the relist ended, well or not.
//!
//! Only one relist runs at a time, so that an older list can never be compared
//! after a newer one.
//!
//! The interval is 1 s, or 10 s while the runtime's events have proven complete
//! (`completeness`). Whatever they tell brings the next relist of all to within 1 s,
//! so that the longer interval is in force only where nothing happens, and each
//! thing that does happen is a test of the events.
//!
//! What does not live here: the calls (`shell`).

use std::collections::BTreeSet;
use std::time::Duration;

use pod::identity::check_uid;

use crate::completeness::{Completeness, MAX_HINTS, Moment, SHORT};

/// Hinted pods above which all pods are listed instead: that takes two calls to
/// the runtime, as many as one pod.
pub(crate) const MANY_HINTS: usize = 3;

/// Least time between a relist and the next that only a hint asks for.
pub(crate) const HINT_GAP: Duration = Duration::from_millis(10);

/// After a relist, hints wait this many times as long as it took: a storm of
/// them keeps the runtime busy for a fifth of the time at most.
pub(crate) const HINT_REST: u32 = 4;

/// What a relist looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All pods.
    All,
    /// The pod with this uid.
    Pod(String),
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Relist, then call [`Schedule::ended`].
    Relist(Scope),
    /// Nothing before this moment.
    WaitUntil(Moment),
    /// Nothing before the relist that runs has ended.
    WaitForRelist,
}

#[derive(Clone, Debug)]
enum Hints {
    Pods(BTreeSet<String>),
    /// Some were lost, or there are too many: look at everything.
    All,
}

#[derive(Clone, Debug)]
enum Phase {
    Idle,
    Relisting {
        scope: Scope,
        began: Moment,
        /// Pods whose hints this relist answers.
        hinted: BTreeSet<String>,
    },
}

/// How a relist ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The pool did not answer, or could not.
    Failed,
    /// These pods had changed in a way that a runtime tells by an event.
    Listed(BTreeSet<String>),
}

/// The schedule of relists.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    phase: Phase,
    completeness: Completeness,
    all_due: Moment,
    hints: Hints,
    hints_from: Moment,
}

impl Default for Schedule {
    fn default() -> Self {
        Schedule::new()
    }
}

impl Schedule {
    /// The first relist is due at once.
    #[must_use]
    pub(crate) fn new() -> Schedule {
        Schedule {
            phase: Phase::Idle,
            completeness: Completeness::new(),
            all_due: Moment::ZERO,
            hints: Hints::Pods(BTreeSet::new()),
            hints_from: Moment::ZERO,
        }
    }

    /// The runtime says that something happened to a pod. What cannot be a pod's uid
    /// means "something, somewhere".
    pub(crate) fn hint(&mut self, now: Moment, uid: String) {
        if check_uid(&uid).is_err() {
            self.hints_lost(now);
            return;
        }
        self.completeness.told(&uid, now);
        if let Hints::Pods(pods) = &mut self.hints {
            if pods.len() >= MAX_HINTS {
                self.hints = Hints::All;
            } else {
                pods.insert(uid);
            }
        }
        self.all_due = self.all_due.min(now + SHORT);
    }

    /// Hints may have been lost.
    pub(crate) fn hints_lost(&mut self, now: Moment) {
        self.completeness.told_of_any(now);
        self.hints = Hints::All;
        self.all_due = self.all_due.min(now + SHORT);
    }

    /// The runtime sends events from now on, or none.
    pub(crate) fn events(&mut self, now: Moment, available: bool) {
        self.completeness.events(available);
        // What happened before the first event was sent is not hinted.
        self.hints_lost(now);
    }

    /// The way to the runtime's events broke. Whether hints were lost is told when it
    /// is open again.
    pub(crate) fn events_broke(&mut self, now: Moment) {
        self.completeness.events(false);
        self.all_due = self.all_due.min(now + SHORT);
    }

    /// The interval in force and why, for people.
    #[must_use]
    pub(crate) fn describe_interval(&self) -> String {
        self.completeness.describe()
    }

    /// What to do now. An answer of [`Step::Relist`] begins that relist.
    pub(crate) fn next(&mut self, now: Moment) -> Step {
        if matches!(self.phase, Phase::Relisting { .. }) {
            return Step::WaitForRelist;
        }
        let hints_due = now >= self.hints_from;
        match &mut self.hints {
            _ if now >= self.all_due => self.begin_all(now),
            Hints::All if hints_due => self.begin_all(now),
            Hints::Pods(pods) if hints_due && pods.len() > MANY_HINTS => self.begin_all(now),
            Hints::Pods(pods) if hints_due => match pods.pop_first() {
                Some(uid) => self.begin(now, Scope::Pod(uid.clone()), [uid].into()),
                None => Step::WaitUntil(self.all_due),
            },
            Hints::Pods(pods) if pods.is_empty() => Step::WaitUntil(self.all_due),
            Hints::All | Hints::Pods(_) => Step::WaitUntil(self.hints_from.min(self.all_due)),
        }
    }

    fn begin_all(&mut self, now: Moment) -> Step {
        let hinted = match std::mem::replace(&mut self.hints, Hints::Pods(BTreeSet::new())) {
            Hints::Pods(pods) => pods,
            Hints::All => BTreeSet::new(),
        };
        self.begin(now, Scope::All, hinted)
    }

    fn begin(&mut self, began: Moment, scope: Scope, hinted: BTreeSet<String>) -> Step {
        self.phase = Phase::Relisting {
            scope: scope.clone(),
            began,
            hinted,
        };
        Step::Relist(scope)
    }

    /// The relist ended. Returns the pods whose hints it answers, or would have
    /// answered had it succeeded.
    pub(crate) fn ended(&mut self, now: Moment, outcome: &Outcome) -> BTreeSet<String> {
        let Phase::Relisting {
            scope,
            began,
            hinted,
        } = std::mem::replace(&mut self.phase, Phase::Idle)
        else {
            return BTreeSet::new();
        };
        match (scope, outcome) {
            (Scope::All, Outcome::Failed) => self.all_due = now + SHORT,
            (Scope::All, Outcome::Listed(changed)) => {
                self.completeness.relisted_all(began, now, changed);
                self.all_due = now + self.completeness.interval();
            }
            (Scope::Pod(_), Outcome::Failed) => {}
            (Scope::Pod(_), Outcome::Listed(changed)) => {
                self.completeness.relisted_one(!changed.is_empty());
            }
        }
        let rest = now.saturating_sub(began).saturating_mul(HINT_REST);
        self.hints_from = now + rest.clamp(HINT_GAP, SHORT);
        hinted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completeness::LONG;

    fn at(millis: u64) -> Moment {
        Duration::from_millis(millis)
    }

    fn pod(uid: &str) -> Step {
        Step::Relist(Scope::Pod(uid.to_owned()))
    }

    const ALL: Step = Step::Relist(Scope::All);

    fn quiet() -> Outcome {
        Outcome::Listed(BTreeSet::new())
    }

    /// A schedule that has just done its first relist, which took no time.
    fn relisted_at(millis: u64) -> Schedule {
        let mut schedule = Schedule::new();
        assert_eq!(schedule.next(at(millis)), ALL);
        schedule.ended(at(millis), &quiet());
        schedule
    }

    #[test]
    fn all_pods_are_listed_a_second_after_the_last_list_ended() {
        let mut schedule = Schedule::new();
        assert_eq!(schedule.next(at(0)), ALL);
        assert_eq!(schedule.next(at(5)), Step::WaitForRelist);
        schedule.ended(at(700), &quiet());
        assert_eq!(schedule.next(at(701)), Step::WaitUntil(at(1700)));
        assert_eq!(schedule.next(at(1700)), ALL);
    }

    #[test]
    fn a_hint_relists_its_pod_at_once_and_only_once() {
        let mut schedule = relisted_at(0);
        schedule.hint(at(0), "a".to_owned());
        schedule.hint(at(0), "a".to_owned());
        assert_eq!(schedule.next(at(500)), pod("a"));
        assert_eq!(schedule.ended(at(500), &quiet()), ["a".to_owned()].into());
        assert_eq!(schedule.next(at(600)), Step::WaitUntil(at(1000)));
    }

    #[test]
    fn a_hint_during_a_relist_is_kept_for_after_it() {
        let mut schedule = Schedule::new();
        assert_eq!(schedule.next(at(0)), ALL);
        schedule.hint(at(0), "a".to_owned());
        assert_eq!(schedule.next(at(1)), Step::WaitForRelist);
        assert!(schedule.ended(at(2), &quiet()).is_empty());
        assert_eq!(schedule.next(at(2)), Step::WaitUntil(at(12)));
        assert_eq!(schedule.next(at(12)), pod("a"));
    }

    #[test]
    fn relists_for_hints_take_a_fifth_of_the_time_at_most() {
        let mut schedule = relisted_at(0);
        schedule.hint(at(0), "a".to_owned());
        assert_eq!(schedule.next(at(100)), pod("a"));
        schedule.ended(at(150), &quiet());
        schedule.hint(at(150), "a".to_owned());
        assert_eq!(schedule.next(at(151)), Step::WaitUntil(at(350)));
        assert_eq!(schedule.next(at(350)), pod("a"));
        // A relist that hung for long does not put hints off for ever.
        schedule.ended(at(60_000), &quiet());
        schedule.hint(at(60_000), "a".to_owned());
        assert_eq!(schedule.next(at(60_000)), ALL);
        schedule.ended(at(120_000), &quiet());
        schedule.hint(at(120_000), "a".to_owned());
        assert_eq!(schedule.next(at(120_001)), Step::WaitUntil(at(121_000)));
    }

    #[test]
    fn hints_never_put_off_the_list_of_all() {
        let mut schedule = relisted_at(0);
        let mut lists = 0;
        for millis in 0..10_000 {
            schedule.hint(at(millis), "a".to_owned());
            match schedule.next(at(millis)) {
                ALL => {
                    lists += 1;
                    schedule.ended(at(millis), &quiet());
                }
                Step::Relist(Scope::Pod(_)) => drop(schedule.ended(at(millis), &quiet())),
                Step::WaitUntil(until) => assert!(until > at(millis)),
                Step::WaitForRelist => panic!("nothing runs"),
            }
        }
        assert_eq!(lists, 9);
    }

    #[test]
    fn many_hints_or_lost_ones_mean_one_list_of_all() {
        let mut schedule = relisted_at(0);
        let uids = ["a", "b", "c", "d"].map(str::to_owned);
        for uid in uids.clone() {
            schedule.hint(at(0), uid);
        }
        assert_eq!(schedule.next(at(100)), ALL);
        assert_eq!(schedule.ended(at(100), &quiet()), uids.into());

        schedule.hint(at(100), "a".to_owned());
        schedule.hints_lost(at(100));
        assert_eq!(schedule.next(at(200)), ALL);
        schedule.ended(at(200), &quiet());
        assert_eq!(schedule.next(at(300)), Step::WaitUntil(at(1200)));
    }

    #[test]
    fn what_is_remembered_of_hints_is_bounded() {
        let mut schedule = relisted_at(0);
        for number in 0..10 * MAX_HINTS {
            schedule.hint(at(0), number.to_string());
        }
        assert!(matches!(schedule.hints, Hints::All));
    }

    #[test]
    fn a_hint_that_names_no_pod_means_all() {
        for uid in [String::new(), "x".repeat(65), "../a".to_owned()] {
            let mut schedule = relisted_at(0);
            schedule.hint(at(0), uid);
            assert!(matches!(schedule.hints, Hints::All));
        }
    }

    /// Relists of all pods and one change that an event told, until the events are
    /// proven and quiet; returns when the next relist is due.
    fn proven(schedule: &mut Schedule) -> Moment {
        schedule.events(at(0), true);
        schedule.hint(at(0), "a".to_owned());
        let (changed, none) = (Outcome::Listed(["a".to_owned()].into()), quiet());
        for _ in 0..100 {
            let now = schedule.all_due;
            assert_eq!(schedule.next(now), ALL);
            let first = now == at(0);
            schedule.ended(now, if first { &changed } else { &none });
            if schedule.all_due == now + LONG {
                return schedule.all_due;
            }
            assert_eq!(schedule.all_due, now + SHORT);
        }
        panic!("the events are never proven");
    }

    #[test]
    fn events_that_have_proven_complete_stretch_the_interval() {
        let mut schedule = Schedule::new();
        let due = proven(&mut schedule);
        let before = due - Duration::from_millis(1);
        assert_eq!(schedule.next(before), Step::WaitUntil(due));
        assert_eq!(schedule.next(due), ALL);
        schedule.ended(due, &quiet());
        assert_eq!(schedule.all_due, due + LONG);
    }

    #[test]
    fn an_event_brings_the_list_of_all_to_within_a_second() {
        let mut schedule = Schedule::new();
        let now = proven(&mut schedule) - LONG + at(3000);
        schedule.hint(now, "a".to_owned());
        assert_eq!(schedule.next(now), pod("a"));
        schedule.ended(now, &quiet());
        assert_eq!(schedule.next(now), Step::WaitUntil(now + SHORT));
        // What it told may show in a later list only.
        assert_eq!(schedule.next(now + SHORT), ALL);
        schedule.ended(now + SHORT, &quiet());
        assert_eq!(schedule.all_due, now + 2 * SHORT);
    }

    #[test]
    fn a_failure_and_a_broken_stream_bring_the_short_interval_back() {
        let mut schedule = Schedule::new();
        let due = proven(&mut schedule);
        let mut failed = schedule.clone();
        assert_eq!(failed.next(due), ALL);
        failed.ended(due, &Outcome::Failed);
        assert_eq!(failed.all_due, due + SHORT);
        let now = due - LONG + at(1);
        schedule.events_broke(now);
        assert_eq!(schedule.next(now), Step::WaitUntil(now + SHORT));
    }
}
