//! Who is ended when in a shutdown of the node: pure.
//!
//! Groups follow each other by priority. The next one begins when nothing of those before
//! it is left, or when their time is over, which is counted from the begin of the shutdown:
//! so it does not begin anew when this process is restarted in between.

use std::time::Duration;

use node_config::ShutdownGroup;

/// A pod that has not ended, as far as a shutdown is concerned with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Living {
    pub(super) uid: String,
    /// Absent when nobody knows it any more: everything waits for such a pod.
    pub(super) priority: Option<i32>,
    /// Whether it runs or is about to; else it is on its way out.
    pub(super) is_active: bool,
    /// What its spec says.
    pub(super) grace: Duration,
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Pods to end, by UID, with their grace.
    pub(super) ends: Vec<(String, Duration)>,
    /// What is waited for: the group, counted from 0, and how many pods of it and those
    /// before it have not ended. Absent: the node may go down.
    pub(super) waits_for: Option<(usize, usize)>,
}

/// What is to be done so long after the begin of the shutdown.
pub(super) fn plan(elapsed: Duration, groups: &[ShutdownGroup], pods: &[Living]) -> Plan {
    let group_of = |pod: &Living| pod.priority.map_or(0, |priority| group(groups, priority));
    let mut plan = Plan::default();
    let mut until = Duration::ZERO;
    for (index, group) in groups.iter().enumerate() {
        until = until.saturating_add(group.grace);
        let own = pods.iter().filter(|pod| group_of(pod) == index);
        let active = own.filter(|pod| pod.is_active);
        let ends = active.map(|pod| (pod.uid.clone(), pod.grace.min(group.grace)));
        plan.ends.extend(ends);
        let left = pods.iter().filter(|pod| group_of(pod) <= index).count();
        if left > 0 && elapsed < until {
            plan.waits_for = Some((index, left));
            return plan;
        }
    }
    plan
}

/// The group of a priority: the one with the highest that is not above it; the first one
/// for those below all.
fn group(groups: &[ShutdownGroup], priority: i32) -> usize {
    let not_above = groups.iter().filter(|group| group.priority <= priority);
    not_above.count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn groups() -> Vec<ShutdownGroup> {
        [(0, 20), (100, 5), (2_000_000_000, 10)]
            .map(|(priority, grace)| ShutdownGroup {
                priority,
                grace: seconds(grace),
            })
            .into()
    }

    fn pod(uid: &str, priority: Option<i32>, is_active: bool, grace: u64) -> Living {
        Living {
            uid: uid.to_owned(),
            priority,
            is_active,
            grace: seconds(grace),
        }
    }

    #[test]
    fn a_priority_belongs_to_the_highest_group_that_is_not_above_it() {
        for (priority, expected) in [
            (i32::MIN, 0),
            (-1, 0),
            (0, 0),
            (99, 0),
            (100, 1),
            (1_999_999_999, 1),
            (2_000_000_000, 2),
            (i32::MAX, 2),
        ] {
            assert_eq!(group(&groups(), priority), expected, "{priority}");
        }
    }

    #[test]
    fn groups_follow_each_other_and_clip_the_grace() {
        let low = |is_active| pod("low", Some(0), is_active, 30);
        let middle = |is_active| pod("middle", Some(100), is_active, 2);
        let high = |is_active| pod("high", Some(2_000_001_000), is_active, 30);
        let end = |uid: &str, grace| (uid.to_owned(), seconds(grace));
        for (at, pods, ends, waits_for) in [
            (
                0,
                vec![low(true), middle(true), high(true)],
                vec![end("low", 20)],
                Some((0, 1)),
            ),
            // It is on its way out.
            (1, vec![low(false), high(true)], vec![], Some((0, 1))),
            // It has ended early: the next ones begin.
            (
                2,
                vec![middle(true), high(true)],
                vec![end("middle", 2)],
                Some((1, 1)),
            ),
            (3, vec![high(true)], vec![end("high", 10)], Some((2, 1))),
            // Its time is over.
            (
                20,
                vec![low(false), middle(true)],
                vec![end("middle", 2)],
                Some((1, 2)),
            ),
            // Nobody has looked for long: all at once, and the node goes down.
            (
                35,
                vec![low(true), high(true)],
                vec![end("low", 20), end("high", 10)],
                None,
            ),
            (4, vec![], vec![], None),
        ] {
            let found = plan(seconds(at), &groups(), &pods);
            assert_eq!(found, Plan { ends, waits_for }, "at {at} with {pods:?}");
        }
    }

    #[test]
    fn a_pod_on_its_way_out_that_nobody_knows_is_waited_for_first() {
        let unknown = pod("unknown", None, false, 0);
        let pods = [unknown, pod("high", Some(100), true, 9)];
        let found = plan(seconds(1), &groups(), &pods);
        assert_eq!((found.ends, found.waits_for), (vec![], Some((0, 1))));
    }

    #[test]
    fn a_group_without_grace_holds_nothing_up() {
        let groups = [ShutdownGroup {
            priority: 0,
            grace: Duration::ZERO,
        }];
        let found = plan(seconds(0), &groups, &[pod("a", Some(7), true, 30)]);
        assert_eq!(found.ends, [("a".to_owned(), Duration::ZERO)]);
        assert_eq!(found.waits_for, None);
    }
}
