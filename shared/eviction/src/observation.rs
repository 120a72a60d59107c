//! [`Observations`]: how much of each thing a node has and how much is left.

use std::collections::BTreeMap;

use crate::signal::Signal;
use crate::threshold::Threshold;

/// How much there is, in the signal's unit: bytes, inodes or process ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What is left; negative where more is used than there should be.
    pub available: i64,
    /// What there is in all.
    pub capacity: i64,
}

/// One look at a node. What could not be found out is absent, and then no threshold of
/// that signal is met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations(BTreeMap<Signal, Observation>);

impl Observations {
    /// Notes what was found; amounts beyond what fits count as the largest.
    pub fn note(&mut self, signal: Signal, available: u64, capacity: u64) {
        let bounded = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        let observation = Observation {
            available: bounded(available),
            capacity: bounded(capacity),
        };
        self.0.insert(signal, observation);
    }

    /// What was found, if it was.
    #[must_use]
    pub fn get(&self, signal: Signal) -> Option<Observation> {
        self.0.get(&signal).copied()
    }

    /// The thresholds below which the node is. With `and_reclaim` one is met until its
    /// minimum reclaim is left beyond it too.
    #[must_use]
    pub fn met(&self, thresholds: &[Threshold], and_reclaim: bool) -> Vec<Threshold> {
        let is_met = |threshold: &&Threshold| {
            let Some(found) = self.get(threshold.signal) else {
                return false;
            };
            let mut wanted = threshold.value.of(found.capacity);
            if let Some(reclaim) = threshold.minimum_reclaim.filter(|_| and_reclaim) {
                wanted = wanted.saturating_add(reclaim.of(found.capacity));
            }
            wanted > found.available
        };
        thresholds.iter().filter(is_met).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hard;
    use crate::threshold::Amount;

    #[test]
    fn a_threshold_is_met_below_it_and_with_reclaim_until_more_is_left() {
        let memory = Threshold {
            minimum_reclaim: Some(Amount::Absolute(500)),
            ..hard(Signal::MemoryAvailable, 1000)
        };
        let share = Threshold {
            value: Amount::Percent(10.0),
            minimum_reclaim: Some(Amount::Percent(5.0)),
            ..hard(Signal::NodefsAvailable, 0)
        };
        for (threshold, available, is_met, with_reclaim) in [
            (memory, 999, true, true),
            (memory, 1000, false, true),
            (memory, 1499, false, true),
            (memory, 1500, false, false),
            (share, 999, true, true),
            (share, 1000, false, true),
            (share, 1499, false, true),
            (share, 1500, false, false),
        ] {
            let mut found = Observations::default();
            found.note(threshold.signal, available, 10_000);
            let all = [threshold];
            assert_eq!(!found.met(&all, false).is_empty(), is_met, "{available}");
            let met = !found.met(&all, true).is_empty();
            assert_eq!(met, with_reclaim, "{available} with reclaim");
        }
    }

    #[test]
    fn what_was_not_found_out_meets_nothing() {
        let found = Observations::default();
        assert!(found.met(&[hard(Signal::PidAvailable, 9)], true).is_empty());
    }
}
