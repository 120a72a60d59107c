//! Until when a container that is being stopped may take. Pure: the caller brings
//! both clocks.
//!
//! Its grace begins when its SIGTERM is sent, or its preStop hook begun which comes
//! before that, not when somebody asked for that, and
//! not while its record is being written. From then on its deadline stands or comes
//! nearer, whoever stops it, for whatever reason, and whether or not the process that
//! began it is still there. Within one process it is a point in monotonic time, which no jump of the
//! wall clock moves; the next process has only the wall clock.
//!
//! ```text
//! (none) --order--> Ordered --begin--> Begun --failed--> (none)
//! ```
//!
//! - order: the next process has to know of it before there is a SIGTERM. The deadline
//!   that it finds allows for the writing: it never gives less grace than promised.
//! - order again: while it is not begun its time has not begun either.
//! - begin: the SIGTERM is sent now; both deadlines follow from that.
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
    /// Whether the container is started again, given whether its policy starts
    /// failed containers.
    #[must_use]
    pub fn restarts(self, policy_restarts_failed: bool) -> bool {
        match self {
            Self::DefinitionChanged
            | Self::StateUnknown
            | Self::AllRestart
            | Self::ResizeRestart => true,
            Self::LivenessFailed
            | Self::StartupFailed
            | Self::SandboxLost
            | Self::PostStartFailed => policy_restarts_failed,
            Self::Superseded => false,
        }
    }
}

/// One point in time, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Wall time.
    pub wall: UnixNanos,
    /// Time within this process.
    pub monotonic: Instant,
}

/// The stop of one container, as the next process needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRecord {
    /// Wall time in Unix nanoseconds; none while all orders count as none.
    deadline: Option<i64>,
    /// The shortest grace that was asked for since it began: what is left is never
    /// more, however the wall clock went back.
    grace: Duration,
    /// Whether an order counts as none that may have sent a SIGTERM.
    #[serde(default)]
    is_given_again: bool,
    /// How far its preStop hook is, which runs within the grace.
    #[serde(default)]
    pre_stop: Option<PreStop>,
}

impl StopRecord {
    /// A stop whose SIGTERM is sent now.
    #[must_use]
    pub fn new(now: UnixNanos, grace: Duration) -> StopRecord {
        StopRecord {
            deadline: Some(now.plus(grace).0),
            grace,
            is_given_again: false,
            pre_stop: None,
        }
    }

