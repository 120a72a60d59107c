//! When each pod is due for its next look without anything having happened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;

use super::desired_pods::Uid;

/// How much longer than the sync frequency a pod may wait for its resync, as a
/// fraction: so that pods that came together do not stay together (the kubelet's
/// workerResyncIntervalJitterFactor).
const RESYNC_JITTER: f64 = 0.5;

/// Due times by pod; times are since the start of the process.
#[derive(Debug)]
pub(crate) struct WorkQueue {
    due: BTreeMap<Uid, Duration>,
    /// `syncFrequency`.
    frequency: Duration,
    random: SmallRng,
}

impl WorkQueue {
    /// A queue without pods, for pods that are due again after `frequency` and up
    /// to half as long more.
    #[must_use]
    pub(crate) fn new(frequency: Duration, random: SmallRng) -> WorkQueue {
        WorkQueue {
            due: BTreeMap::new(),
            frequency,
            random,
        }
    }

    /// Plans the next resync of a pod; an earlier plan for it is replaced.
    pub(crate) fn plan(&mut self, uid: &Uid, now: Duration) {
        let wait = backoff::lengthened(self.frequency, RESYNC_JITTER, &mut self.random);
        self.due.insert(Arc::clone(uid), now + wait);
    }

    /// Forgets a pod.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.due.remove(uid);
    }

    /// Takes out the pods that are due at `now`, by uid.
    pub(crate) fn take_due(&mut self, now: Duration) -> Vec<Uid> {
        let due: Vec<Uid> = self
            .due
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(uid, _)| Arc::clone(uid))
            .collect();
        for uid in &due {
            self.due.remove(uid);
        }
        due
    }

    /// How many pods wait.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const FREQUENCY: Duration = Duration::from_secs(60);

    fn queue() -> WorkQueue {
        WorkQueue::new(FREQUENCY, SmallRng::seed_from_u64(1))
    }

    fn uid(text: &str) -> Uid {
        text.into()
    }

    #[test]
    fn a_pod_is_taken_once_when_it_is_due() {
        let mut queue = queue();
        queue.plan(&uid("a"), Duration::ZERO);
        queue.plan(&uid("b"), FREQUENCY);
        let before = FREQUENCY - Duration::from_nanos(1);
        assert_eq!(queue.take_due(before), Vec::<Uid>::new());
        let latest = FREQUENCY.mul_f64(1.0 + RESYNC_JITTER);
        assert_eq!(queue.take_due(latest), [uid("a")]);
        assert_eq!(queue.take_due(latest), Vec::<Uid>::new());
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn the_newest_plan_counts() {
        let mut queue = queue();
        queue.plan(&uid("a"), Duration::ZERO);
        queue.plan(&uid("a"), FREQUENCY);
        assert_eq!(queue.take_due(FREQUENCY.mul_f64(1.9)), Vec::<Uid>::new());
        queue.remove("a");
        assert_eq!(queue.len(), 0);
        assert_eq!(queue.take_due(FREQUENCY * 9), Vec::<Uid>::new());
    }
}
