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
//! The interval is [`SHORT`], or [`LONG`] while the runtime sends events. Whatever they
//! say brings the next relist of all to within [`SHORT`], since runtimes report an end
//! before their lists show it. So the longer interval is in force only where nothing
//! happens, and a change whose event was lost is noticed after [`LONG`] at most.
//!
//! What does not live here: the calls (`shell`).

use std::time::Duration;

use pod::identity::check_uid;

/// Time since this process started.
pub(crate) type Moment = Duration;

/// From the end of one relist of all pods to the next, without events (the kubelet's
/// `genericPlegRelistPeriod`).
const SHORT: Duration = Duration::from_secs(1);

/// The same, while the runtime sends events.
const LONG: Duration = Duration::from_secs(5);

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
        /// Whether it answers hints.
        is_hinted: bool,
    },
}

/// How a relist ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The pool did not answer, or could not.
    Failed,
    /// It answered.
    Listed,
}

/// The schedule of relists.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    phase: Phase,
    /// The runtime sends events.
    has_events: bool,
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
            has_events: false,
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
        self.hints = match std::mem::take(&mut self.hints) {
            Hints::None => Hints::Pod(uid),
            Hints::Pod(other) if other == uid => Hints::Pod(uid),
            Hints::Pod(_) | Hints::All => Hints::All,
        };
        self.all_due = self.all_due.min(now + SHORT);
    }

    /// Hints may have been lost.
    pub(crate) fn hints_lost(&mut self, now: Moment) {
        self.hints = Hints::All;
        self.all_due = self.all_due.min(now + SHORT);
    }

    /// The runtime sends events from now on, or none.
    pub(crate) fn events(&mut self, now: Moment, available: bool) {
        self.has_events = available;
        // What happened before the first event was sent is not hinted.
        self.hints_lost(now);
    }

    /// The way to the runtime's events broke. Whether hints were lost is told when it
    /// is open again.
    pub(crate) fn events_broke(&mut self, now: Moment) {
        self.has_events = false;
        self.all_due = self.all_due.min(now + SHORT);
    }

    /// The interval in force and why, for people.
    #[must_use]
    pub(crate) fn describe_interval(&self) -> String {
        let reason = match self.has_events {
            true => "the runtime sends events",
            false => "no events of the runtime",
        };
        format!("relist interval {} s: {reason}", self.interval().as_secs())
    }

    fn interval(&self) -> Duration {
        match self.has_events {
            true => LONG,
            false => SHORT,
        }
    }

    /// What to do now. An answer of [`Step::Relist`] begins that relist.
    pub(crate) fn next(&mut self, now: Moment) -> Step {
        if matches!(self.phase, Phase::Relisting { .. }) {
            return Step::WaitForRelist;
        }
        if now >= self.all_due {
            return self.begin(Scope::All);
        }
        let scope = match &self.hints {
            Hints::None => return Step::WaitUntil(self.all_due),
            Hints::Pod(uid) => Scope::Pod(uid.clone()),
            Hints::All => Scope::All,
        };
        if now < self.hints_from {
            return Step::WaitUntil(self.hints_from.min(self.all_due));
        }
        self.begin(scope)
    }

    fn begin(&mut self, scope: Scope) -> Step {
        self.phase = Phase::Relisting {
            scope: scope.clone(),
            is_hinted: std::mem::take(&mut self.hints) != Hints::None,
        };
        Step::Relist(scope)
    }

    /// The relist ended.
    pub(crate) fn ended(&mut self, now: Moment, outcome: Outcome) {
        let Phase::Relisting { scope, is_hinted } = std::mem::replace(&mut self.phase, Phase::Idle)
        else {
            return;
        };
        if scope == Scope::All {
            let interval = match outcome {
                Outcome::Failed => SHORT,
                Outcome::Listed => self.interval(),
            };
            self.all_due = now + interval;
        }
        if is_hinted {
            self.hints_from = now + SHORT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Duration::from_millis(millis)
    }

    fn pod(uid: &str) -> Step {
        Step::Relist(Scope::Pod(uid.to_owned()))
    }

    const ALL: Step = Step::Relist(Scope::All);

    /// A schedule that has just done its first relist, which took no time.
    fn relisted_at(millis: u64) -> Schedule {
        let mut schedule = Schedule::new();
        assert_eq!(schedule.next(at(millis)), ALL);
        schedule.ended(at(millis), Outcome::Listed);
        schedule
    }

    #[test]
    fn all_pods_are_listed_a_second_after_the_last_list_ended() {
        let mut schedule = Schedule::new();
        assert_eq!(schedule.next(at(0)), ALL);
        assert_eq!(schedule.next(at(5)), Step::WaitForRelist);
        schedule.ended(at(700), Outcome::Listed);
        assert_eq!(schedule.next(at(701)), Step::WaitUntil(at(1700)));
        assert_eq!(schedule.next(at(1700)), ALL);
    }

    #[test]
    fn a_hint_relists_its_pod_at_once_and_only_once() {
        let mut schedule = relisted_at(0);
        schedule.hint(at(0), "a".to_owned());
        schedule.hint(at(0), "a".to_owned());
        assert_eq!(schedule.next(at(500)), pod("a"));
        schedule.ended(at(500), Outcome::Listed);
        assert_eq!(schedule.next(at(600)), Step::WaitUntil(at(1000)));
    }

    #[test]
    fn a_hint_during_a_relist_is_kept_for_after_it() {
        let mut schedule = Schedule::new();
        assert_eq!(schedule.next(at(0)), ALL);
        schedule.hint(at(0), "a".to_owned());
        assert_eq!(schedule.next(at(1)), Step::WaitForRelist);
        schedule.ended(at(2), Outcome::Listed);
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
                schedule.ended(at(millis), Outcome::Listed);
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
                    schedule.ended(at(millis), Outcome::Listed);
                }
                Step::Relist(Scope::Pod(_)) => schedule.ended(at(millis), Outcome::Listed),
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
        schedule.ended(at(100), Outcome::Listed);
        assert_eq!(schedule.next(at(200)), Step::WaitUntil(at(1100)));

        let mut schedule = relisted_at(0);
        schedule.hint(at(100), "a".to_owned());
        schedule.hints_lost(at(100));
        assert_eq!(schedule.next(at(200)), ALL);
        schedule.ended(at(200), Outcome::Listed);
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

    /// A schedule that has just done its first relist, with events.
    fn with_events_at(millis: u64) -> Schedule {
        let mut schedule = Schedule::new();
        schedule.events(at(millis), true);
        assert_eq!(schedule.next(at(millis)), ALL);
        schedule.ended(at(millis), Outcome::Listed);
        schedule
    }

    #[test]
    fn events_stretch_the_interval() {
        let mut schedule = with_events_at(0);
        let before = LONG - at(1);
        assert_eq!(schedule.next(before), Step::WaitUntil(LONG));
        assert_eq!(schedule.next(LONG), ALL);
        schedule.ended(LONG, Outcome::Listed);
        assert_eq!(schedule.all_due, 2 * LONG);
        let described = "relist interval 5 s: the runtime sends events";
        assert_eq!(schedule.describe_interval(), described);
    }

    #[test]
    fn an_event_brings_the_list_of_all_to_within_a_second() {
        let mut schedule = with_events_at(0);
        let now = at(3000);
        schedule.hint(now, "a".to_owned());
        assert_eq!(schedule.next(now), pod("a"));
        schedule.ended(now, Outcome::Listed);
        assert_eq!(schedule.next(now), Step::WaitUntil(now + SHORT));
        // What it reported may show in a later list only.
        assert_eq!(schedule.next(now + SHORT), ALL);
        schedule.ended(now + SHORT, Outcome::Listed);
        assert_eq!(schedule.all_due, now + SHORT + LONG);
    }

    #[test]
    fn a_failure_and_a_broken_stream_bring_the_short_interval_back() {
        let mut schedule = with_events_at(0);
        let mut failed = schedule.clone();
        assert_eq!(failed.next(LONG), ALL);
        failed.ended(LONG, Outcome::Failed);
        assert_eq!(failed.all_due, LONG + SHORT);
        schedule.events_broke(at(1));
        assert_eq!(schedule.next(at(1)), Step::WaitUntil(at(1) + SHORT));
        let described = "relist interval 1 s: no events of the runtime";
        assert_eq!(schedule.describe_interval(), described);
    }
}
