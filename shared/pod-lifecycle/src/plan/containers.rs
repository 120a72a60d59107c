//! Ordinary containers: which to stop, which to start, and whether all are done.

use std::time::Duration;

use pod::accessors::ContainerKind;
use pod::container_hash::{ContainerHash, HashComparison};
use pod::core::{Container as ContainerSpec, Probe};
use pod::{PodExt, RestartPolicy};

use super::container_stop::{self, pod_grace, whole_seconds};
use super::facts::Inputs;
use super::restart;
use super::step::{ContainerStop, Plan, PostStartHook, Work};
use crate::hook::{Hook, PostStart};
use crate::observation::{Container, ContainerState};
use crate::stop::KillReason;
use crate::termination::TerminationCause;

pub(super) fn plan(inputs: &Inputs<'_>, sandbox_id: &str) -> Plan {
    let mut work = Work::default();
    let mut live = 0_usize;
    // A postStart hook before it has not ended.
    let mut waits_for_hook = false;
    for spec in inputs.pod.containers() {
        match judge(inputs, spec) {
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
                    start(inputs, sandbox_id, spec, &mut work);
                }
                waits_for_hook |= is_pulled_for(&work, spec);
            }
            Judgement::Done => {}
        }
        work.stops.extend(superseded(inputs, spec));
    }
    if live == 0 && work.stops.is_empty() {
        return Plan::End(TerminationCause::Completed);
    }
    Plan::Work(work)
}

enum Judgement {
    Keep,
    /// It is in its postStart hook, which is to be begun unless it has been.
    PostStart(Option<PostStartHook>),
    /// Unless that was tried already.
    Stop(Option<ContainerStop>),
    Start,
    Done,
}

fn judge(inputs: &Inputs<'_>, spec: &ContainerSpec) -> Judgement {
    let Some(container) = inputs.observation.newest(&spec.name) else {
        return Judgement::Start;
    };
    match &container.state {
        ContainerState::Created | ContainerState::StartAbandoned(_) => Judgement::Start,
        ContainerState::Unknown => {
            Judgement::Stop(stop(inputs, spec, container, KillReason::StateUnknown))
        }
        ContainerState::Running { .. } => match reason_to_kill(inputs, spec, container) {
            Some(reason) => Judgement::Stop(stop(inputs, spec, container, reason)),
            None => match inputs.facts.known.post_start(&container.id) {
                Some(how_far) => Judgement::PostStart(post_start(spec, container, how_far)),
                None => Judgement::Keep,
            },
        },
        ContainerState::Exited(exit) => {
            let policy = inputs.pod.restart_policy();
            let after_kill = inputs
                .kill_of(container)
                .is_some_and(|reason| reason.restarts(policy != RestartPolicy::Never));
            if after_kill || policy.restarts(exit.exit_code) {
                Judgement::Start
            } else {
                Judgement::Done
            }
        }
    }
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
    // A verdict about a probe that the spec does not have is nobody's to give.
    if spec.liveness_probe.is_some() && inputs.facts.failed_probes.not_live.contains(&container.id)
    {
        return Some(KillReason::LivenessFailed);
    }
    if spec.startup_probe.is_some()
        && inputs
            .facts
            .failed_probes
            .not_started
            .contains(&container.id)
    {
        return Some(KillReason::StartupFailed);
    }
    None
}

/// Older instances that run beside the newest one, which should never be.
fn superseded(inputs: &Inputs<'_>, spec: &ContainerSpec) -> Vec<ContainerStop> {
    let newest = inputs.observation.newest(&spec.name);
    inputs
        .observation
        .possibly_running()
        .filter(|container| container.name == spec.name)
        .filter(|container| newest.is_some_and(|newest| newest.id != container.id))
        .filter_map(|container| stop(inputs, spec, container, KillReason::Superseded))
        .collect()
}

fn start(inputs: &Inputs<'_>, sandbox_id: &str, spec: &ContainerSpec, work: &mut Work) {
    let other_may_run = inputs
        .observation
        .possibly_running()
        .any(|container| container.name == spec.name);
    if other_may_run {
        // `superseded` stops it first.
        return;
    }
    restart::start(inputs, sandbox_id, spec, ContainerKind::Application, work);
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
    let policy_restarts = inputs.pod.restart_policy() != RestartPolicy::Never;
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
    };
    if reason.restarts(policy_restarts) && reason != KillReason::StateUnknown {
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