    fn left(&self, now: UnixNanos) -> Duration {
        let left = self
            .deadline
            .map_or(self.grace, |deadline| UnixNanos(deadline).since(now));
        left.min(self.grace).min(MAXIMUM_GRACE)
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
    /// It has until then.
    Begun(Instant),
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
        let given = known.filter(|stop| stop.record.deadline.is_some());
        let begun_until = given.and_then(|stop| match stop.progress {
            Progress::Begun(deadline) => Some((stop.record, deadline)),
            Progress::None => Some((stop.record, now.monotonic + stop.record.left(now.wall))),
            Progress::Ordered => None,
        });
        if let Some((record, deadline)) = begun_until {
            let (record, deadline) = shortened(record, deadline, grace, now);
            let order = StopOrder {
                timeout: timeout(record.grace, deadline, now),
                is_first: false,
            };
            let progress = Progress::Begun(deadline);
            return (Stop { record, progress }, order);
        }
        let grace = given.map_or(grace, |given| given.record.grace.min(grace));
        let written = now.wall.plus(SAVE_MAY_TAKE);
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
        let deadline = match self.progress {
            Progress::None => return order,
            Progress::Begun(deadline) => deadline,
            Progress::Ordered => {
                self.record.deadline = StopRecord::new(now.wall, self.record.grace).deadline;
                now.monotonic + self.record.grace
            }
        };
        self.progress = Progress::Begun(deadline);
        StopOrder {
            timeout: timeout(self.record.grace, deadline, now),
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
        self.record.deadline = None;
        self.progress = Progress::None;
    }
}

/// A stop that was begun, and the deadline of this process, when it is ordered again.
fn shortened(
    given: StopRecord,
    deadline: Instant,
    grace: Duration,
    now: Moment,
) -> (StopRecord, Instant) {
    if grace >= given.grace {
        return (given, deadline);
    }
    let asked = StopRecord::new(now.wall, grace);
    let record = StopRecord {
        deadline: given.deadline.min(asked.deadline),
        grace,
        ..given
    };
    (record, deadline.min(now.monotonic + grace))
}

/// How long a container gets that has until then.
fn timeout(grace: Duration, deadline: Instant, now: Moment) -> Duration {
    let left = deadline.saturating_duration_since(now.monotonic);
    left.max(grace.min(MINIMUM_SIGTERM_GRACE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A node whose wall clock need not go as time does.
    struct Node {
        stop: Option<Stop>,
        begun: Instant,
    }

    impl Node {
        fn new() -> Node {
            Node {
                stop: None,
                begun: Instant::now(),
            }
        }

        fn next_life(&mut self) {
            self.stop = self.stop.map(|stop| stop.record().into());
        }

        fn moment(&self, after: u64, wall: i64) -> Moment {
            Moment {
                wall: UnixNanos((10_000 + wall) * 1_000_000_000),
                monotonic: self.begun + seconds(after),
            }
        }

        /// Ordered, and not begun.
        fn only_order(&mut self, grace: u64, after: u64, wall: i64) -> StopOrder {
            let now = self.moment(after, wall);
            let (stop, order) = Stop::order(self.stop, seconds(grace), now);
            self.stop = Some(stop);
            order
        }

        fn begin(&mut self, order: StopOrder, after: u64, wall: i64) -> StopOrder {
            let now = self.moment(after, wall);
            self.stop.as_mut().unwrap().begin(order, now)
        }

        fn order(&mut self, grace: u64, after: u64, wall: i64) -> StopOrder {
            let order = self.only_order(grace, after, wall);
            self.begin(order, after, wall)
        }

        fn failed(&mut self, order: StopOrder, elapsed: u64) {
            let stop = self.stop.as_mut().unwrap();
            stop.failed(order, seconds(elapsed));
        }

        fn timeout(&mut self, grace: u64, after: u64, wall: i64) -> u64 {
            self.order(grace, after, wall).timeout.as_secs()
        }
    }

    #[test]
    fn the_deadline_of_the_first_order_stands() {
        let mut node = Node::new();
        assert_eq!(node.timeout(30, 0, 0), 30);
        assert_eq!(node.timeout(30, 10, 10), 20);
        assert_eq!(node.timeout(60, 10, 10), 20, "grace only shrinks");
        node.next_life();
        assert_eq!(node.timeout(60, 25, 25), 5);
    }

    #[test]
    fn the_grace_does_not_run_before_its_sigterm() {
        let mut node = Node::new();
        let order = node.only_order(30, 0, 0);
        // Cut short, ordered again, and written for a while.
        let again = node.only_order(60, 4, 4);
        assert!(order.is_first && again.is_first);
        assert_eq!(again.timeout, seconds(30), "grace only shrinks");
        assert_eq!(node.begin(again, 9, 9).timeout, seconds(30));
        assert_eq!(node.timeout(30, 19, 19), 20);
        node.next_life();
        assert_eq!(node.timeout(30, 29, 29), 10);
    }

    #[test]
    fn a_stop_that_was_begun_gets_no_more_for_the_writing_of_its_record() {
        let mut node = Node::new();
        node.order(30, 0, 0);
        let order = node.only_order(30, 10, 10);
        assert!(!order.is_first);
        assert_eq!(node.begin(order, 15, 15).timeout, seconds(15));
        assert_eq!(node.begin(order, 60, 60).timeout, seconds(2));
    }

    #[test]
    fn a_run_that_dies_before_it_has_recorded_the_beginning_costs_no_grace() {
        // Until when it was written, when it is looked at, and what is left then.
        let write = SAVE_MAY_TAKE.as_secs();
        for (resumed, left) in [(0, 30), (write, 30), (write + 10, 20)] {
            let mut node = Node::new();
            node.only_order(30, 0, 0);
            node.next_life();
            let wall = i64::try_from(resumed).unwrap();
            assert_eq!(node.timeout(30, resumed, wall), left, "{resumed}");
        }
    }

    #[test]
    fn a_shorter_grace_counts_from_its_order_and_never_prolongs() {
        let mut node = Node::new();
        node.order(30, 0, 0);
        assert_eq!(node.timeout(10, 5, 5), 10);
        assert_eq!(node.timeout(10, 9, 9), 6);
        node.next_life();
        assert_eq!(node.timeout(30, 9, 9), 6);
        let mut node = Node::new();
        node.order(30, 0, 0);
        assert_eq!(node.timeout(10, 25, 25), 5);
        node.next_life();
        assert_eq!(node.timeout(10, 25, 25), 5);
    }

    #[test]
    fn a_container_that_nobody_stopped_in_time_still_gets_a_sigterm() {
        for (grace, least) in [(30, 2), (2, 2), (1, 1)] {
            let mut node = Node::new();
            node.order(grace, 0, 0);
            assert_eq!(node.timeout(grace, 29, 29), least);
            node.next_life();
            assert_eq!(node.timeout(grace, 3600, 3600), least);
        }
    }

    #[test]
    fn a_jump_of_the_wall_clock_changes_nothing_within_a_run() {
        for jump in [-5000, -10, 10, 5000] {
            let mut node = Node::new();
            node.order(30, 0, 0);
            assert_eq!(node.timeout(30, 10, 10 + jump), 20, "{jump}");
            assert_eq!(node.timeout(5, 11, 11 + jump), 5, "{jump}");
        }
    }

    #[test]
    fn a_jump_of_the_wall_clock_between_lives_never_gives_more_than_the_grace() {
        for (jump, left) in [(-5000, 30), (-5, 25), (5, 15), (5000, 2)] {
            let mut node = Node::new();
            node.order(30, 0, 0);
            node.next_life();
            assert_eq!(node.timeout(30, 10, 10 + jump), left, "{jump}");
        }
    }

    #[test]
    fn a_first_order_that_failed_counts_as_none() {
        for (first, elapsed, left) in [(true, 1, 30), (true, 5, 30), (false, 1, 20)] {
            for next_life in [false, true] {
                let mut node = Node::new();
                let mut order = node.order(30, 0, 0);
                if !first {
                    order = node.order(30, 1, 1);
                }
                assert_eq!(order.is_first, first);
                node.failed(order, elapsed);
                if next_life {
                    node.next_life();
                }
                assert_eq!(node.timeout(30, 10, 10), left, "{first} {elapsed}");
            }
        }
    }

    #[test]
    fn orders_that_fail_at_once_never_count() {
        let mut node = Node::new();
        for after in 0..100 {
            let order = node.order(30, after, 0);
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
            let order = node.order(30, 0, 0);
            node.failed(order, 10);
            if next_life {
                node.next_life();
            }
            let order = node.order(30, 10, 10);
            assert_eq!(order.timeout, seconds(30));
            node.failed(order, second);
            if second < 2 {
                let order = node.order(30, 11, 11);
                assert_eq!(order.timeout, seconds(30), "it counted as none");
                node.failed(order, 9);
                assert_eq!(node.timeout(30, 20, 20), 21);
                continue;
            }
            if next_life {
                node.next_life();
            }
            assert_eq!(node.timeout(30, 20, 20), 20);
            assert_eq!(node.timeout(5, 20, 20), 5, "it shrinks still");
        }
    }

    #[test]
    fn a_grace_beyond_all_bounds_is_the_longest() {
        for grace in [u64::MAX, i64::MAX.unsigned_abs(), MAXIMUM_GRACE.as_secs()] {
            let mut node = Node::new();
            assert_eq!(node.timeout(grace, 0, 0), MAXIMUM_GRACE.as_secs());
            node.next_life();
            assert_eq!(node.timeout(grace, 10, 10), MAXIMUM_GRACE.as_secs() - 10);
            assert_eq!(node.timeout(30, 10, 10), 30);
        }
        // A record that another version wrote.
        let mut node = Node::new();
        let record = StopRecord::new(UnixNanos(0), Duration::MAX);
        node.stop = Some(record.into());
        assert!(node.order(u64::MAX, 0, 0).timeout <= MAXIMUM_GRACE);
    }

    #[test]
    fn a_record_of_an_earlier_version_is_understood() {
        let text = r#"{"deadline": 30000000000, "grace": {"secs": 30, "nanos": 0}}"#;
        let record: StopRecord = serde_json::from_str(text).unwrap();
        assert_eq!(record, StopRecord::new(UnixNanos(0), seconds(30)));
    }
}
