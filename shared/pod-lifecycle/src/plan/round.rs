//! Starting all containers of a pod again, in the sandbox that there is: an exit that a
//! restart rule with the action `RestartAllContainers` names (Kubernetes 1.35, KEP-5532).
//!
//! A pod lives in rounds, from 0. Each instance carries the round that it was made in, and
//! an exit as above begins the next. What is left of earlier rounds is stopped before
//! anything is made, and from then on counts for nothing but restart counts and back-off:
//! so init containers run again, and containers that had ended for good do too. Nothing
//! has to be recorded, and no order be kept: whoever looks after any kill finds the exit,
//! or an instance of the round that it began.
//!
//! A pod that begins anew under its UID (its source removed it and has it again, or the node
//! that was shut down has booted) begins with a round of its own, beside its former
//! instances: how those ended does not count. Which sandboxes those had is recorded.
//!
//! A kubelet removes the old instances, that of the exit last; here they stay as others
//! do, for their logs and their ends are told of as those of the instance before.

use pod::{Pod, PodExt, restart};

use super::actions::ContainerStop;
use super::container_stop::{self, whole_seconds};
use super::facts::Inputs;
use crate::observation::{Container, ContainerState, Observation};
use crate::stop::KillReason;

/// The round that a pod is in.
#[must_use]
pub fn current_round(pod: &Pod, observation: &Observation) -> u32 {
    let round_after = |container: &Container| {
        let ends_its_round = container.state.exit().is_some_and(|exit| {
            let spec = pod.container(&container.name);
            spec.is_some_and(|(_, spec)| restart::restarts_all(spec, exit.exit_code))
        });
        container.round.saturating_add(u32::from(ends_its_round))
    };
    let rounds = observation.containers.iter().map(round_after);
    rounds.max().unwrap_or(0).max(observation.first_round)
}

/// What is left of earlier rounds; ephemeral containers belong to none.
pub fn left_of_earlier<'a>(
    pod: &'a Pod,
    observation: &'a Observation,
) -> impl Iterator<Item = &'a Container> {
    let round = current_round(pod, observation);
    let left = observation.containers.iter();
    left.filter(move |it| it.round < round && pod.container(&it.name).is_some())
}

/// The stops of what is left of earlier rounds: in no order, without preStop hooks and
/// with the shortest grace, as in the kubelet.
pub(super) fn stops(inputs: &Inputs<'_>) -> Vec<ContainerStop> {
    let left = left_of_earlier(inputs.pod, inputs.observation);
    left.filter(|container| container.state.may_run())
        .filter(|container| !inputs.is_where_the_stop_failed(container))
        .map(|container| stop(inputs, container))
        .collect()
}

fn stop(inputs: &Inputs<'_>, container: &Container) -> ContainerStop {
    let known = inputs.facts.known;
    let is_unknown = container.state == ContainerState::Unknown;
    ContainerStop {
        container_id: container.id.clone(),
        name: container.name.clone(),
        reason: Some(KillReason::AllRestart),
        message: stop_message(&container.name),
        grace: whole_seconds(0),
        how: container_stop::how(known, container, is_unknown),
        pre_stop: None,
        after: Vec::new(),
    }
}

pub(super) fn stop_message(name: &str) -> String {
    format!("Stopping container {name}, all containers of the pod will be restarted")
}
