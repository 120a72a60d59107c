//! Whether the pod's sandbox can be used, and what to do if not.

use std::borrow::Cow;
use std::time::Duration;

use pod::core::Container as ContainerSpec;
use pod::{PodExt, restart};

use super::actions::{Plan, StopPod, Unusable, Work};
use super::facts::{Facts, Inputs};
use super::{container_stop, init, stop, version};
use crate::known::SandboxKnown;
use crate::observation::{Container, Exit, Observation, Sandbox, SandboxNetwork};
use crate::termination::TerminationCause;

/// Least time between two sandboxes of a pod: about as often as the kubelet, which
/// relists once a second, would notice that one is gone.
const PAUSE_BETWEEN_SANDBOXES: Duration = Duration::from_secs(1);

pub(super) enum Choice<'a> {
    Use(&'a Sandbox),
    Plan(Plan),
}

/// What the runtime shows. A sandbox beside the pod's own that cannot be stopped is no
/// reason to leave the pod's own alone: it does not count as alive, and what is in it comes
/// after everything else of its name. The step reports the failure, and the next sync
/// tries to stop it again.
pub(super) fn without_failed_stops<'a>(facts: &Facts<'a>) -> Cow<'a, Observation> {
    let has_failed_stop = |id: &str| facts.known.sandbox(id) == Some(SandboxKnown::StopFailed);
    let mut observation = Cow::Borrowed(facts.observation);
    let mut sandboxes = facts.observation.sandboxes.iter();
    if sandboxes.any(|it| has_failed_stop(&it.id)) {
        let observation = observation.to_mut();
        for sandbox in &mut observation.sandboxes {
            sandbox.ready &= !has_failed_stop(&sandbox.id);
        }
        let containers = &mut observation.containers;
        containers.sort_by_key(|container| has_failed_stop(&container.sandbox_id));
    }
    observation
}

pub(super) fn choose<'a>(inputs: &Inputs<'a>) -> Choice<'a> {
    let Some(current) = inputs.observation.current_sandbox() else {
        return Choice::Plan(replace(inputs, None));
    };
    match (unusable(inputs, current), surplus(inputs)) {
        (Some(why), _) => {
            let plan = replace(inputs, Some(why));
            Choice::Plan(not_too_soon(inputs, current, plan))
        }
        (None, Some(plan)) => Choice::Plan(plan),
        (None, None) => Choice::Use(current),
    }
}

/// Several sandboxes run at once: one was made by a call of an earlier process that
/// took longer than any call may. All but the pod's own are stopped,
/// with what is in them.
fn surplus(inputs: &Inputs<'_>) -> Option<Plan> {
    let surplus = inputs.observation.surplus_sandboxes();
    let sandboxes: Vec<String> = surplus.map(|sandbox| sandbox.id.clone()).collect();
    let is_in_them = |container: &&Container| sandboxes.contains(&container.sandbox_id);
    let lost = inputs.observation.possibly_running().filter(is_in_them);
    let known = inputs.facts.known;
    let stops = lost.map(|container| container_stop::of_lost_sandbox(known, inputs.pod, container));
    let stops = stops.collect();
    (!sandboxes.is_empty()).then_some(Plan::StopSandboxes { sandboxes, stops })
}

/// A sandbox that was made just now is given a moment: it may get its address
/// still, and a runtime whose sandboxes die at once is not flooded with them.
fn not_too_soon(inputs: &Inputs<'_>, current: &Sandbox, plan: Plan) -> Plan {
    let due = current.created_at.plus(PAUSE_BETWEEN_SANDBOXES);
    let is_young = current.created_at <= inputs.now() && inputs.now() < due;
    if !is_young || !matches!(plan, Plan::NewSandbox { .. }) {
        return plan;
    }
    Plan::Work(Work {
        wake_at: Some(due),
        ..Work::default()
    })
}

fn unusable(inputs: &Inputs<'_>, current: &Sandbox) -> Option<Unusable> {
    if !current.ready {
        return Some(Unusable::NotReady);
    }
    if version::is_for_another_version(current, inputs.started_with) {
        return Some(Unusable::OfAnotherVersion);
    }
    match (&current.network, inputs.pod.host_network()) {
        (SandboxNetwork::Host, false) | (SandboxNetwork::Pod { .. }, true) => {
            Some(Unusable::NetworkChanged)
        }
        (SandboxNetwork::Pod { ips }, false) if ips.is_empty() => Some(Unusable::NoAddress),
        _ => None,
    }
}

/// A new sandbox, unless nothing would start in it.
fn replace(inputs: &Inputs<'_>, why: Option<Unusable>) -> Plan {
    let observation = inputs.observation;
    // A pod that is never restarted had its one chance, unless it never got to
    // the point of starting a container since the pod began anew.
    let containers = observation.containers.iter();
    let mut since_it_began = containers.filter(|it| it.round >= observation.first_round);
    let shown = observation.next_attempt();
    let had_its_chance = shown != 0 && since_it_began.any(|container| container.state.has_run());
    if restart::never_restarts(inputs.pod) && had_its_chance {
        return Plan::End(TerminationCause::Completed);
    }
    let starts: Vec<String> = inputs
        .pod
        .containers()
        .iter()
        .filter(|container| !is_done(inputs, container))
        .map(|container| container.name.clone())
        .collect();
    if starts.is_empty() && init::was_done(inputs) {
        return Plan::End(TerminationCause::Completed);
    }
    let first = match inputs.pod.init_containers().first() {
        Some(container) => vec![container.name.clone()],
        None => starts,
    };
    let facts = inputs.facts;
    let held = facts.settings.sandbox_name_is_held;
    Plan::NewSandbox {
        attempt: facts
            .known
            .next_sandbox
            .number(shown, facts.now.monotonic, held),
        why,
        first,
        stop: match why {
            Some(_) => stop::of_living_pod(facts, inputs.pod),
            None => StopPod::default(),
        },
        volumes: Vec::new(),
    }
}

/// Whether a container ended by itself, and is not started again for that. One that we
/// stopped did not.
fn is_done(inputs: &Inputs<'_>, spec: &ContainerSpec) -> bool {
    let newest = inputs.newest(&spec.name);
    newest.is_some_and(|container| {
        let exit = container.state.exit();
        let is_left = |exit: &Exit| !restart::restarts(inputs.pod, spec, exit.exit_code);
        exit.is_some_and(is_left) && inputs.kill_of(container).is_none()
    })
}
