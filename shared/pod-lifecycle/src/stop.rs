//! Until when a container that is being stopped may take. Pure: the caller brings
//! the clocks.
//!
//! Its grace begins when its SIGTERM is sent, or its preStop hook begun which comes
//! before that, not when somebody asked for that, and
//! not while its record is being written. From then on its deadline stands or comes
//! nearer, whoever stops it, for whatever reason, and whether or not the process that
//! began it is still there. It is a point in the time since the machine was booted, which
//! no jump of the wall clock moves and which the next process has too.
//!
//! ```text
//! (none) --order--> Ordered --begin--> Begun --failed--> (none)
//! ```
//!
//! - order: the next process has to know of it before there is a SIGTERM. The deadline
//!   that it finds allows for the writing: it never gives less grace than promised.
//! - order again: while it is not begun its time has not begun either.
//! - begin: the SIGTERM is sent now; the deadline follows from that.
//! - failed: there may have been no SIGTERM.
//!
//! A stop that an earlier process has ordered is begun at once.
//!
//! A first order that fails may have sent a SIGTERM or not. One that fails at once
//! counts as none, as often as it happens: the runtime is away. One that took longer
//! counts as none only once, so that the grace is given twice at most. Who
//! resumes a stop cannot know whether its SIGTERM was sent before the death of this
//! process, and takes it for sent: the grace then runs while nobody is there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clock::UnixNanos;
use serde::{Deserialize, Serialize};

use crate::hook::PreStop;
use crate::termination::MAXIMUM_GRACE;

/// Least time between SIGTERM and SIGKILL, unless the whole grace is shorter
/// (the kubelet's `minimumGracePeriodInSeconds`, kuberuntime_manager.go).
pub const MINIMUM_SIGTERM_GRACE: Duration = Duration::from_secs(2);

/// How long a record may take to its file. Whoever writes one goes on then: a disk
/// that hangs must not keep a container alive.
pub const SAVE_MAY_TAKE: Duration = Duration::from_secs(5);

/// Why an instance is stopped while its pod lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum KillReason {
    /// Its spec changed.
    DefinitionChanged,
    /// Its liveness probe failed.
    LivenessFailed,
    /// Its startup probe failed.
    StartupFailed,
    /// The runtime does not know whether it runs.
    StateUnknown,
    /// A newer instance runs.
    Superseded,
    /// Its sandbox cannot be used any more.
    SandboxLost,
    /// Its postStart hook failed.
    PostStartFailed,
    /// All containers of the pod are started again.
    AllRestart,
    /// Its CPU or memory changed, and it is to be restarted for that.
    ResizeRestart,
}

impl KillReason {
    /// Whether the container is started again whatever it ended with, given whether its
    /// policy starts failed containers.
    #[must_use]
    pub fn restarts(self, policy_restarts_failed: bool) -> bool {
        match self {
            Self::DefinitionChanged
            | Self::StateUnknown
            | Self::AllRestart
            | Self::ResizeRestart => true,
            Self::LivenessFailed | Self::StartupFailed | Self::SandboxLost => {
                policy_restarts_failed
            }
            // A kubelet stops it as part of its start, and looks at what it ended with.
            Self::PostStartFailed | Self::Superseded => false,
        }
    }
}

/// One point in time, by each clock.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Wall time.
    pub wall: UnixNanos,
    /// Time within this process.
    pub monotonic: Instant,
    /// Time since the machine was booted, which the next process has too.
    pub since_boot: Duration,
}

/// The stop of one container, as the next process needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRecord {
    /// Until when it may take, since the machine was booted; none while all orders count as
    /// none.
    until: Option<Duration>,
    /// The shortest grace that was asked for since it began: what is left is never
    /// more, also when the machine was booted again.
    grace: Duration,
    /// Whether an order counts as none that may have sent a SIGTERM.
    is_given_again: bool,
    /// How far its preStop hook is, which runs within the grace.
    pre_stop: Option<PreStop>,
}

