//! Container statuses: from the instances that the runtime has, the pool's
//! reason for an instance that is missing, and what was published before.

use bulkhead_api::v1::{ContainerObservation, PodObservation, ProbeKind, RuntimeState};
use pod::accessors::{ContainerKind, is_restartable};
use pod::core::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, Pod, PodStatus,
};
use pod::stop_signal;
use pod::{PodExt, ephemeral, restart};

use super::input::{Stage, StatusInput};
use super::mounts;
use super::resources::{self, Promised};
use super::time::known_time;

/// Before the first instance of a pod without init containers.
pub(super) const CONTAINER_CREATING: &str = "ContainerCreating";
/// Before the first instance of a pod with init containers.
pub(super) const POD_INITIALIZING: &str = "PodInitializing";
/// An instance ended and nobody saw how.
const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
/// As if it was killed: its own code is lost.
const STATUS_UNKNOWN_EXIT_CODE: i32 = 137;
/// What stands before the ids of a runtime that has not told its name.
const USUAL_RUNTIME: &str = "containerd";

/// The id as the API has it.
fn api_id(observation: &PodObservation, id: &str) -> String {
    let runtime = match observation.runtime_name.as_str() {
        "" => USUAL_RUNTIME,
        name => name,
    };
    format!("{runtime}://{id}")
}

/// The id as the runtime has it, of a status.
pub(crate) fn runtime_id(status: &ContainerStatus) -> Option<&str> {
    without_runtime(status.container_id.as_deref()?)
}

fn without_runtime(id: &str) -> Option<&str> {
    id.split_once("://").map(|(_runtime, id)| id)
}

/// What is common to the containers of one list of a pod.
#[derive(Clone, Copy)]
struct PodFacts<'a> {
    pod: &'a Pod,
    observation: &'a PodObservation,
    /// `ContainerCreating` or `PodInitializing`.
    default_reason: &'static str,
    /// Containers are started and restarted; else the pod is on its way out.
    active: bool,
    init: bool,
    /// Never started again.
    ephemeral: bool,
    /// Ordinary containers have run, so all init containers had completed.
    initialized: bool,
    /// Whether volumes are told as they are mounted: of too many none are.
    tells_mounts: bool,
}

/// Statuses of all containers, without readiness.
pub(super) fn container_statuses(input: &StatusInput<'_>, base: Option<&PodStatus>) -> PodStatus {
    let pod = input.pod;
    let active = Stage::of(input.observation) == Stage::Active && !pod.is_marked_for_deletion();
    let facts = PodFacts {
        pod,
        observation: input.observation,
        default_reason: if pod.init_containers().is_empty() {
            CONTAINER_CREATING
        } else {
            POD_INITIALIZING
        },
        active,
        init: false,
        ephemeral: false,
        initialized: has_run(pod.containers(), input.observation, base),
        tells_mounts: mounts::are_few(pod),
    };
    let published = |facts: PodFacts<'_>| {
        let base = base?;
        match (facts.init, facts.ephemeral) {
            (true, _) => &base.init_container_statuses,
            (false, true) => &base.ephemeral_container_statuses,
            (false, false) => &base.container_statuses,
        }
        .as_deref()
    };
    let list = |facts: PodFacts<'_>, containers: &[Container]| -> Option<Vec<ContainerStatus>> {
        let published = published(facts).unwrap_or_default();
        let status = |container: &Container| {
            let before = published
                .iter()
                .find(|status| status.name == container.name);
            container_status(facts, container, before)
        };
        let statuses: Vec<_> = containers.iter().map(status).collect();
        (!statuses.is_empty()).then_some(statuses)
    };
    let mut ordinary = list(facts, pod.containers());
    // The kubelet lists init containers in the order of the spec, others by name.
    if let Some(statuses) = &mut ordinary {
        statuses.sort_by(|left, right| left.name.cmp(&right.name));
    }
    PodStatus {
        init_container_statuses: list(
            PodFacts {
                init: true,
                ..facts
            },
            pod.init_containers(),
        ),
        container_statuses: ordinary,
        ephemeral_container_statuses: list(
            PodFacts {
                ephemeral: true,
                ..facts
            },
            &ephemeral::containers(pod).collect::<Vec<_>>(),
        ),
        ..PodStatus::default()
    }
}

/// Whether an ordinary container has ever run.
fn has_run(
    containers: &[Container],
    observation: &PodObservation,
    base: Option<&PodStatus>,
) -> bool {
    let ordinary = |name: &str| containers.iter().any(|container| container.name == name);
    let observed = observation
        .containers
        .iter()
        .any(|instance| ordinary(&instance.name));
    let published = base
        .and_then(|base| base.container_statuses.as_deref())
        .unwrap_or_default();
    observed || published.iter().any(has_left_waiting)
}

