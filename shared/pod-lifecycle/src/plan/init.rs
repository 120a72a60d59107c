//! Init containers: one after the other, each to its success, before all others.
//!
//! What counts is the sandbox that the pod lives in: in a new one they run again,
//! whatever is left of those in an old one.

use pod::accessors::ContainerKind;
use pod::core::Container as ContainerSpec;
use pod::{Pod, PodExt, RestartPolicy};

use super::facts::Inputs;
use super::step::Work;
use super::{container_stop, restart};
use crate::observation::{Container, ContainerState, Observation};
use crate::stop::KillReason;

/// How far the init containers are.
pub(super) enum Progress<'a> {
    Done,
    Running,
    /// The next to start, after it has failed perhaps.
    Next(&'a ContainerSpec),
    /// One has failed and is not to be tried again.
    Failed,
}

pub(super) fn progress<'a>(inputs: &Inputs<'a>, sandbox_id: &str) -> Progress<'a> {
    let containers = inputs.pod.init_containers();
    if has_ordinary(inputs.pod, inputs.observation, sandbox_id) {
        return Progress::Done;
    }
    let instance = |spec: &ContainerSpec| inputs.observation.newest_in(sandbox_id, &spec.name);
    // The last one that was started decides: those before it have succeeded.
    let last = containers
        .iter()
        .enumerate()
        .rev()
        .find_map(|(index, spec)| Some((index, spec, instance(spec)?)));
    let Some((index, spec, container)) = last else {
        return containers.first().map_or(Progress::Done, Progress::Next);
    };
    match &container.state {
        ContainerState::Running { .. } => Progress::Running,
        ContainerState::Created | ContainerState::StartAbandoned(_) => Progress::Next(spec),
        _ if has_failed(container) || was_killed(inputs, container) => {
            if inputs.pod.restart_policy() == RestartPolicy::Never {
                Progress::Failed
            } else {
                Progress::Next(spec)
            }
        }
        _ => containers
            .get(index + 1)
            .map_or(Progress::Done, Progress::Next),
    }
}

/// An ordinary container proves that the init containers have succeeded, also after
/// those were removed.
fn has_ordinary(pod: &Pod, observation: &Observation, sandbox_id: &str) -> bool {
    pod.containers()
        .iter()
        .any(|spec| observation.newest_in(sandbox_id, &spec.name).is_some())
}

/// Whether the init containers had succeeded in the sandbox that is lost.
pub(super) fn was_done(inputs: &Inputs<'_>) -> bool {
    let Some(last) = inputs.pod.init_containers().last() else {
        return true;
    };
    let observation = inputs.observation;
    let has_ordinary = inputs.pod.containers().iter().any(|spec| {
        observation
            .newest(&spec.name)
            .is_some_and(|container| container.state.has_run())
    });
    has_ordinary || observation.newest(&last.name).is_some_and(has_succeeded)
}

pub(super) fn start(inputs: &Inputs<'_>, sandbox_id: &str, spec: &ContainerSpec) -> Work {
    let mut work = Work::default();
    let newest = inputs.observation.newest_in(sandbox_id, &spec.name);
    if let Some(container) = newest
        && container.state == ContainerState::Unknown
    {
        work.stops.push(container_stop::for_reason(
            inputs.facts.known,
            container,
            KillReason::StateUnknown,
            "Init container is in unknown state, try killing it before restart".to_owned(),
            container_stop::pod_grace(inputs.pod),
        ));
        return work;
    }
    restart::start(inputs, sandbox_id, spec, ContainerKind::Init, &mut work);
    work
}

fn has_succeeded(container: &Container) -> bool {
    container.state.exit().is_some() && !has_failed(container)
}

/// One of unknown state that was stopped has failed, whatever code it ended with.
fn was_killed(inputs: &Inputs<'_>, container: &Container) -> bool {
    inputs.kill_of(container).is_some()
}

/// A container that ran out of memory has failed whatever its exit code.
fn has_failed(container: &Container) -> bool {
    match &container.state {
        ContainerState::Exited(exit) => exit.exit_code != 0 || exit.reason == "OOMKilled",
        ContainerState::Unknown => true,
        ContainerState::Created
        | ContainerState::StartAbandoned(_)
        | ContainerState::Running { .. } => false,
    }
}
