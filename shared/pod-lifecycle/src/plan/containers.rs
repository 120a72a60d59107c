//! Ordinary containers: which to stop, which to start, and whether all are done.

use std::time::Duration;

use pod::accessors::ContainerKind;
use pod::container_hash::{ContainerHash, HashComparison};
use pod::core::{Container as ContainerSpec, Probe};
use pod::{Pod, PodExt, RestartPolicy, restart};

use super::actions::{ContainerStop, Plan, PostStartHook, Work};
use super::container_stop::{self, pod_grace, whole_seconds};
use super::facts::Inputs;
use super::resize;
use super::restart as again;
use super::round;
use crate::hook::{Hook, PostStart};
use crate::known::Known;
use crate::observation::{Container, ContainerState, Observation};
use crate::stop::KillReason;
use crate::termination::TerminationCause;

/// Goes on with the work for sidecars.
pub(super) fn plan(inputs: &Inputs<'_>, sandbox_id: &str, sidecars: Work) -> Plan {
    let mut work = sidecars;
    let stops_of_sidecars = work.stops.len();
    let mut live = 0_usize;
    // A postStart hook before it has not ended.
    let mut waits_for_hook = !work.post_starts.is_empty() || in_sidecars_hook(inputs);
    for spec in inputs.pod.containers() {
        let newest = inputs.newest(&spec.name);
        match judge(inputs, spec, newest) {
            Judgement::Keep => live += 1,
            Judgement::PostStart(begin) => {
                live += 1;
                waits_for_hook = true;
                work.post_starts.extend(begin);
            }
            Judgement::Stop(stop) => {
                live += 1;
                work.stops.extend(stop);
            }
            Judgement::Start => {
                live += 1;
                if !waits_for_hook {
                    start(
                        inputs,
                        sandbox_id,
                        spec,
                        ContainerKind::Application,
                        &mut work,
                    );
                }
                waits_for_hook |= is_pulled_for(&work, spec);
            }
            Judgement::Done => {}
        }
        work.stops.extend(superseded(inputs, spec));
    }
    if live == 0 && work.stops.len() == stops_of_sidecars {
        return Plan::End(TerminationCause::Completed);
    }
    Plan::Work(work)
}

/// Whether the postStart hook of a sidecar runs. Its sidecar has been started again.
fn in_sidecars_hook(inputs: &Inputs<'_>) -> bool {
    let mut sidecars = inputs.pod.init_containers().iter();
    sidecars.any(|spec| {
        let newest = inputs.newest(&spec.name);
        newest.is_some_and(|container| {
            let hook = inputs.facts.known.post_start(&container.id);
            hook.is_some() && container.state.may_run()
        })
    })
}

/// What is to become of a container.
pub(super) enum Judgement {
    Keep,
    /// It is in its postStart hook, which is to be begun unless it has been.
    PostStart(Option<PostStartHook>),
    /// Unless that was tried already.
    Stop(Option<ContainerStop>),
    Start,
    Done,
}

/// What is to become of a container by its newest instance.
pub(super) fn judge(
    inputs: &Inputs<'_>,
    spec: &ContainerSpec,
    newest: Option<&Container>,
) -> Judgement {
    let stop = |container, reason| stop(inputs, spec, container, reason);
    let Some(container) = newest else {
        return Judgement::Start;
    };
    match &container.state {
        ContainerState::Created | ContainerState::StartAbandoned(_) => Judgement::Start,
        ContainerState::Unknown => Judgement::Stop(stop(container, KillReason::StateUnknown)),
        ContainerState::Running { .. } => match reason_to_kill(inputs, spec, container) {
            Some(reason) => Judgement::Stop(stop(container, reason)),
            None => match inputs.facts.known.post_start(&container.id) {
                Some(how_far) => Judgement::PostStart(post_start(spec, container, how_far)),
                None => Judgement::Keep,
            },
        },
        ContainerState::Exited(exit) => {
            let after_kill = is_restarted_after(inputs.kill_of(container), inputs.pod, spec);
            if after_kill || restart::restarts(inputs.pod, spec, exit.exit_code) {
                Judgement::Start
            } else {
                Judgement::Done
            }
        }
    }
}

/// Instances that were stopped to be started again, and have ended: their pod goes on
/// whatever code they ended with.
pub fn restarted_after_kill<'a>(
    pod: &'a Pod,
    observation: &'a Observation,
    known: &'a Known,
) -> impl Iterator<Item = &'a Container> {
    observation.containers.iter().filter(|container| {
        let kill = known.kill_reason(&container.id);
        let spec = pod.container(&container.name);
        container.state.exit().is_some()
            && spec.is_some_and(|(_, spec)| is_restarted_after(kill, pod, spec))
    })
}

fn is_restarted_after(kill: Option<KillReason>, pod: &Pod, spec: &ContainerSpec) -> bool {
    let policy = restart::policy_of(pod, spec);
    kill.is_some_and(|reason| reason.restarts(policy != RestartPolicy::Never))
}

