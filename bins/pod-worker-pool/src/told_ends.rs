//! Ends that the runtime told of by its events, before its lists show them.
//!
//! containerd tells of the exit of a process at once, then cleans up for some tens of
//! milliseconds, and only then says in its lists that the container has exited. The
//! plan need not wait for the lists before it starts the next instance. What it may do
//! ahead of them is in `pod_lifecycle::plan`. An event that is never heard costs only time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use clock::UnixNanos;
use cri::End;
use pod_lifecycle::observation::{Observation, ToldEnd};

/// Ends that are remembered: more than containers of a full node that end within
/// the moment that counts.
const MAX_ENDS: usize = 1024;

/// The last ends that were told. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToldEnds(Arc<Mutex<EndsById>>);

#[derive(Debug, Default)]
struct EndsById {
    by_id: HashMap<String, ToldEnd>,
    /// Oldest first.
    ids: VecDeque<String>,
}

impl ToldEnds {
    /// Notes an end; the oldest is forgotten when there are too many.
    pub(crate) fn note(&self, id: &str, end: End) {
        let end = ToldEnd {
            exit_code: end.exit_code,
            finished_at: UnixNanos(end.finished_at),
        };
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.by_id.insert(id.to_owned(), end).is_none() {
            ends.ids.push_back(id.to_owned());
        }
        if ends.ids.len() > MAX_ENDS
            && let Some(oldest) = ends.ids.pop_front()
        {
            ends.by_id.remove(&oldest);
        }
    }

    /// Forgets what a list of everything shows by now: it was asked for at `asked_at`,
    /// and `may_run` says what it shows as alive. What ended later is kept.
    pub(crate) fn forget_shown(&self, asked_at: UnixNanos, may_run: impl Fn(&str) -> bool) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let EndsById { by_id, ids } = &mut *ends;
        by_id.retain(|id, end| end.finished_at >= asked_at || may_run(id));
        ids.retain(|id| by_id.contains_key(id));
        // Of a burst of ends nothing stays.
        by_id.shrink_to(2 * by_id.len());
        ids.shrink_to(2 * ids.len());
    }

    /// The ends of what the runtime shows of a pod.
    #[must_use]
    pub(crate) fn of(&self, observation: &Observation) -> BTreeMap<String, ToldEnd> {
        let ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sandboxes = observation.sandboxes.iter().map(|it| &it.id);
        let containers = observation.containers.iter().map(|it| &it.id);
        sandboxes
            .chain(containers)
            .filter_map(|id| Some((id.clone(), *ends.by_id.get(id)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_lifecycle::observation::{Sandbox, SandboxNetwork};

    const END: End = End {
        exit_code: 3,
        finished_at: 70,
    };

    fn observed() -> Observation {
        Observation {
            sandboxes: vec![Sandbox {
                id: "a".into(),
                attempt: 0,
                ready: true,
                created_at: UnixNanos(1),
                network: SandboxNetwork::Host,
                pod_started_at: None,
                started_with: None,
            }],
            ..Observation::default()
        }
    }

    #[test]
    fn the_oldest_end_is_forgotten_and_a_repeated_one_counts_once() {
        let ends = ToldEnds::default();
        for _ in 0..MAX_ENDS {
            ends.note("a", END);
        }
        assert_eq!(ends.of(&observed())["a"].exit_code, 3);
        for other in 0..MAX_ENDS {
            ends.note(&format!("other-{other}"), END);
        }
        assert!(ends.of(&observed()).is_empty());
        let kept = ends.0.lock().unwrap();
        assert_eq!(kept.by_id.len(), MAX_ENDS);
        assert_eq!(kept.ids.len(), MAX_ENDS);
    }

    #[test]
    fn an_end_is_forgotten_when_a_later_list_shows_it() {
        let ends = ToldEnds::default();
        for id in ["shown", "hidden"] {
            ends.note(id, END);
        }
        let later = End {
            finished_at: 200,
            ..END
        };
        ends.note("later", later);
        ends.forget_shown(UnixNanos(100), |id| id == "hidden");
        let kept = ends.0.lock().unwrap();
        assert_eq!(kept.ids, ["hidden", "later"]);
        assert_eq!(kept.by_id.len(), 2);
    }
}
