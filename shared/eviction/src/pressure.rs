//! [`Pressure`]: what a node suffers from, over time.
//!
//! A threshold once met stays met until its minimum reclaim is free too. A soft one counts
//! once it has been met for its grace. A condition stays for the transition period after
//! it was last observed, so that it does not come and go.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::condition::NodeCondition;
use crate::observation::Observations;
use crate::threshold::Threshold;

/// What a node suffers from. Times are since the start of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Thresholds that are met, each since when.
    met_since: Vec<(Threshold, Duration)>,
    /// Those of them whose grace was over at the last look.
    counting: Vec<Threshold>,
    last_observed: BTreeMap<NodeCondition, Duration>,
    conditions: Vec<NodeCondition>,
}

impl Pressure {
    /// Takes in a look at the node, and answers with the thresholds for which something
    /// has to be freed now: memory first, of one signal the hard threshold first.
    pub fn look(
        &mut self,
        now: Duration,
        observed: &Observations,
        thresholds: &[Threshold],
        transition_period: Duration,
    ) -> Vec<Threshold> {
        let mut met = observed.met(thresholds, false);
        for unresolved in observed.met(&self.counting, true) {
            if !met.iter().any(|known| known.is_same(&unresolved)) {
                met.push(unresolved);
            }
        }
        let since = |threshold: &Threshold| {
            let mut known = self.met_since.iter();
            let known = known.find(|(known, _)| known.is_same(threshold));
            known.map_or(now, |(_, since)| *since)
        };
        self.met_since = met.iter().map(|it| (*it, since(it))).collect();
        for threshold in &met {
            self.last_observed.insert(threshold.signal.condition(), now);
        }
        self.last_observed
            .retain(|_, at| now.saturating_sub(*at) < transition_period);
        self.conditions = self.last_observed.keys().copied().collect();
        let is_over = |(it, since): &&(Threshold, Duration)| now.saturating_sub(*since) >= it.grace;
        let counting = self.met_since.iter().filter(is_over);
        self.counting = counting.map(|(threshold, _)| *threshold).collect();
        self.counting
            .sort_by_key(|threshold| (threshold.signal, threshold.grace));
        self.counting.clone()
    }

    /// What the node suffers from, or has until a moment ago.
    #[must_use]
    pub fn conditions(&self) -> &[NodeCondition] {
        &self.conditions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Signal;
    use crate::testing::hard;
    use crate::threshold::Amount;
    use NodeCondition::{DiskPressure, MemoryPressure};

    const PERIOD: Duration = Duration::from_secs(300);

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn memory(available: u64) -> Observations {
        let mut observed = Observations::default();
        observed.note(Signal::MemoryAvailable, available, 10_000);
        observed
    }

    #[test]
    fn a_soft_threshold_counts_after_its_grace_and_its_condition_at_once() {
        let soft = Threshold {
            grace: secs(60),
            ..hard(Signal::MemoryAvailable, 2000)
        };
        let mut pressure = Pressure::default();
        for (at, available, counts, condition) in [
            (0, 2500, false, false),
            (10, 1500, false, true),
            (69, 1500, false, true),
            (70, 1500, true, true),
            // Enough again: it begins anew.
            (80, 2500, false, true),
            (90, 1500, false, true),
            (149, 1500, false, true),
            (150, 1500, true, true),
        ] {
            let found = pressure.look(secs(at), &memory(available), &[soft], PERIOD);
            assert_eq!(!found.is_empty(), counts, "at {at}");
            assert_eq!(!pressure.conditions().is_empty(), condition, "at {at}");
        }
    }

    #[test]
    fn a_hard_threshold_counts_at_once_and_its_condition_stays_for_the_transition() {
        let all = [hard(Signal::MemoryAvailable, 1000)];
        let mut pressure = Pressure::default();
        for (at, available, counts, condition) in [
            (0, 1001, false, false),
            (10, 999, true, true),
            (20, 2000, false, true),
            (309, 2000, false, true),
            (310, 2000, false, false),
            (320, 500, true, true),
        ] {
            let found = pressure.look(secs(at), &memory(available), &all, PERIOD);
            assert_eq!(!found.is_empty(), counts, "at {at}");
            let expected: &[NodeCondition] = if condition { &[MemoryPressure] } else { &[] };
            assert_eq!(pressure.conditions(), expected, "at {at}");
        }
    }

    #[test]
    fn what_was_met_counts_until_the_minimum_is_reclaimed() {
        let all = [Threshold {
            minimum_reclaim: Some(Amount::Absolute(500)),
            ..hard(Signal::MemoryAvailable, 1000)
        }];
        let mut pressure = Pressure::default();
        for (at, available, counts) in [
            (0, 1200, false),
            (10, 999, true),
            (20, 1200, true),
            (30, 1499, true),
            (40, 1500, false),
            (50, 1200, false),
        ] {
            let found = pressure.look(secs(at), &memory(available), &all, PERIOD);
            assert_eq!(!found.is_empty(), counts, "at {at}");
        }
    }

    #[test]
    fn memory_comes_before_disks_and_hard_before_soft() {
        let soft = Threshold {
            grace: secs(1),
            ..hard(Signal::MemoryAvailable, 5000)
        };
        let all = [
            hard(Signal::NodefsAvailable, 100),
            soft,
            hard(Signal::MemoryAvailable, 1000),
        ];
        let mut observed = memory(10);
        observed.note(Signal::NodefsAvailable, 10, 10_000);
        let mut pressure = Pressure::default();
        pressure.look(secs(0), &observed, &all, PERIOD);
        let found = pressure.look(secs(1), &observed, &all, PERIOD);
        assert_eq!(found, [all[2], all[1], all[0]]);
        assert_eq!(pressure.conditions(), [MemoryPressure, DiskPressure]);
    }

    #[test]
    fn a_node_that_cannot_be_looked_at_keeps_its_conditions_for_a_while() {
        let all = [hard(Signal::MemoryAvailable, 1000)];
        let mut pressure = Pressure::default();
        pressure.look(secs(0), &memory(10), &all, PERIOD);
        let unknown = Observations::default();
        assert!(pressure.look(secs(10), &unknown, &all, PERIOD).is_empty());
        assert_eq!(pressure.conditions(), [MemoryPressure]);
    }
}