impl StopRecord {
    /// A stop whose SIGTERM is sent now.
    #[must_use]
    pub fn new(since_boot: Duration, grace: Duration) -> StopRecord {
        StopRecord {
            until: Some(since_boot.saturating_add(grace)),
            grace,
            is_given_again: false,
            pre_stop: None,
        }
    }

    fn left(&self, since_boot: Duration) -> Duration {
        let left = self
            .until
            .map_or(self.grace, |until| until.saturating_sub(since_boot));
        left.min(self.grace).min(MAXIMUM_GRACE)
    }

    /// How long a container gets now: also one that nobody stopped in time gets a SIGTERM.
    fn timeout(&self, since_boot: Duration) -> Duration {
        self.left(since_boot)
            .max(self.grace.min(MINIMUM_SIGTERM_GRACE))
    }

    /// The same stop when it is ordered again with this grace.
    fn shortened(self, grace: Duration, since_boot: Duration) -> StopRecord {
        if grace >= self.grace {
            return self;
        }
        let asked = StopRecord::new(since_boot, grace);
        StopRecord {
            until: self.until.min(asked.until),
            grace,
            ..self
        }
    }
}

/// The stops of a pod's containers, by container id: what is in its record.
pub type StopRecords = BTreeMap<String, StopRecord>;

/// The stop of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    record: StopRecord,
    progress: Progress,
}

/// How far this process is with the stop of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// This process has not ordered it yet, or what it ordered counts as nothing.
    None,
    /// This process has sent no SIGTERM yet.
    Ordered,
    /// It has.
    Begun,
}

/// A stop that is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopOrder {
    /// How long the container gets: what is left of its grace, and at least
    /// [`MINIMUM_SIGTERM_GRACE`] of it.
    pub timeout: Duration,
    /// Whether this is the first order for it.
    pub is_first: bool,
}

impl From<StopRecord> for Stop {
    /// A stop that an earlier process ordered.
    fn from(record: StopRecord) -> Stop {
        Stop {
            record,
            progress: Progress::None,
        }
    }
}

impl Stop {
    /// What the next process has to know of it.
    #[must_use]
    pub fn record(&self) -> StopRecord {
        self.record
    }

    /// Orders the stop of a container, within `grace` once it begins, and at most
    /// [`MAXIMUM_GRACE`]. One that was begun keeps its deadline, unless `grace` is
    /// shorter than what it was given and would end earlier.
    pub fn order(known: Option<Stop>, grace: Duration, now: Moment) -> (Stop, StopOrder) {
        let grace = grace.min(MAXIMUM_GRACE);
        let given = known.filter(|stop| stop.record.until.is_some());
        if let Some(stop) = given.filter(|stop| stop.progress != Progress::Ordered) {
            let record = stop.record.shortened(grace, now.since_boot);
            let order = StopOrder {
                timeout: record.timeout(now.since_boot),
                is_first: false,
            };
            let progress = Progress::Begun;
            return (Stop { record, progress }, order);
        }
        let grace = given.map_or(grace, |given| given.record.grace.min(grace));
        let written = now.since_boot.saturating_add(SAVE_MAY_TAKE);
        let record = StopRecord {
            is_given_again: known.is_some_and(|stop| stop.record.is_given_again),
            pre_stop: known.and_then(|stop| stop.record.pre_stop),
            ..StopRecord::new(written, grace)
        };
        let order = StopOrder {
            timeout: grace,
            is_first: true,
        };
        let progress = Progress::Ordered;
        (Stop { record, progress }, order)
    }

    /// How far its preStop hook is.
    #[must_use]
    pub fn pre_stop(&self) -> Option<PreStop> {
        self.record.pre_stop
    }

    /// Its preStop hook is to be begun, or has ended.
    pub fn note_pre_stop(&mut self, how_far: PreStop) {
        self.record.pre_stop = Some(how_far);
    }

