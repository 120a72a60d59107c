//! Stopping a whole pod: because it ends, because it waits for its name, or because it
//! gets another sandbox; and clearing away what is left of it.

use pod::Pod;

use super::actions::{CleanUp, ContainerStop, CreatedContainer, Plan, StopPod, Work};
use super::container_stop;
use super::facts::Facts;
use crate::known::{Known, SandboxKnown};
use crate::observation::{Container, ContainerState, Observation, Sandbox};
use crate::termination::Termination;

/// All that there is in the sandboxes of a pod that lives on.
pub(super) fn of_living_pod(facts: &Facts<'_>, pod: &Pod) -> StopPod {
    let alive = facts.observation.possibly_running();
    let stops = alive.map(|it| container_stop::of_lost_sandbox(facts.known, pod, it));
    StopPod {
        containers: container_stop::in_order(stops.collect(), &[], facts.observation, Some(pod)),
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
    pod: Option<&Pod>,
    is_runtime_only: bool,
) -> Plan {
    if facts.observation.calls_under_way {
        return Plan::AwaitCalls;
    }
    let observation = facts.observation;
    let created = observation.containers.iter();
    let created = created.filter(|container| may_yet_run(facts, container));
    let created: Vec<CreatedContainer> = created
        .map(|container| CreatedContainer {
            container_id: container.id.clone(),
            name: container.name.clone(),
        })
        .collect();
    let stops = observation.possibly_running();
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
        containers: container_stop::in_order(stops.collect(), &created, observation, pod),
        created,
        sandboxes: sandboxes(observation, facts.known),
    };
    match (stop.is_empty(), is_runtime_only) {
        (false, _) => Plan::StopPod(stop),
        (true, false) => Plan::Stopped,
        // Nobody will ask for more.
        (true, true) => Plan::CleanUp(CleanUp::after(&termination.cause)),
    }
}

/// Whether an instance that was created can be started still: its sandbox has not been
/// stopped. One that cannot be removed goes with its sandbox.
fn may_yet_run(facts: &Facts<'_>, container: &Container) -> bool {
    let is_over =
        |it: &Sandbox| !it.ready && facts.known.sandbox(&it.id) == Some(SandboxKnown::Stopped);
    let mut sandboxes = facts.observation.sandboxes.iter();
    let own = sandboxes.find(|it| it.id == container.sandbox_id);
    container.state == ContainerState::Created && !own.is_some_and(is_over)
}

/// Those that run, and those whose address the runtime may still hold.
fn sandboxes(observation: &Observation, known: &Known) -> Vec<String> {
    let sandboxes = observation.sandboxes.iter();
    sandboxes
        .filter(|it| it.ready || known.sandbox(&it.id) != Some(SandboxKnown::Stopped))
        .map(|it| it.id.clone())
        .collect()
}
