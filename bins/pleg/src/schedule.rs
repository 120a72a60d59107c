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
//! - Idle -> Relisting(All): the interval is over, hints were lost, or several pods are
//!   hinted;
//! - Idle -> Relisting(Pod): one pod is hinted;
//! - Relisting -> Idle: the relist ended, well or not.
//!
//! After a relist that answered hints, those that come next wait for [`SHORT`]. So the
//! first hint after a quiet time is answered at once, and a storm of them by one
//! list of all pods a second, which is two calls to the runtime like the list of one
//! pod. Nothing waits for that second but what sync-loop is told: the pool's own worker
//! is woken by the same event.
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

use pod::identity::check_uid;

use crate::completeness::{Completeness, Moment, SHORT};

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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Hints {
    #[default]
    None,
    Pod(String),
    /// They were about several pods, or some were lost: look at everything.
    All,
}

#[derive(Clone, Debug)]
enum Phase {
    Idle,
    Relisting {
        scope: Scope,
        began: Moment,
        /// Whether it answers hints.
        is_hinted: bool,
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
            hints: Hints::None,
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
        self.hints = match std::mem::take(&mut self.hints) {
            Hints::None => Hints::Pod(uid),
            Hints::Pod(other) if other == uid => Hints::Pod(uid),
            Hints::Pod(_) | Hints::All => Hints::All,
        };
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
        if now >= self.all_due {
            return self.begin(now, Scope::All);
        }
        let scope = match &self.hints {
            Hints::None => return Step::WaitUntil(self.all_due),
            Hints::Pod(uid) => Scope::Pod(uid.clone()),
            Hints::All => Scope::All,
        };
        if now < self.hints_from {
            return Step::WaitUntil(self.hints_from.min(self.all_due));
        }
        self.begin(now, scope)
    }

    fn begin(&mut self, began: Moment, scope: Scope) -> Step {
        self.phase = Phase::Relisting {
            scope: scope.clone(),
            began,
            is_hinted: std::mem::take(&mut self.hints) != Hints::None,
        };
        Step::Relist(scope)
    }

    /// The relist ended.
    pub(crate) fn ended(&mut self, now: Moment, outcome: &Outcome) {
        let Phase::Relisting {
            scope,
            began,
            is_hinted,
        } = std::mem::replace(&mut self.phase, Phase::Idle)
        else {
            return;
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
        if is_hinted {
            self.hints_from = now + SHORT;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        schedule.ended(at(500), &quiet());
        assert_eq!(schedule.next(at(600)), Step::WaitUntil(at(1000)));
    }

    #[test]
    fn a_hint_during_a_relist_is_kept_for_after_it() {
        let mut schedule = Schedule::new();
        assert_eq!(schedule.next(at(0)), ALL);
        schedule.hint(at(0), "a".to_owned());
        assert_eq!(schedule.next(at(1)), Step::WaitForRelist);
        schedule.ended(at(2), &quiet());
        assert_eq!(schedule.next(at(2)), pod("a"));
    }

    #[test]
    fn a_storm_of_hints_leads_to_one_list_a_second() {
        let mut schedule = relisted_at(0);
        let mut lists = Vec::new();
        for millis in 1..5_000 {
            schedule.hint(at(millis), (millis % 7).to_string());
            if let Step::Relist(scope) = schedule.next(at(millis)) {
                lists.push((millis, scope));
                schedule.ended(at(millis), &quiet());
            }
        }
        let all = |millis| (millis, Scope::All);
        let first = (1, Scope::Pod("1".to_owned()));
        assert_eq!(lists, [first, all(1000), all(2000), all(3000), all(4000)]);
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
                Step::Relist(Scope::Pod(_)) => schedule.ended(at(millis), &quiet()),
                Step::WaitUntil(until) => assert!(until > at(millis)),
                Step::WaitForRelist => panic!("nothing runs"),
            }
        }
        assert_eq!(lists, 9);
    }

    #[test]
    fn hints_of_several_pods_or_lost_ones_mean_one_list_of_all() {
        let mut schedule = relisted_at(0);
        for uid in ["a", "b"] {
            schedule.hint(at(0), uid.to_owned());
        }
        assert_eq!(schedule.next(at(100)), ALL);
        schedule.ended(at(100), &quiet());
        assert_eq!(schedule.next(at(200)), Step::WaitUntil(at(1100)));

        let mut schedule = relisted_at(0);
        schedule.hint(at(100), "a".to_owned());
        schedule.hints_lost(at(100));
        assert_eq!(schedule.next(at(200)), ALL);
        schedule.ended(at(200), &quiet());
        assert_eq!(schedule.next(at(300)), Step::WaitUntil(at(1200)));
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
