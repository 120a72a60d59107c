//! Starting a container (again): with which number, and not before when.
//!
//! The crash-loop back-off needs no table of its own. Each instance carries, as
//! an annotation, how long the start after its exit waits; the wait begins when
//! the instance exited. So the back-off survives every restart of ours, and
//! deleting a container's instances forgets it. Those of a pod that was stopped and has
//! begun anew under its UID, and that are not collected yet, have no part in it: a manifest
//! that is moved away and back again is no crash.

use std::time::Duration;

use backoff::Curve;
use clock::UnixNanos;
use pod::accessors::ContainerKind;
use pod::container_hash::{ContainerHash, HashComparison};
use pod::core::Container as ContainerSpec;

use super::actions::{Discard, NewInstance, RestartWait, Start, StartHow, Work};
use super::facts::Inputs;
use crate::hook::Hook;
use crate::observation::{Container, ContainerState};

/// An instance that ran for longer ends the back-off, whatever the longest wait is
/// (`HasExpiredFunc` of the kubelet's crash-loop back-off): twice the usual longest.
const RESET_AFTER: Duration = Duration::from_secs(600);

enum StartOrWait {
    Start(StartHow),
    Wait(RestartWait),
}

/// Puts the start of a container whose instances do not run into the work, or what it
/// waits for.
pub(super) fn start(
    inputs: &Inputs<'_>,
    sandbox_id: &str,
    spec: &ContainerSpec,
    kind: ContainerKind,
    work: &mut Work,
) {
    if inputs.may_run_where_the_stop_failed(&spec.name) {
        return;
    }
    match decide(inputs, sandbox_id, spec) {
        StartOrWait::Start(StartHow::Create(_)) if inputs.facts.pulls.contains(&spec.name) => {
            work.pulls.push(spec.name.clone());
        }
        StartOrWait::Start(how) => work.starts.push(Start {
            name: spec.name.clone(),
            sandbox_id: sandbox_id.to_owned(),
            kind,
            how,
            has_post_start: Hook::post_start(spec).is_some(),
        }),
        StartOrWait::Wait(wait) => {
            work.wake(wait.until);
            work.waits.push(wait);
        }
    }
}

/// Decides how and when a container whose instances do not run is started.
fn decide(inputs: &Inputs<'_>, sandbox_id: &str, spec: &ContainerSpec) -> StartOrWait {
    let instances = || {
        inputs
            .observation
            .containers
            .iter()
            .filter(|container| container.name == spec.name)
    };
    let of_round = || instances().filter(|it| it.round >= inputs.round);
    if let Some(container) = resumable(of_round(), sandbox_id, spec) {
        return StartOrWait::Start(StartHow::Resume {
            container_id: container.id.clone(),
            restart_count: container.restart_count,
        });
    }
    let since_it_began = || instances().filter(|it| it.round >= inputs.observation.first_round);
    let exited = since_it_began().find(|container| container.state.exit().is_some());
    let wait = exited.map_or(Duration::ZERO, |container| {
        wait_after(container, spec, inputs.facts.settings.restart_curve)
    });
    if let Some(container) = exited
        && let Some(exit) = container.state.exit()
    {
        let left = left_of(wait, exit.finished_at, inputs.now());
        if !left.is_zero() {
            return StartOrWait::Wait(RestartWait {
                name: spec.name.clone(),
                container_id: container.id.clone(),
                wait,
                until: inputs.now().plus(left),
            });
        }
    }
    let started = instances().map(starts_shown_by).max();
    let next_name = inputs.facts.known.next_instances.get(&spec.name);
    let in_logs = inputs.observation.starts_in_logs.get(&spec.name).copied();
    StartOrWait::Start(StartHow::Create(NewInstance {
        restart_count: next_name.copied().unwrap_or_default().number(
            started.or(in_logs).unwrap_or(0),
            inputs.facts.now.monotonic,
            inputs.facts.settings.instance_name_is_held,
        ),
        restart_wait: match exited {
            Some(_) => next_wait(Some(wait), inputs.facts.settings.restart_curve),
            None => since_it_began()
                .map(|container| wait_carried(container, spec, inputs.facts.settings.restart_curve))
                .max()
                .unwrap_or_else(|| next_wait(None, inputs.facts.settings.restart_curve)),
        },
        round: inputs.round,
        discard: instances()
            .filter(|container| !container.state.has_run())
            .map(|container| Discard {
                container_id: container.id.clone(),
                start_was_abandoned: matches!(container.state, ContainerState::StartAbandoned(_)),
            })
            .collect(),
    }))
}

/// An instance that was created, perhaps in an earlier process, and only
/// needs to be started: the newest one, of this sandbox and this spec.
fn resumable<'a>(
    mut instances: impl Iterator<Item = &'a Container>,
    sandbox_id: &str,
    spec: &ContainerSpec,
) -> Option<&'a Container> {
    let newest = instances.next()?;
    let is_current = newest.state == ContainerState::Created
        && newest.sandbox_id == sandbox_id
        && ContainerHash::compare(&newest.spec_hash, spec) == HashComparison::Same;
    is_current.then_some(newest)
}

/// How often a container was started, as one instance of it shows: the number of
/// one that never ran is not used up, but there were that many before it. Those may
/// have been collected meanwhile.
fn starts_shown_by(instance: &Container) -> u32 {
    let ran = u32::from(instance.state.has_run());
    instance.restart_count.saturating_add(ran)
}

/// What is left now of a wait that began at an exit.
///
/// An exit that lies further in the future than the wait is long is one before
/// which the clock was set back: nobody knows when it was, and waiting for the
/// clock to get there again could take years.
fn left_of(wait: Duration, exited_at: UnixNanos, now: UnixNanos) -> Duration {
    if exited_at.since(now) > wait {
        return Duration::ZERO;
    }
    wait.saturating_sub(now.since(exited_at))
}

/// How long the start after this instance's exit waits, counted from the exit.
fn wait_after(container: &Container, spec: &ContainerSpec, curve: Curve) -> Duration {
    let Some(exit) = container.state.exit() else {
        return Duration::ZERO;
    };
    let ran = exit.finished_at.since(container.created_at);
    if ran > RESET_AFTER {
        return Duration::ZERO;
    }
    wait_carried(container, spec, curve)
}

/// The wait that an instance carries, if it is of this spec.
fn wait_carried(container: &Container, spec: &ContainerSpec, curve: Curve) -> Duration {
    if ContainerHash::compare(&container.spec_hash, spec) == HashComparison::Changed {
        return Duration::ZERO;
    }
    container
        .restart_wait
        .unwrap_or(Duration::ZERO)
        .min(curve.cap)
}

/// What a new instance carries: nothing if it is the first, so that one exit is
/// followed by a start at once; then the base of the curve, doubled up to its cap.
fn next_wait(previous: Option<Duration>, curve: Curve) -> Duration {
    match previous {
        None => Duration::ZERO,
        Some(wait) => wait.saturating_mul(2).max(curve.base).min(curve.cap),
    }
}