/// Whether a container runs, or ran.
pub(super) fn has_left_waiting(status: &ContainerStatus) -> bool {
    let ended = status
        .last_state
        .as_ref()
        .is_some_and(|last| last.terminated.is_some());
    let waits = status
        .state
        .as_ref()
        .is_none_or(|state| state.waiting.is_some());
    ended || !waits
}

fn container_status(
    facts: PodFacts<'_>,
    container: &Container,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let instances = newest_first(facts.observation, &container.name);
    let mut status = match instances.split_first() {
        Some((newest, older)) => {
            // Of init containers only sidecars.
            let is_resizable = !facts.init || is_restartable(container);
            let mut status = present(facts.observation, container, newest, older, before);
            if let Some(actual) = newest.resources.as_ref().filter(|_| is_resizable) {
                let promised = match facts.observation.pending_resize {
                    None => Promised::AsWanted,
                    Some(_) => Promised::AsTold(before),
                };
                resources::tell(container, actual, promised, &mut status);
            }
            status
        }
        None => absent(facts, container, before),
    };
    if facts.tells_mounts {
        let newest = instances.first().copied();
        let id = newest.map(|newest| newest.id.as_str());
        let same = before.filter(|before| id.is_none() || runtime_id(before) == id);
        status.volume_mounts = mounts::told(container, newest, same);
    }
    let waiting = reason_for_no_start(facts, container, instances.first().copied());
    let waiting = match waiting {
        Some(waiting) => Some(waiting_state(&waiting.reason, &waiting.message)),
        None if facts.active && is_left_of_earlier_round(facts.observation, &container.name) => {
            Some(waiting_state(facts.default_reason, ""))
        }
        None => None,
    };
    if let Some(waiting) = waiting {
        let left = status
            .state
            .take()
            .filter(|state| state.terminated.is_some());
        if left.is_some() {
            status.last_state = left;
        }
        status.state = Some(waiting);
    }
    status.last_state.get_or_insert_default();
    status
}

/// Whether all containers of the pod are started again, and this one has ended and was not
/// started since.
pub(super) fn is_left_of_earlier_round(observation: &PodObservation, name: &str) -> bool {
    let newest = newest_first(observation, name).into_iter().next();
    newest.is_some_and(|it| it.is_of_earlier_round && it.state() == RuntimeState::Exited)
}

/// Whether a container was stopped to be started again, has ended, and was not started since.
pub(super) fn is_restarted_after_kill(observation: &PodObservation, name: &str) -> bool {
    let newest = newest_first(observation, name).into_iter().next();
    newest.is_some_and(|it| it.is_restarted_after_kill && it.state() == RuntimeState::Exited)
}

/// Whether no other instance of the same container was made after this one.
pub(crate) fn is_newest(observation: &PodObservation, instance: &ContainerObservation) -> bool {
    let newest = newest_first(observation, &instance.name).into_iter().next();
    newest.is_some_and(|it| it.id == instance.id)
}

/// The instances of a container by their numbers: the times at which they were made do not
/// tell where the wall clock was set back.
fn newest_first<'a>(observation: &'a PodObservation, name: &str) -> Vec<&'a ContainerObservation> {
    let mut instances: Vec<_> = observation
        .containers
        .iter()
        .filter(|instance| instance.name == name)
        .collect();
    instances.sort_by_key(|instance| {
        std::cmp::Reverse((instance.restart_count, instance.created_at_unix_nanos))
    });
    instances
}