/// The hook to begin, unless it was begun.
fn post_start(
    spec: &ContainerSpec,
    container: &Container,
    how_far: PostStart,
) -> Option<PostStartHook> {
    Some(PostStartHook {
        container_id: container.id.clone(),
        name: spec.name.clone(),
        hook: Hook::post_start(spec).filter(|_| how_far == PostStart::Due)?,
    })
}

/// Whether a container that has a postStart hook waits for its image. Those after it are
/// started after its hook, or when its start has failed.
fn is_pulled_for(work: &Work, spec: &ContainerSpec) -> bool {
    Hook::post_start(spec).is_some() && work.pulls.contains(&spec.name)
}

fn reason_to_kill(
    inputs: &Inputs<'_>,
    spec: &ContainerSpec,
    container: &Container,
) -> Option<KillReason> {
    // A kill that was begun is ended: its SIGTERM may be on the way already.
    if let Some(reason) = inputs.kill_of(container) {
        return Some(reason);
    }
    if ContainerHash::compare(&container.spec_hash, spec) == HashComparison::Changed {
        return Some(KillReason::DefinitionChanged);
    }
    if inputs.facts.known.post_start(&container.id) == Some(PostStart::Failed) {
        return Some(KillReason::PostStartFailed);
    }
    // A verdict counts only if the spec has that probe: sync-loop sends the verdicts and is
    // not trusted.
    if spec.liveness_probe.is_some() && inputs.facts.probe_verdicts.not_live.contains(&container.id)
    {
        return Some(KillReason::LivenessFailed);
    }
    if spec.startup_probe.is_some()
        && inputs
            .facts
            .probe_verdicts
            .not_started
            .contains(&container.id)
    {
        return Some(KillReason::StartupFailed);
    }
    resize::needs_restart(inputs, spec, container).then_some(KillReason::ResizeRestart)
}

/// Older instances that run beside the newest one, which should never be.
pub(super) fn superseded(inputs: &Inputs<'_>, spec: &ContainerSpec) -> Vec<ContainerStop> {
    let newest = inputs.observation.newest(&spec.name);
    inputs
        .observation
        .possibly_running()
        .filter(|container| container.name == spec.name)
        .filter(|container| newest.is_some_and(|newest| newest.id != container.id))
        .filter_map(|container| stop(inputs, spec, container, KillReason::Superseded))
        .collect()
}

/// Starts a container whose newest instance does not run, unless an older one may.
pub(super) fn start(
    inputs: &Inputs<'_>,
    sandbox_id: &str,
    spec: &ContainerSpec,
    kind: ContainerKind,
    work: &mut Work,
) {
    let other_may_run = inputs
        .observation
        .possibly_running()
        .any(|container| container.name == spec.name);
    if other_may_run {
        // `superseded` stops it first.
        return;
    }
    again::start(inputs, sandbox_id, spec, kind, work);
}

/// The stop of an instance, unless it is in a sandbox that could not be stopped.
fn stop(
    inputs: &Inputs<'_>,
    spec: &ContainerSpec,
    container: &Container,
    reason: KillReason,
) -> Option<ContainerStop> {
    if inputs.is_where_the_stop_failed(container) {
        return None;
    }
    let policy_restarts = restart::policy_of(inputs.pod, spec) != RestartPolicy::Never;
    let name = &spec.name;
    let mut message = match reason {
        KillReason::DefinitionChanged => format!("Container {name} definition changed"),
        KillReason::LivenessFailed => format!("Container {name} failed liveness probe"),
        KillReason::StartupFailed => format!("Container {name} failed startup probe"),
        KillReason::StateUnknown => {
            "Container is in unknown state, try killing it before restart".to_owned()
        }
        KillReason::Superseded => format!("Container {name} has a newer instance"),
        KillReason::SandboxLost => format!("Stopping container {name}"),
        KillReason::PostStartFailed => "FailedPostStartHook".to_owned(),
        KillReason::AllRestart => round::stop_message(name),
        KillReason::ResizeRestart => format!("Container {name} resize requires restart"),
    };
    let says_so = [KillReason::StateUnknown, KillReason::ResizeRestart].contains(&reason);
    if reason.restarts(policy_restarts) && !says_so {
        message.push_str(", will be restarted");
    }
    let probe = match reason {
        KillReason::LivenessFailed => spec.liveness_probe.as_ref(),
        KillReason::StartupFailed => spec.startup_probe.as_ref(),
        _ => None,
    };
    let grace = probe.and_then(probe_grace);
    Some(container_stop::for_reason(
        inputs.facts.known,
        container,
        reason,
        message,
        grace.unwrap_or_else(|| pod_grace(inputs.pod)),
    ))
}

fn probe_grace(probe: &Probe) -> Option<Duration> {
    probe.termination_grace_period_seconds.map(whole_seconds)
}
