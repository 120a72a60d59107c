//! When each pod is due for its next look without anything having happened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::pod_manager::Uid;

/// Due times by pod; times are since the start of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkQueue {
    due: BTreeMap<Uid, Duration>,
}

impl WorkQueue {
    /// Makes a pod due at `at`; an earlier plan for it is replaced.
    pub(crate) fn enqueue(&mut self, uid: &Uid, at: Duration) {
        self.due.insert(Arc::clone(uid), at);
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
    use super::*;

    fn uid(text: &str) -> Uid {
        text.into()
    }

    #[test]
    fn a_pod_is_taken_once_when_it_is_due() {
        let mut queue = WorkQueue::default();
        queue.enqueue(&uid("a"), Duration::from_secs(60));
        queue.enqueue(&uid("b"), Duration::from_secs(70));
        assert_eq!(queue.take_due(Duration::from_secs(59)), Vec::<Uid>::new());
        assert_eq!(queue.take_due(Duration::from_secs(60)), [uid("a")]);
        assert_eq!(queue.take_due(Duration::from_secs(60)), Vec::<Uid>::new());
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn the_newest_plan_counts() {
        let mut queue = WorkQueue::default();
        queue.enqueue(&uid("a"), Duration::from_secs(10));
        queue.enqueue(&uid("a"), Duration::from_secs(60));
        assert_eq!(queue.take_due(Duration::from_secs(10)), Vec::<Uid>::new());
        queue.remove("a");
        assert_eq!(queue.len(), 0);
        assert_eq!(queue.take_due(Duration::from_secs(99)), Vec::<Uid>::new());
    }
}