/// The status of a container that the runtime has.
fn present(
    observation: &PodObservation,
    container: &Container,
    newest: &ContainerObservation,
    older: &[&ContainerObservation],
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let same = before.filter(|before| runtime_id(before) == Some(&newest.id));
    let mut restart_count = i32::try_from(newest.restart_count).unwrap_or(i32::MAX);
    let state = match newest.state() {
        RuntimeState::Running => running_state(newest),
        RuntimeState::Exited => terminated_state(observation, newest),
        RuntimeState::Created => waiting_state("", ""),
        RuntimeState::Unknown | RuntimeState::Unspecified => {
            let before = same.and_then(|before| before.state.as_ref());
            if before.is_some_and(|state| state.running.is_some()) {
                restart_count = restart_count.saturating_add(1);
                lost_state("the container runtime does not know how the container ended")
            } else if let Some(ended) = before.filter(|state| state.terminated.is_some()) {
                ended.clone()
            } else {
                waiting_state("", "")
            }
        }
    };
    let ended = |state: &ContainerState| state.terminated.is_some();
    let last = older
        .first()
        .filter(|instance| instance.state() == RuntimeState::Exited)
        .map(|instance| terminated_state(observation, instance))
        .or_else(|| {
            // The dead instance may have been collected: its end stays known.
            let before = before?;
            let replaced = if same.is_some() {
                None
            } else {
                before.state.clone().filter(ended)
            };
            replaced.or_else(|| before.last_state.clone().filter(ended))
        })
        // A crash-looping instance was published as its own last state.
        .filter(|last| {
            let last_id = last
                .terminated
                .as_ref()
                .and_then(|ended| without_runtime(ended.container_id.as_deref()?));
            last_id != Some(&newest.id)
        });
    let image = if newest.image.is_empty() {
        container.image.clone()
    } else {
        Some(newest.image.clone())
    };
    ContainerStatus {
        name: container.name.clone(),
        state: Some(state),
        last_state: last,
        restart_count: restart_count.max(before.map_or(0, |before| before.restart_count)),
        image: image.unwrap_or_default(),
        image_id: newest.image_id.clone(),
        container_id: Some(api_id(observation, &newest.id)),
        stop_signal: stop_signal::number(&newest.stop_signal).map(|_| newest.stop_signal.clone()),
        user: mounts::user(newest),
        ..ContainerStatus::default()
    }
}

/// The status of a container that the runtime does not have: not yet, or not
/// any more.
fn absent(
    facts: PodFacts<'_>,
    container: &Container,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let mut status = ContainerStatus {
        name: container.name.clone(),
        state: Some(waiting_state(facts.default_reason, "")),
        image: container.image.clone().unwrap_or_default(),
        ..ContainerStatus::default()
    };
    if let Some(before) = before {
        let state = before.state.clone().unwrap_or_default();
        if state.terminated.is_some() || !facts.observation.is_observed {
            return before.clone();
        }
        status.restart_count = before.restart_count;
        status.last_state.clone_from(&before.last_state);
        let known_end = before
            .last_state
            .as_ref()
            .is_some_and(|last| last.terminated.is_some());
        if state.running.is_some() && !known_end {
            status.last_state = Some(lost_state(
                "the container ran and is gone from the container runtime",
            ));
            if facts.active {
                status.restart_count = status.restart_count.saturating_add(1);
            }
        }
    }
    let is_done = facts.init && facts.initialized && !is_restartable(container);
    if is_done && facts.observation.is_observed {
        status.state = Some(ContainerState {
            terminated: Some(ContainerStateTerminated {
                reason: Some("Completed".to_owned()),
                message: Some(
                    "the container is gone from the container runtime; it had completed, since the pod is initialized".to_owned(),
                ),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        });
    }
    status
}

/// Why a container that should be started is not, if the pool said so.
fn reason_for_no_start<'a>(
    facts: PodFacts<'a>,
    container: &Container,
    newest: Option<&ContainerObservation>,
) -> Option<&'a bulkhead_api::v1::ContainerWaiting> {
    if !facts.active {
        return None;
    }
    if let Some(newest) = newest {
        let restarts = match newest.state() {
            RuntimeState::Running => false,
            RuntimeState::Exited if newest.is_of_earlier_round => true,
            RuntimeState::Exited if facts.ephemeral => false,
            RuntimeState::Exited if facts.init && is_restartable(container) => true,
            RuntimeState::Exited if facts.init && newest.exit_code == 0 => false,
            RuntimeState::Exited => restart::restarts(facts.pod, container, newest.exit_code),
            RuntimeState::Created | RuntimeState::Unknown | RuntimeState::Unspecified => true,
        };
        if !restarts {
            return None;
        }
    }
    facts.observation.waiting.iter().find(|waiting| {
        // The two defaults say less than the state that they would hide.
        let default = [CONTAINER_CREATING, POD_INITIALIZING, ""].contains(&&*waiting.reason);
        waiting.name == container.name && !default
    })
}

