//! PodStatus as the kubelet computes it: a pure function of the pod, what the
//! worker pool observed, the probe verdicts, the status published last and the
//! time.
//!
//! What does not live here: which pods there are and when to compute
//! (`registry`), and who reads the result (`publication`).

mod addresses;
mod conditions;
mod containers;
mod input;
mod messages;
mod mounts;
mod phase;
mod resources;
#[cfg(test)]
mod tests;
mod time;

pub(crate) use conditions::OWNED as OWNED_CONDITIONS;
pub(crate) use containers::{is_newest, runtime_id};
pub use input::StatusInput;
pub(crate) use messages::bound_observation;
pub(crate) use time::api_time;

use bulkhead_api::v1::PodObservation;
use clock::UnixNanos;
use pod::core::{Pod, PodStatus};
use pod::{PodExt, PodPhase, QosClass};

use input::{Stage, may_run};

/// The status of a pod.
#[must_use]
pub fn pod_status(input: StatusInput<'_>) -> PodStatus {
    let StatusInput {
        pod,
        observation,
        published,
        held,
        now,
        ..
    } = input;
    let base = published.or(pod.status.as_ref());
    let mut status = containers::container_statuses(&input, base);
    if Stage::of(observation) == Stage::Terminated {
        containers::end_all(pod, &mut status);
    }
    decide_phase(pod, observation, base, &mut status);
    containers::judge_readiness(&input, base, &mut status);

    status.conditions = Some(conditions::conditions(
        pod,
        &status,
        base,
        held,
        (observation, now),
    ));
    addresses::set_addresses(pod, observation, base, &mut status);
    status.qos_class = Some(QosClass::of(pod).as_str().to_owned());
    status.start_time = Some(start_time(observation, base, now));
    status.observed_generation = pod.metadata.generation;
    messages::bound_messages(&mut status);
    status
}

/// How the message of a pod begins that admission refused, as a kubelet's does.
const REJECTED: &str = "Pod was rejected: ";

/// Whether admission refused the pod, as [`rejected_status`] says it.
pub(crate) fn is_rejected(status: &PodStatus) -> bool {
    let message = status.message.as_deref().unwrap_or_default();
    status.phase.as_deref() == Some(PodPhase::Failed.as_str()) && message.starts_with(REJECTED)
}

/// The status of a pod that admission refused. One that had ended stays so; a later
/// rejection takes the place of an earlier one.
#[must_use]
pub fn rejected_status(
    pod: &Pod,
    reason: &str,
    message: &str,
    published: Option<&PodStatus>,
    now: UnixNanos,
) -> PodStatus {
    let mut status = published.cloned().unwrap_or_default();
    let phase = status.phase.as_deref().and_then(PodPhase::parse);
    let ended = phase.is_some_and(PodPhase::is_terminal);
    if !ended || is_rejected(&status) {
        status.phase = Some(PodPhase::Failed.as_str().to_owned());
        status.reason = Some(reason.to_owned());
        status.message = Some(format!("{REJECTED}{message}"));
    }
    status.start_time.get_or_insert_with(|| api_time(now));
    status.observed_generation = pod.metadata.generation;
    status.qos_class = Some(QosClass::of(pod).as_str().to_owned());
    messages::bound_messages(&mut status);
    status
}

/// Phase, reason and message. A terminal phase is final.
fn decide_phase(
    pod: &Pod,
    observation: &PodObservation,
    base: Option<&PodStatus>,
    status: &mut PodStatus,
) {
    let computed = match Stage::of(observation) {
        // A static pod that is removed keeps its phase: its UID may come back.
        Stage::Terminated if !pod.is_static() => phase::final_phase(pod, status),
        _ => phase::phase(pod, status, observation),
    };
    let before = base.and_then(|base| PodPhase::parse(base.phase.as_deref()?));
    let fails = !observation.failed_reason.is_empty();
    let now = if fails { PodPhase::Failed } else { computed };
    let phase = told(observation, before, now);
    if fails && phase == PodPhase::Failed && before != Some(phase) {
        status.reason = Some(observation.failed_reason.clone());
        status.message =
            Some(observation.failed_message.clone()).filter(|message| !message.is_empty());
    }
    if status.reason.is_none()
        && before == Some(phase)
        && let Some(base) = base
    {
        status.reason.clone_from(&base.reason);
        status.message.clone_from(&base.message);
    }
    status.phase = Some(phase.as_str().to_owned());
}

/// The phase that is told of a pod which was told to be `before`, and which is `now` as far
/// as what is observed says. Until none of its containers can run any more nobody may take
/// the pod for ended and start another one in its place.
fn told(observation: &PodObservation, before: Option<PodPhase>, now: PodPhase) -> PodPhase {
    let Some(before) = before else {
        return now;
    };
    // Nothing has happened to it as far as anybody knows: one that has exited may have been
    // stopped to be started again, which only the pool can tell.
    let is_unobserved = !observation.is_observed;
    let may_still_run = match Stage::of(observation) {
        // A sidecar may run on when an init container has failed for good.
        Stage::Active => observation.containers.iter().any(may_run),
        // A start that was under way when the stop began may still make one run.
        Stage::Terminating => true,
        Stage::Terminated => false,
    };
    match before.is_terminal() || is_unobserved || (may_still_run && now.is_terminal()) {
        true => before,
        false => now,
    }
}

/// When the pod was first seen here. Without a record of that, the age of what
/// already runs says that it was no later.
fn start_time(
    observation: &PodObservation,
    base: Option<&PodStatus>,
    now: UnixNanos,
) -> pod::meta::Time {
    if let Some(start) = base.and_then(|base| base.start_time.clone()) {
        return start;
    }
    let sandboxes = observation
        .sandboxes
        .iter()
        .map(|sandbox| sandbox.created_at_unix_nanos);
    let containers = observation
        .containers
        .iter()
        .map(|container| container.created_at_unix_nanos);
    let oldest = sandboxes.chain(containers).filter(|nanos| *nanos > 0).min();
    api_time(UnixNanos(oldest.unwrap_or(now.0).min(now.0)))
}
