//! The pods that a shutdown of the node has seen: which still run, and which came after it
//! had begun. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::plan::Living;

/// A pod that is to run, as the pool knows it.
#[derive(Clone, Debug)]
pub(super) struct Active {
    pub(super) uid: String,
    pub(super) priority: i32,
    /// What its spec says.
    pub(super) grace: Duration,
}

/// What was looked at together.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    /// Pods that are to run.
    pub(super) active: Vec<Active>,
    /// Pods with a worker; whether it has ended its pod.
    pub(super) workers: BTreeMap<String, bool>,
    /// Pods of which a sandbox or container runs in the runtime; `None` where that did not
    /// answer in time.
    pub(super) alive: Option<BTreeSet<String>>,
}

/// The pods that one shutdown has seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Priorities by UID, of those too that are on their way out.
    priorities: BTreeMap<String, i32>,
    /// Which pods ran when the runtime last answered.
    alive: BTreeSet<String>,
    /// The pods that were there at the first look. When pod-worker-pool is restarted during
    /// a shutdown, sync-loop tells it of most of them only later.
    first: Option<BTreeSet<String>>,
}

impl Seen {
    /// The pods that were there at the first look.
    pub(super) fn first(&self) -> Option<&BTreeSet<String>> {
        self.first.as_ref()
    }

    /// Returns the pods that have not ended, and those that came too late to start.
    pub(super) fn look(&mut self, look: &Look) -> (Vec<Living>, BTreeSet<String>) {
        if let Some(alive) = &look.alive {
            self.alive.clone_from(alive);
        }
        let first = self.first.get_or_insert_with(|| {
            let active = look.active.iter().map(|pod| pod.uid.clone());
            self.alive.iter().cloned().chain(active).collect()
        });
        let came = look.active.iter().filter(|pod| !first.contains(&pod.uid));
        let rejected = came.map(|pod| pod.uid.clone()).collect();
        for pod in &look.active {
            self.priorities
                .entry(pod.uid.clone())
                .or_insert(pod.priority);
        }
        let unfinished = look.workers.iter().filter(|(_, has_ended)| !**has_ended);
        let unfinished = unfinished.map(|(uid, _)| uid);
        let unknown = self.alive.iter();
        let unknown = unknown.filter(|uid| !look.workers.contains_key(*uid));
        let living = unfinished.chain(unknown).map(|uid| {
            let own = look.active.iter().find(|pod| pod.uid == *uid);
            Living {
                uid: uid.clone(),
                priority: self.priorities.get(uid).copied(),
                is_active: own.is_some(),
                grace: own.map(|pod| pod.grace).unwrap_or_default(),
            }
        });
        (living.collect(), rejected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(2);

    fn look(active: &[&str], workers: &[(&str, bool)], alive: &[&str]) -> Look {
        Look {
            active: active
                .iter()
                .map(|uid| Active {
                    uid: (*uid).to_owned(),
                    priority: 7,
                    grace: GRACE,
                })
                .collect(),
            workers: workers
                .iter()
                .map(|(uid, has_ended)| ((*uid).to_owned(), *has_ended))
                .collect(),
            alive: Some(alive.iter().map(|uid| (*uid).to_owned()).collect()),
        }
    }

    fn uids(living: &[Living]) -> Vec<&str> {
        living.iter().map(|pod| pod.uid.as_str()).collect()
    }

    #[test]
    fn a_pod_that_comes_during_the_shutdown_is_rejected() {
        let mut seen = Seen::default();
        let (_, rejected) = seen.look(&look(&["a"], &[("a", false)], &["a"]));
        assert!(rejected.is_empty());
        let workers = [("a", false), ("b", false)];
        let (_, rejected) = seen.look(&look(&["a", "b"], &workers, &["a", "b"]));
        assert_eq!(rejected, BTreeSet::from(["b".to_owned()]));
    }

    #[test]
    fn a_pod_that_runs_is_waited_for_before_anybody_has_told_of_it() {
        let mut seen = Seen::default();
        let (living, _) = seen.look(&look(&[], &[], &["a"]));
        assert_eq!(uids(&living), ["a"]);
        assert_eq!((living[0].priority, living[0].is_active), (None, false));
    }

    #[test]
    fn a_pod_that_ran_before_a_restart_is_not_a_new_one() {
        let mut seen = Seen::default();
        seen.look(&look(&[], &[], &["a"]));
        let (living, rejected) = seen.look(&look(&["a"], &[("a", false)], &["a"]));
        assert!(rejected.is_empty(), "{rejected:?}");
        assert_eq!(living[0].priority, Some(7));
        assert_eq!(living[0].grace, GRACE);
    }

    #[test]
    fn a_pod_that_has_ended_is_waited_for_no_more() {
        let mut seen = Seen::default();
        seen.look(&look(&["a"], &[("a", false)], &["a"]));
        let (living, _) = seen.look(&look(&[], &[("a", true)], &["a"]));
        assert_eq!(uids(&living), Vec::<&str>::new());
        let (living, _) = seen.look(&look(&[], &[], &[]));
        assert!(living.is_empty());
    }

    #[test]
    fn where_the_runtime_does_not_answer_those_count_that_ran_before() {
        let mut seen = Seen::default();
        seen.look(&look(&[], &[], &["a"]));
        let (living, _) = seen.look(&Look::default());
        assert_eq!(uids(&living), ["a"]);
        let (living, _) = seen.look(&look(&[], &[], &[]));
        assert!(living.is_empty());
    }

    #[test]
    fn a_pod_on_its_way_out_keeps_its_priority() {
        let mut seen = Seen::default();
        seen.look(&look(&["a"], &[("a", false)], &["a"]));
        let (living, _) = seen.look(&look(&[], &[("a", false)], &["a"]));
        assert_eq!((living[0].priority, living[0].is_active), (Some(7), false));
    }
}
