//! What the runtime shows of a pod that is to run, put together with what is known
//! besides: ends that it told of by an event, and sandboxes that cannot be stopped.

use std::borrow::Cow;
use std::time::Duration;

use clock::UnixNanos;
use pod::{Pod, PodExt};

use super::actions::{Plan, Work};
use super::facts::Facts;
use crate::known::SandboxKnown;
use crate::observation::{Container, ContainerState, Exit, Observation, ToldEnd};
use crate::stop::KillReason;

/// When to look again at a pod of which an end is told that leads to no start.
/// The runtime's next event comes much sooner; this is for one that is lost.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The pod as decisions see it.
pub(super) struct Considered<'a> {
    pub(super) observation: Cow<'a, Observation>,
    /// Whether it shows ends that the runtime's lists do not show yet.
    pub(super) is_ahead: bool,
}

impl<'a> Considered<'a> {
    pub(super) fn of(facts: &Facts<'a>, pod: &Pod) -> Considered<'a> {
        let mut considered = Considered {
            observation: Cow::Borrowed(facts.observation),
            is_ahead: false,
        };
        considered.set_failed_stops_aside(facts);
        considered.apply_told_ends(pod);
        considered
    }

    /// A sandbox beside the pod's own that cannot be stopped is no reason to leave the
    /// pod's own alone. It does not count as alive, and what is in it comes after
    /// everything else of its name. The step tells of the failure, and the next sync
    /// tries to stop it again.
    fn set_failed_stops_aside(&mut self, facts: &Facts<'_>) {
        let has_failed_stop = |id: &str| facts.known.sandbox(id) == Some(SandboxKnown::StopFailed);
        let mut sandboxes = facts.observation.sandboxes.iter();
        if !sandboxes.any(|it| has_failed_stop(&it.id)) {
            return;
        }
        let observation = self.observation.to_mut();
        for sandbox in &mut observation.sandboxes {
            sandbox.ready &= !has_failed_stop(&sandbox.id);
        }
        let containers = &mut observation.containers;
        containers.sort_by_key(|container| has_failed_stop(&container.sandbox_id));
    }

    /// An end that was told counts before the lists show it. Only within a sandbox that
    /// lives on, and not of an init container that seems to have succeeded: the lists
    /// may yet say that it ran out of memory, and then what follows it must not have
    /// started.
    fn apply_told_ends(&mut self, pod: &Pod) {
        let ends = &self.observation.told_ends;
        let mut sandboxes = self.observation.sandboxes.iter();
        if sandboxes.any(|it| ends.contains_key(&it.id)) {
            return;
        }
        let is_init = |name: &str| pod.init_containers().iter().any(|it| it.name == name);
        let hidden_exit = |container: &Container| {
            let end = ends.get(&container.id)?;
            match container.state {
                ContainerState::Running { started_at }
                    if end.exit_code != 0 || !is_init(&container.name) =>
                {
                    Some(exit(started_at, *end))
                }
                _ => None,
            }
        };
        let containers = self.observation.containers.iter().enumerate();
        let hidden: Vec<(usize, Exit)> = containers
            .filter_map(|(index, container)| Some((index, hidden_exit(container)?)))
            .collect();
        if hidden.is_empty() {
            return;
        }
        self.is_ahead = true;
        let observation = self.observation.to_mut();
        for (index, exit) in hidden {
            observation.containers[index].state = ContainerState::Exited(exit);
        }
    }
}

fn exit(started_at: UnixNanos, end: ToldEnd) -> Exit {
    let reason = match end.exit_code {
        0 => "Completed",
        _ => "Error",
    };
    Exit {
        started_at,
        finished_at: end.finished_at,
        exit_code: end.exit_code,
        reason: reason.to_owned(),
        message: String::new(),
    }
}

/// What may be done of a plan that was made ahead of the runtime's lists: starts,
/// and stops of others. An end of the pod, another sandbox, a restart of all containers
/// and a wait are decided, and told, when the lists show why.
pub(super) fn ahead_of_the_lists(plan: Plan, facts: &Facts<'_>) -> Plan {
    let restarts_all = |work: &Work| {
        let mut reasons = work.stops.iter().map(|stop| stop.reason);
        reasons.any(|reason| reason == Some(KillReason::AllRestart))
    };
    match plan {
        Plan::Work(mut work) if !work.has_nothing_to_do_now() && !restarts_all(&work) => {
            work.waits.retain(|wait| {
                let shown = facts.observation.container(&wait.container_id);
                shown.is_some_and(|shown| shown.state.exit().is_some())
            });
            Plan::Work(work)
        }
        _ => Plan::Work(Work {
            wake_at: Some(facts.now.wall.plus(LOOK_AGAIN)),
            ..Work::default()
        }),
    }
}