    /// Begins a stop that was ordered: its SIGTERM is sent now, or its preStop hook begun. Gives the order as it
    /// stands by now.
    pub fn begin(&mut self, order: StopOrder, now: Moment) -> StopOrder {
        match self.progress {
            Progress::None => return order,
            Progress::Begun => {}
            Progress::Ordered => {
                self.record.until = StopRecord::new(now.since_boot, self.record.grace).until;
            }
        }
        self.progress = Progress::Begun;
        StopOrder {
            timeout: self.record.timeout(now.since_boot),
            ..order
        }
    }

    /// Takes back the order of a stop that failed after `elapsed`, where it counts
    /// as none: the runtime may not have sent a SIGTERM.
    pub fn failed(&mut self, order: StopOrder, elapsed: Duration) {
        if !order.is_first {
            return;
        }
        if elapsed >= MINIMUM_SIGTERM_GRACE {
            if self.record.is_given_again {
                return;
            }
            self.record.is_given_again = true;
        }
        self.record.until = None;
        self.progress = Progress::None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Since the boot of the machine when a node is made.
    const BOOTED: u64 = 10_000;

    #[derive(Default)]
    struct Node {
        stop: Option<Stop>,
    }

    impl Node {
        fn new() -> Node {
            Node::default()
        }

        fn next_life(&mut self) {
            self.stop = self.stop.map(|stop| stop.record().into());
        }

        /// Nothing here goes by the wall clock.
        fn moment(after: u64) -> Moment {
            Moment {
                wall: UnixNanos(0),
                monotonic: Instant::now(),
                since_boot: seconds(BOOTED + after),
            }
        }

        /// Ordered, and not begun.
        fn only_order(&mut self, grace: u64, after: u64) -> StopOrder {
            let now = Node::moment(after);
            let (stop, order) = Stop::order(self.stop, seconds(grace), now);
            self.stop = Some(stop);
            order
        }

        fn begin(&mut self, order: StopOrder, after: u64) -> StopOrder {
            let now = Node::moment(after);
            self.stop.as_mut().unwrap().begin(order, now)
        }

        fn order(&mut self, grace: u64, after: u64) -> StopOrder {
            let order = self.only_order(grace, after);
            self.begin(order, after)
        }

        fn failed(&mut self, order: StopOrder, elapsed: u64) {
            let stop = self.stop.as_mut().unwrap();
            stop.failed(order, seconds(elapsed));
        }

        fn timeout(&mut self, grace: u64, after: u64) -> u64 {
            self.order(grace, after).timeout.as_secs()
        }
    }

    #[test]
    fn the_deadline_of_the_first_order_stands() {
        let mut node = Node::new();
        assert_eq!(node.timeout(30, 0), 30);
        assert_eq!(node.timeout(30, 10), 20);
        assert_eq!(node.timeout(60, 10), 20, "grace only shrinks");
        node.next_life();
        assert_eq!(node.timeout(60, 25), 5);
    }

    #[test]
    fn the_grace_does_not_run_before_its_sigterm() {
        let mut node = Node::new();
        let order = node.only_order(30, 0);
        // Cut short, ordered again, and written for a while.
        let again = node.only_order(60, 4);
        assert!(order.is_first && again.is_first);
        assert_eq!(again.timeout, seconds(30), "grace only shrinks");
        assert_eq!(node.begin(again, 9).timeout, seconds(30));
        assert_eq!(node.timeout(30, 19), 20);
        node.next_life();
        assert_eq!(node.timeout(30, 29), 10);
    }

    #[test]
    fn a_stop_that_was_begun_gets_no_more_for_the_writing_of_its_record() {
        let mut node = Node::new();
        node.order(30, 0);
        let order = node.only_order(30, 10);
        assert!(!order.is_first);
        assert_eq!(node.begin(order, 15).timeout, seconds(15));
        assert_eq!(node.begin(order, 60).timeout, seconds(2));
    }

    #[test]
    fn a_run_that_dies_before_it_has_recorded_the_beginning_costs_no_grace() {
        // Until when it was written, when it is looked at, and what is left then.
        let write = SAVE_MAY_TAKE.as_secs();
        for (resumed, left) in [(0, 30), (write, 30), (write + 10, 20)] {
            let mut node = Node::new();
            node.only_order(30, 0);
            node.next_life();
            assert_eq!(node.timeout(30, resumed), left, "{resumed}");
        }
    }

    #[test]
    fn a_shorter_grace_counts_from_its_order_and_never_prolongs() {
        let mut node = Node::new();
        node.order(30, 0);
        assert_eq!(node.timeout(10, 5), 10);
        assert_eq!(node.timeout(10, 9), 6);
        node.next_life();
        assert_eq!(node.timeout(30, 9), 6);
        let mut node = Node::new();
        node.order(30, 0);
        assert_eq!(node.timeout(10, 25), 5);
        node.next_life();
        assert_eq!(node.timeout(10, 25), 5);
    }

    #[test]
    fn a_container_that_nobody_stopped_in_time_still_gets_a_sigterm() {
        for (grace, least) in [(30, 2), (2, 2), (1, 1)] {
            let mut node = Node::new();
            node.order(grace, 0);
            assert_eq!(node.timeout(grace, 29), least);
            node.next_life();
            assert_eq!(node.timeout(grace, 3600), least);
        }
    }

    #[test]
    fn after_a_boot_of_the_machine_nothing_gets_more_than_the_grace() {
        let mut node = Node::new();
        let stop = StopRecord::new(seconds(10 * BOOTED), seconds(30));
        node.stop = Some(stop.into());
        assert_eq!(node.timeout(60, 0), 30);
    }

    #[test]
    fn a_first_order_that_failed_counts_as_none() {
        for (first, elapsed, left) in [(true, 1, 30), (true, 5, 30), (false, 1, 20)] {
            for next_life in [false, true] {
                let mut node = Node::new();
                let mut order = node.order(30, 0);
                if !first {
                    order = node.order(30, 1);
                }
                assert_eq!(order.is_first, first);
                node.failed(order, elapsed);
                if next_life {
                    node.next_life();
                }
                assert_eq!(node.timeout(30, 10), left, "{first} {elapsed}");
            }
        }
    }

    #[test]
    fn orders_that_fail_at_once_never_count() {
        let mut node = Node::new();
        for after in 0..100 {
            let order = node.order(30, after);
            assert_eq!(order.timeout, seconds(30), "{after}");
            node.failed(order, 1);
        }
    }

    #[test]
    fn the_whole_grace_is_given_again_only_once() {
        // What the second order fails after does not matter, and in which life
        // neither.
        for (second, next_life) in [(1, false), (1, true), (9, false), (9, true)] {
            let mut node = Node::new();
            let order = node.order(30, 0);
            node.failed(order, 10);
            if next_life {
                node.next_life();
            }
            let order = node.order(30, 10);
            assert_eq!(order.timeout, seconds(30));
            node.failed(order, second);
            if second < 2 {
                let order = node.order(30, 11);
                assert_eq!(order.timeout, seconds(30), "it counted as none");
                node.failed(order, 9);
                assert_eq!(node.timeout(30, 20), 21);
                continue;
            }
            if next_life {
                node.next_life();
            }
            assert_eq!(node.timeout(30, 20), 20);
            assert_eq!(node.timeout(5, 20), 5, "it shrinks still");
        }
    }

    #[test]
    fn a_grace_beyond_all_bounds_is_the_longest() {
        for grace in [u64::MAX, i64::MAX.unsigned_abs(), MAXIMUM_GRACE.as_secs()] {
            let mut node = Node::new();
            assert_eq!(node.timeout(grace, 0), MAXIMUM_GRACE.as_secs());
            node.next_life();
            assert_eq!(node.timeout(grace, 10), MAXIMUM_GRACE.as_secs() - 10);
            assert_eq!(node.timeout(30, 10), 30);
        }
        // Whatever is in a record.
        let mut node = Node::new();
        let record = StopRecord::new(Duration::ZERO, Duration::MAX);
        node.stop = Some(record.into());
        assert!(node.order(u64::MAX, 0).timeout <= MAXIMUM_GRACE);
    }
}
