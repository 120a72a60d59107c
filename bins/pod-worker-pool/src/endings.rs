//! Ends that the runtime told of before its lists show them.
//!
//! containerd tells of the exit of a process at once, then cleans up for some tens
//! of milliseconds, and only then says in its lists that the container has exited.
//! The next instance need not wait for that: its start is planned as if the exit
//! showed already. Nothing else is taken from an event: what is published, and the
//! end of a pod, wait for the lists. An event that is never heard costs only time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clock::UnixNanos;
use cri::End;
use pod::{Pod, PodExt};

use crate::observation::{Container, ContainerState, Exit, Observation};
use crate::plan::{Plan, Work};

/// Ends that are remembered: more than containers of a full node that end within
/// the moment that counts.
const MAX_ENDINGS: usize = 1024;

/// When to look again at a pod of which an end is told that leads to no start.
/// The runtime's next event comes much sooner; this is for one that is lost.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The last ends that were told. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Endings(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    by_id: HashMap<String, End>,
    /// Oldest first.
    ids: VecDeque<String>,
}

impl Endings {
    /// Notes an end; the oldest is forgotten when there are too many.
    pub(crate) fn note(&self, id: &str, end: End) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.by_id.insert(id.to_owned(), end).is_none() {
            told.ids.push_back(id.to_owned());
        }
        if told.ids.len() > MAX_ENDINGS
            && let Some(oldest) = told.ids.pop_front()
        {
            told.by_id.remove(&oldest);
        }
    }

    /// The observation of a pod as it will be when the runtime's lists show what
    /// was told; `None` if they do. Only within a sandbox that lives on, and not of
    /// an init container that seems to have succeeded: the lists may yet say that
    /// it ran out of memory, and then what follows it must not have started.
    #[must_use]
    pub(crate) fn ahead_of(&self, pod: &Pod, observation: &Observation) -> Option<Observation> {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_ended = |id: &str| told.by_id.contains_key(id);
        if observation.sandboxes.iter().any(|it| has_ended(&it.id)) {
            return None;
        }
        let is_init = |name: &str| pod.init_containers().iter().any(|it| it.name == name);
        let hidden_exit = |container: &Container| {
            let end = told.by_id.get(&container.id)?;
            match container.state {
                ContainerState::Running { started_at }
                    if end.exit_code != 0 || !is_init(&container.name) =>
                {
                    Some(exit(started_at, *end))
                }
                _ => None,
            }
        };
        let mut containers = observation.containers.iter();
        containers.find_map(hidden_exit)?;
        let mut ahead = observation.clone();
        for container in &mut ahead.containers {
            if let Some(exit) = hidden_exit(container) {
                container.state = ContainerState::Exited(exit);
            }
        }
        Some(ahead)
    }
}

fn exit(started_at: UnixNanos, end: End) -> Exit {
    let reason = if end.exit_code == 0 {
        "Completed"
    } else {
        "Error"
    };
    Exit {
        started_at,
        finished_at: UnixNanos(end.finished_at),
        exit_code: end.exit_code,
        reason: reason.to_owned(),
        message: String::new(),
    }
}

/// What may be done of a plan that was made ahead of the runtime's lists: starts,
/// and stops of others. An end of the pod, another sandbox and a wait are decided,
/// and told, when the lists show why.
#[must_use]
pub(crate) fn only_work(plan: Plan, observation: &Observation, now: UnixNanos) -> Plan {
    let look_again = Work {
        wake_at: Some(now.plus(LOOK_AGAIN)),
        ..Work::default()
    };
    let Plan::Work(mut work) = plan else {
        return Plan::Work(look_again);
    };
    if work.is_empty() {
        return Plan::Work(look_again);
    }
    work.waits.retain(|wait| {
        let container = observation.container(&wait.container_id);
        container.is_some_and(|container| container.state.exit().is_some())
    });
    Plan::Work(work)
}

#[cfg(test)]
mod tests;
