//! Init containers, in the order of the spec and before all others: each ordinary one to
//! its success, each sidecar (`restartPolicy: Always`) until it has started. Sidecars
//! are kept running from then on.
//!
//! What counts is the sandbox that the pod lives in: in a new one they run again,
//! whatever is left of those in an old one.

use pod::accessors::{ContainerKind, is_restartable};
use pod::core::Container as ContainerSpec;
use pod::{Pod, PodExt, RestartPolicy};

use super::actions::Work;
use super::containers::{self, Judgement};
use super::facts::Inputs;
use super::{container_stop, restart};
use crate::observation::{Container, ContainerState};
use crate::stop::KillReason;

/// How far the init containers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// All others may be started.
    Done,
    /// One runs, has to be started, or waits.
    Underway,
    /// One has failed and is not to be tried again.
    Failed,
}

/// What to do for init containers, and how far they are.
pub(super) fn plan(inputs: &Inputs<'_>, sandbox_id: &str) -> (Work, Progress) {
    let mut work = Work::default();
    let containers = inputs.pod.init_containers();
    let are_done = has_ordinary(inputs, sandbox_id);
    // The last one that was started decides: those before it have succeeded or started.
    let last = containers
        .iter()
        .enumerate()
        .rev()
        .find_map(|(index, spec)| {
            let instance = inputs.newest_in(sandbox_id, &spec.name)?;
            Some((index, spec, instance))
        });
    let begun = match (are_done, last) {
        (true, _) => containers.len(),
        (false, Some((index, _, _))) => index,
        (false, None) => 0,
    };
    for spec in containers[..begun]
        .iter()
        .filter(|spec| is_restartable(spec))
    {
        keep(inputs, sandbox_id, spec, &mut work);
    }
    if are_done {
        return (work, Progress::Done);
    }
    let next = match last {
        None => containers.first(),
        Some((index, spec, container)) => match of_last(inputs, sandbox_id, spec, container) {
            Last::Done => containers.get(index + 1),
            Last::Keep => {
                keep(inputs, sandbox_id, spec, &mut work);
                return (work, Progress::Underway);
            }
            Last::KeepAndGoOn => {
                keep(inputs, sandbox_id, spec, &mut work);
                containers.get(index + 1)
            }
            Last::Running => return (work, Progress::Underway),
            Last::Again => Some(spec),
            Last::Failed => return (work, Progress::Failed),
        },
    };
    match next {
        None => (work, Progress::Done),
        Some(spec) => {
            start(inputs, sandbox_id, spec, &mut work);
            (work, Progress::Underway)
        }
    }
}

/// What the last one that was started has come to.
enum Last {
    /// It has succeeded.
    Done,
    /// It runs to its end.
    Running,
    /// It is to be started, after it has failed perhaps.
    Again,
    Failed,
    /// A sidecar that has not started yet.
    Keep,
    /// A sidecar that has started.
    KeepAndGoOn,
}

fn of_last(
    inputs: &Inputs<'_>,
    sandbox_id: &str,
    spec: &ContainerSpec,
    container: &Container,
) -> Last {
    if is_restartable(spec) {
        return match has_started(inputs, sandbox_id, spec) {
            true => Last::KeepAndGoOn,
            false => Last::Keep,
        };
    }
    match &container.state {
        ContainerState::Running { .. } => Last::Running,
        ContainerState::Created | ContainerState::StartAbandoned(_) => Last::Again,
        _ if has_failed(container) || was_killed(inputs, container) => {
            match is_tried_again(inputs.pod, spec, container) {
                true => Last::Again,
                false => Last::Failed,
            }
        }
        _ => Last::Done,
    }
}

/// Whether an init container that has failed is started again. One that ran out of
/// memory, or was killed, has failed whatever its code.
fn is_tried_again(pod: &Pod, spec: &ContainerSpec, container: &Container) -> bool {
    let exit = container.state.exit();
    let code = exit.map(|exit| exit.exit_code).filter(|code| *code != 0);
    match code {
        Some(code) => pod::restart::restarts(pod, spec, code),
        None => pod::restart::policy_of(pod, spec) != RestartPolicy::Never,
    }
}

/// Whether a sidecar runs, its postStart hook has ended, and its startup probe, where it
/// has one, has succeeded.
fn has_started(inputs: &Inputs<'_>, sandbox_id: &str, spec: &ContainerSpec) -> bool {
    let Some(container) = inputs.newest_in(sandbox_id, &spec.name) else {
        return false;
    };
    let is_kept = matches!(judge_sidecar(inputs, sandbox_id, spec), Judgement::Keep);
    let verdicts = &inputs.facts.probe_verdicts;
    is_kept && (spec.startup_probe.is_none() || verdicts.started.contains(&container.id))
}

fn judge_sidecar(inputs: &Inputs<'_>, sandbox_id: &str, spec: &ContainerSpec) -> Judgement {
    let container = inputs.newest_in(sandbox_id, &spec.name);
    containers::judge(inputs, spec, container)
}

/// Keeps a sidecar running.
fn keep(inputs: &Inputs<'_>, sandbox_id: &str, spec: &ContainerSpec, work: &mut Work) {
    match judge_sidecar(inputs, sandbox_id, spec) {
        Judgement::Keep | Judgement::Done => {}
        Judgement::PostStart(begin) => work.post_starts.extend(begin),
        Judgement::Stop(stop) => work.stops.extend(stop),
        Judgement::Start => {
            containers::start(inputs, sandbox_id, spec, ContainerKind::Sidecar, work);
        }
    }
    work.stops.extend(containers::superseded(inputs, spec));
}

/// An ordinary container proves that the init containers have succeeded, also after
/// those were removed.
fn has_ordinary(inputs: &Inputs<'_>, sandbox_id: &str) -> bool {
    let mut ordinary = inputs.pod.containers().iter();
    ordinary.any(|spec| inputs.newest_in(sandbox_id, &spec.name).is_some())
}

/// Whether the init containers had succeeded in the sandbox that is lost.
pub(super) fn was_done(inputs: &Inputs<'_>) -> bool {
    let Some(last) = inputs.pod.init_containers().last() else {
        return true;
    };
    let has_ordinary = inputs.pod.containers().iter().any(|spec| {
        inputs
            .newest(&spec.name)
            .is_some_and(|container| container.state.has_run())
    });
    has_ordinary || inputs.newest(&last.name).is_some_and(has_succeeded)
}

/// Starts the next one.
fn start(inputs: &Inputs<'_>, sandbox_id: &str, spec: &ContainerSpec, work: &mut Work) {
    if is_restartable(spec) {
        keep(inputs, sandbox_id, spec, work);
        return;
    }
    let newest = inputs.newest_in(sandbox_id, &spec.name);
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
        return;
    }
    restart::start(inputs, sandbox_id, spec, ContainerKind::Init, work);
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