/// Sets `started` and `ready`. What no verdict tells stays as it was published
/// for the same instance, so that no restart of a process flips it.
pub(super) fn judge_readiness(
    input: &StatusInput<'_>,
    base: Option<&PodStatus>,
    status: &mut PodStatus,
) {
    let of_init = status.init_container_statuses.iter_mut().flatten();
    let ordinary = status.container_statuses.iter_mut().flatten();
    for status in of_init.chain(ordinary) {
        let (kind, spec) = match input.pod.container(&status.name) {
            Some((kind, spec)) => (kind, Some(spec)),
            None => (ContainerKind::Application, None),
        };
        if kind == ContainerKind::Init {
            let state = status.state.as_ref();
            // As newer kubelets: it can have no probe that says otherwise.
            status.started = Some(state.is_some_and(|it| it.running.is_some()));
            let ended = state.and_then(|it| it.terminated.as_ref());
            status.ready = ended.is_some_and(|ended| ended.exit_code == 0);
        } else {
            judge_instance(input, base, spec, status);
        }
    }
}

/// Sets `started` and `ready` of one that runs beside others.
fn judge_instance(
    input: &StatusInput<'_>,
    base: Option<&PodStatus>,
    spec: Option<&Container>,
    status: &mut ContainerStatus,
) {
    let lists = base.map(|base| [&base.container_statuses, &base.init_container_statuses]);
    let mut published = lists.into_iter().flatten().flatten().flatten();
    let before = published
        .find(|before| runtime_id(before).is_some_and(|id| Some(id) == runtime_id(status)));
    let verdict = |kind, has_probe: bool, before: Option<bool>| {
        let known = runtime_id(status).and_then(|id| input.verdicts.get(id, kind));
        if has_probe {
            known.or(before).unwrap_or(false)
        } else {
            true
        }
    };
    let state = status.state.as_ref();
    let running = state.is_some_and(|state| state.running.is_some());
    let started = running
        && verdict(
            ProbeKind::Startup,
            spec.is_some_and(|spec| spec.startup_probe.is_some()),
            before.and_then(|before| before.started),
        );
    let ready = started
        && verdict(
            ProbeKind::Readiness,
            spec.is_some_and(|spec| spec.readiness_probe.is_some()),
            before.map(|before| before.ready),
        );
    status.started = Some(started);
    status.ready = ready;
}

/// At the end of a pod every container that could have run has ended: whose end
/// was not seen counts as failed.
pub(super) fn end_all(pod: &Pod, status: &mut PodStatus) {
    let initial = status
        .init_container_statuses
        .as_deref()
        .unwrap_or_default();
    let ordinary = status.container_statuses.as_deref().unwrap_or_default();
    let completed = |state: &Option<ContainerState>| {
        let ended = state.as_ref().and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.exit_code == 0)
    };
    let initialized = pod.init_containers().is_empty()
        || ordinary.iter().any(has_left_waiting)
        || initial
            .last()
            .is_some_and(|last| completed(&last.state) || completed(&last.last_state));
    // The first init container was always tried.
    let tried = initial
        .iter()
        .rposition(has_left_waiting)
        .map_or(1, |last| last + 1);

    let end = |status: &mut ContainerStatus| {
        let state = status.state.get_or_insert_default();
        if state.terminated.is_none() {
            *state = lost_state("the container was not found when the pod ended");
        }
    };
    if initialized {
        status.container_statuses.iter_mut().flatten().for_each(end);
    }
    status
        .init_container_statuses
        .iter_mut()
        .flatten()
        .take(tried)
        .for_each(end);
}

fn running_state(instance: &ContainerObservation) -> ContainerState {
    let running = ContainerStateRunning {
        started_at: known_time(instance.started_at_unix_nanos),
    };
    ContainerState {
        running: Some(running),
        ..ContainerState::default()
    }
}

fn terminated_state(
    observation: &PodObservation,
    instance: &ContainerObservation,
) -> ContainerState {
    let words = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let terminated = ContainerStateTerminated {
        container_id: Some(api_id(observation, &instance.id)),
        exit_code: instance.exit_code,
        finished_at: known_time(instance.finished_at_unix_nanos),
        message: words(&instance.message),
        reason: words(&instance.reason),
        signal: None,
        started_at: known_time(instance.started_at_unix_nanos),
    };
    ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    }
}

fn waiting_state(reason: &str, message: &str) -> ContainerState {
    let words = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let waiting = ContainerStateWaiting {
        reason: words(reason),
        message: words(message),
    };
    ContainerState {
        waiting: Some(waiting),
        ..ContainerState::default()
    }
}

fn lost_state(message: &str) -> ContainerState {
    let terminated = ContainerStateTerminated {
        exit_code: STATUS_UNKNOWN_EXIT_CODE,
        message: Some(message.to_owned()),
        reason: Some(STATUS_UNKNOWN.to_owned()),
        ..ContainerStateTerminated::default()
    };
    ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    }
}
