//! Stopping a whole pod: because it ends, because it waits for its name, or because it
//! gets another sandbox; and clearing away what is left of it.

use std::time::Duration;

use pod::Pod;

use super::{ContainerStop, Facts, KillReason, Plan, StopHow, Work, pod_grace};
use crate::known::{Instance, Known, SandboxKnown};
use crate::observation::{Container, ContainerState, Observation};
use crate::worker::{Termination, TerminationCause};

/// What of a pod is to be stopped, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StopPod {
    /// Instances that run, or may.
    pub containers: Vec<ContainerStop>,
    /// Instances that were created and not started, to be removed: their start may be
    /// under way.
    pub unstarted: Vec<UnstartedContainer>,
    /// Sandboxes, those included that run no more: they may still hold an address.
    pub sandboxes: Vec<String>,
}

/// An instance that was created and, as far as lists show, not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnstartedContainer {
    /// The instance.
    pub container_id: String,
    /// Its container.
    pub name: String,
}

/// What to clear away of a pod of which nothing is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CleanUp {
    /// Whether its directory goes too. That of a pod that has ended by itself stays
    /// while its source has it: termination messages are in there.
    pub removes_directory: bool,
    /// Whether nothing but its record tells that the pod has ended. That has to be
    /// written before anybody may take the pod for ended, or the next process would
    /// start it again.
    pub must_be_recorded: bool,
}

impl CleanUp {
    /// What goes of a pod that was terminated for this.
    #[must_use]
    pub(crate) fn after(cause: &TerminationCause) -> CleanUp {
        CleanUp {
            removes_directory: cause.permits_recreation(),
            must_be_recorded: cause.is_known_by_record_alone(),
        }
    }
}

impl StopPod {
    fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.unstarted.is_empty() && self.sandboxes.is_empty()
    }

    /// All that there is in the sandboxes of a pod that lives on.
    pub(super) fn of_living_pod(facts: &Facts<'_>, pod: &Pod) -> StopPod {
        let alive = facts.observation.possibly_running();
        StopPod {
            containers: alive
                .map(|container| ContainerStop::of_lost_sandbox(facts.known, pod, container))
                .collect(),
            unstarted: Vec::new(),
            sandboxes: sandboxes(facts.observation, facts.known),
        }
    }
}

/// A pod that waits for its name has started nothing. But the runtime may still carry
/// out a RunPodSandbox of an earlier process, whose sandbox would keep an address and
/// ports of the node from others.
pub(super) fn waiting(facts: &Facts<'_>, pod: &Pod) -> Plan {
    match facts.observation.is_alive() {
        true => Plan::StopPod(StopPod::of_living_pod(facts, pod)),
        false => Plan::Work(Work::default()),
    }
}

/// All containers at once, each within what is left of its grace, then the sandboxes.
pub(super) fn terminating(
    facts: &Facts<'_>,
    termination: &Termination,
    is_runtime_only: bool,
) -> Plan {
    if facts.calls_under_way {
        return Plan::AwaitCalls;
    }
    let observation = facts.observation;
    let alive = observation.possibly_running();
    let created = observation.containers.iter();
    let stop = StopPod {
        containers: alive
            .map(|container| ContainerStop {
                container_id: container.id.clone(),
                name: container.name.clone(),
                reason: None,
                message: format!("Stopping container {}", container.name),
                grace: termination.grace_for(container.termination_grace),
                how: how(
                    facts.known,
                    container,
                    container.state == ContainerState::Unknown,
                ),
            })
            .collect(),
        unstarted: created
            .filter(|container| container.state == ContainerState::Created)
            .map(|container| UnstartedContainer {
                container_id: container.id.clone(),
                name: container.name.clone(),
            })
            .collect(),
        sandboxes: sandboxes(observation, facts.known),
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

/// How an instance is stopped.
pub(super) fn how(known: &Known, container: &Container, is_unknown: bool) -> StopHow {
    match known.instance(&container.id) {
        Some(Instance::Unstoppable { .. }) => StopHow::Remove,
        _ if is_unknown => StopHow::StopUnknown,
        _ => StopHow::Stop,
    }
}

impl ContainerStop {
    /// The stop of an instance whose sandbox is to go while its pod lives on.
    #[must_use]
    pub(super) fn of_lost_sandbox(
        known: &Known,
        pod: &Pod,
        container: &Container,
    ) -> ContainerStop {
        ContainerStop::for_reason(
            known,
            container,
            KillReason::SandboxLost,
            format!("Stopping container {}", container.name),
            pod_grace(pod),
        )
    }

    /// The stop of an instance while its pod lives on.
    pub(super) fn for_reason(
        known: &Known,
        container: &Container,
        reason: KillReason,
        message: String,
        grace: Duration,
    ) -> ContainerStop {
        ContainerStop {
            container_id: container.id.clone(),
            name: container.name.clone(),
            reason: Some(reason),
            message,
            grace,
            how: how(known, container, reason == KillReason::StateUnknown),
        }
    }
}
