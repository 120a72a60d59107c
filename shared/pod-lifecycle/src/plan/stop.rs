//! Stopping a whole pod: because it ends, because it waits for its name, or because it
//! gets another sandbox; and clearing away what is left of it.

use pod::Pod;

use super::actions::{CleanUp, ContainerStop, CreatedContainer, Plan, StopPod, Work};
use super::container_stop;
use super::facts::Facts;
use crate::known::{Known, SandboxKnown};
use crate::observation::{Container, ContainerState, Observation};
use crate::termination::Termination;

/// All that there is in the sandboxes of a pod that lives on.
pub(super) fn of_living_pod(facts: &Facts<'_>, pod: &Pod) -> StopPod {
    let alive = facts.observation.possibly_running();
    let stops = alive.map(|it| container_stop::of_lost_sandbox(facts.known, pod, it));
    StopPod {
        containers: container_stop::in_order(stops.collect(), facts.observation),
        created: Vec::new(),
        sandboxes: sandboxes(facts.observation, facts.known),
    }
}

/// A pod that waits for its name has started nothing. But the runtime may still carry
/// out a RunPodSandbox of an earlier process, whose sandbox would keep an address and
/// ports of the node from others.
pub(super) fn waiting(facts: &Facts<'_>, pod: &Pod) -> Plan {
    match facts.observation.is_alive() {
        true => Plan::StopPod(of_living_pod(facts, pod)),
        false => Plan::Work(Work::default()),
    }
}

/// All containers at once but for sidecars, each within what is left of its grace, then the sandboxes.
pub(super) fn terminating(
    facts: &Facts<'_>,
    termination: &Termination,
    is_runtime_only: bool,
) -> Plan {
    if facts.observation.calls_under_way {
        return Plan::AwaitCalls;
    }
    let observation = facts.observation;
    let created = observation.containers.iter();
    let created = created.filter(|container| container.state == ContainerState::Created);
    let created: Vec<CreatedContainer> = created
        .map(|container| CreatedContainer {
            container_id: container.id.clone(),
            name: container.name.clone(),
        })
        .collect();
    // An earlier process may have asked for the start of what is only created. Until that
    // is removed, or runs and is to be stopped too, no sidecar is stopped, nor the sandbox.
    let waits = |container: &Container| container.sidecar.is_some() && !created.is_empty();
    let alive = || observation.possibly_running();
    let sandboxes = match alive().any(waits) {
        true => Vec::new(),
        false => sandboxes(observation, facts.known),
    };
    let stops = alive().filter(|container| !waits(container));
    let stops = stops.map(|container| ContainerStop {
        container_id: container.id.clone(),
        name: container.name.clone(),
        reason: None,
        message: format!("Stopping container {}", container.name),
        grace: termination.grace_for(container.termination_grace),
        how: container_stop::how(
            facts.known,
            container,
            container.state == ContainerState::Unknown,
        ),
        pre_stop: container_stop::pre_stop(facts.known, container),
        after: Vec::new(),
    });
    let stop = StopPod {
        containers: container_stop::in_order(stops.collect(), observation),
        created,
        sandboxes,
    };
    match (stop.is_empty(), is_runtime_only) {
        (false, _) => Plan::StopPod(stop),
        (true, false) => Plan::Stopped,
        // Nobody will ask for more.
        (true, true) => Plan::CleanUp(CleanUp::after(&termination.cause)),
    }
}

/// Those that run, and those whose address the runtime may still hold.
fn sandboxes(observation: &Observation, known: &Known) -> Vec<String> {
    let sandboxes = observation.sandboxes.iter();
    sandboxes
        .filter(|it| it.ready || known.sandbox(&it.id) != Some(SandboxKnown::Stopped))
        .map(|it| it.id.clone())
        .collect()
}
