//! Pod conditions: PodReadyToStartContainers, Initialized, Ready, ContainersReady, PodScheduled,
//! AllContainersRestarting, DisruptionTarget, PodResizePending, PodResizeInProgress, and
//! when each last changed.

use bulkhead_api::v1::{ContainerObservation, PodObservation};
use clock::UnixNanos;
use pod::accessors::ContainerKind;
use pod::core::{ContainerStatus, Pod, PodCondition, PodStatus};
use pod::{PodExt, PodPhase, restart};

use super::containers::has_left_waiting;
use super::input::may_run;
use super::time::api_time;

const INITIALIZED: &str = "Initialized";
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
const POD_SCHEDULED: &str = "PodScheduled";
/// Tells that the sandbox is there, with its network.
const READY_TO_START_CONTAINERS: &str = "PodReadyToStartContainers";
/// Of pods that have a restart rule with that action: whether what ran before is being
/// stopped.
const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
/// The kubelet's reason for that.
const RESTART_ALL_CONTAINERS_STARTED: &str = "RestartAllContainersStarted";
/// Tells that the node ended the pod because it was short of something.
const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// The kubelet's reason for that.
const TERMINATION_BY_KUBELET: &str = "TerminationByKubelet";
/// Tells that containers do not get the CPU and memory that they are to have: the node
/// has no room for it.
const RESIZE_PENDING: &str = "PodResizePending";
/// Tells that containers do not run with the CPU and memory that they are to have.
const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
/// The kubelet's reason where that cannot be changed now.
const RESIZE_ERROR: &str = "Error";
/// The conditions that this process decides; all others are kept as they are.
pub(crate) const OWNED: [&str; 8] = [
    READY_TO_START_CONTAINERS,
    INITIALIZED,
    READY,
    CONTAINERS_READY,
    POD_SCHEDULED,
    ALL_CONTAINERS_RESTARTING,
    RESIZE_PENDING,
    RESIZE_IN_PROGRESS,
];

/// What a condition says, before it is known since when.
struct Judgement {
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Judgement {
    fn holds(reason: Option<&'static str>) -> Judgement {
        Judgement {
            holds: true,
            reason,
            message: None,
        }
    }

    fn fails(reason: &'static str, message: Option<String>) -> Judgement {
        Judgement {
            holds: false,
            reason: Some(reason),
            message,
        }
    }
}

/// All conditions of a pod whose phase and container statuses are decided. Those that
/// others have set stay as the API server holds them, or else as they were, and so does that
/// of a pod which the node had to end.
pub(super) fn conditions(
    pod: &Pod,
    status: &PodStatus,
    base: Option<&PodStatus>,
    held: Option<&[PodCondition]>,
    (observation, now): (&PodObservation, UnixNanos),
) -> Vec<PodCondition> {
    let before = base
        .and_then(|base| base.conditions.as_deref())
        .unwrap_or_default();
    let of_others: Vec<PodCondition> = held
        .unwrap_or(before)
        .iter()
        .filter(|condition| !OWNED.contains(&condition.type_.as_str()))
        .cloned()
        .collect();
    let containers_ready = containers_ready(pod, status);
    let ready = ready(pod, &containers_ready, &of_others);
    let has_sandbox = match observation.is_observed {
        true => observation.sandboxes.iter().any(|it| {
            let has_network = pod.host_network() || !it.ips.is_empty();
            it.ready && has_network
        }),
        // What was told stands until the runtime is asked again.
        false => before
            .iter()
            .any(|it| it.type_ == READY_TO_START_CONTAINERS && it.status == "True"),
    };
    let ready_to_start = Judgement {
        holds: has_sandbox,
        reason: None,
        message: None,
    };
    let mut owned = vec![
        (READY_TO_START_CONTAINERS, ready_to_start),
        (INITIALIZED, initialized(pod, status)),
        (READY, ready),
        (CONTAINERS_READY, containers_ready),
        (POD_SCHEDULED, Judgement::holds(None)),
    ];
    if restart::may_restart_all(pod) {
        let judgement = all_containers_restarting(status, observation);
        owned.push((ALL_CONTAINERS_RESTARTING, judgement));
    }
    let is_told = of_others.iter().any(|it| it.type_ == DISRUPTION_TARGET);
    let mut all = of_others;
    if observation.is_disruption && !is_told {
        let judgement = Judgement {
            message: Some(observation.failed_message.clone()),
            ..Judgement::holds(Some(TERMINATION_BY_KUBELET))
        };
        let old = before.iter().find(|it| it.type_ == DISRUPTION_TARGET);
        all.push(condition(DISRUPTION_TARGET, judgement, old, now));
    }
    owned.extend(of_resize(observation));
    for (type_, judgement) in owned {
        let old = before.iter().find(|condition| condition.type_ == type_);
        all.push(PodCondition {
            observed_generation: pod.metadata.generation,
            ..condition(type_, judgement, old, now)
        });
    }
    all
}

/// What is told of a resize: that it waits, that it is made.
fn of_resize(observation: &PodObservation) -> Vec<(&'static str, Judgement)> {
    let pending = observation.pending_resize.as_ref().map(|pending| {
        let reason = match pending.is_infeasible {
            true => "Infeasible",
            false => "Deferred",
        };
        let judgement = Judgement {
            message: Some(pending.message.clone()),
            ..Judgement::holds(Some(reason))
        };
        (RESIZE_PENDING, judgement)
    });
    let resize = observation.resize.as_ref().map(|resize| {
        let judgement = Judgement {
            message: Some(resize.error.clone()).filter(|error| !error.is_empty()),
            ..Judgement::holds((!resize.error.is_empty()).then_some(RESIZE_ERROR))
        };
        (RESIZE_IN_PROGRESS, judgement)
    });
    pending.into_iter().chain(resize).collect()
}

/// The condition with its last transition: unchanged while its status is.
fn condition(
    type_: &str,
    judgement: Judgement,
    old: Option<&PodCondition>,
    now: UnixNanos,
) -> PodCondition {
    let status = if judgement.holds { "True" } else { "False" };
    let unchanged = old.filter(|old| old.status == status);
    PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: judgement.reason.map(str::to_owned),
        message: judgement.message,
        last_transition_time: unchanged
            .and_then(|old| old.last_transition_time.clone())
            .or_else(|| Some(api_time(now))),
        ..PodCondition::default()
    }
}

fn phase(status: &PodStatus) -> PodPhase {
    status
        .phase
        .as_deref()
        .and_then(PodPhase::parse)
        .unwrap_or_default()
}

fn containers_ready(pod: &Pod, status: &PodStatus) -> Judgement {
    let lacking = Lacking::among(pod, status, |kind, status| match kind {
        ContainerKind::Init | ContainerKind::Ephemeral => true,
        ContainerKind::Sidecar | ContainerKind::Application => status.ready,
    });
    match phase(status) {
        PodPhase::Succeeded if lacking.unknown.is_empty() => Judgement::fails("PodCompleted", None),
        // They may still be on their way down.
        PodPhase::Failed => Judgement::fails("PodFailed", None),
        _ => match lacking.message("unready") {
            None => Judgement::holds(None),
            message => Judgement::fails("ContainersNotReady", message),
        },
    }
}

fn ready(pod: &Pod, containers_ready: &Judgement, of_others: &[PodCondition]) -> Judgement {
    if !containers_ready.holds {
        return Judgement {
            holds: false,
            reason: containers_ready.reason,
            message: containers_ready.message.clone(),
        };
    }
    let gates = pod
        .spec_or_default()
        .readiness_gates
        .as_deref()
        .unwrap_or_default();
    let complaint = |gate: &pod::core::PodReadinessGate| {
        let name = &gate.condition_type;
        match of_others.iter().find(|condition| &condition.type_ == name) {
            None => Some(format!(
                "corresponding condition of pod readiness gate {name:?} does not exist."
            )),
            Some(condition) if condition.status != "True" => Some(format!(
                "the status of pod readiness gate {name:?} is not \"True\", but {}",
                condition.status
            )),
            Some(_) => None,
        }
    };
    let complaints: Vec<String> = gates.iter().filter_map(complaint).collect();
    if complaints.is_empty() {
        Judgement::holds(None)
    } else {
        Judgement::fails("ReadinessGatesNotReady", Some(complaints.join(", ")))
    }
}

fn initialized(pod: &Pod, status: &PodStatus) -> Judgement {
    let mut of_pod = status.container_statuses.iter().flatten();
    // An ordinary container runs, or ran: a sidecar that is started again changes nothing.
    let has_begun = of_pod.any(has_left_waiting);
    let lacking = Lacking::among(pod, status, |kind, status| match kind {
        ContainerKind::Init => status.ready,
        ContainerKind::Sidecar => has_begun || status.started == Some(true),
        ContainerKind::Application | ContainerKind::Ephemeral => true,
    });
    if phase(status) == PodPhase::Succeeded && lacking.unknown.is_empty() {
        return Judgement::holds(Some("PodCompleted"));
    }
    match lacking.message("incomplete") {
        None => Judgement::holds(None),
        message => Judgement::fails("ContainersNotInitialized", message),
    }
}

/// In the kubelet's words.
fn all_containers_restarting(status: &PodStatus, observation: &PodObservation) -> Judgement {
    match phase(status) {
        PodPhase::Succeeded => return Judgement::fails("PodCompleted", None),
        PodPhase::Failed => return Judgement::fails("PodFailed", None),
        _ => {}
    }
    let is_left = |it: &ContainerObservation| it.is_of_earlier_round && may_run(it);
    match observation.containers.iter().any(is_left) {
        true => Judgement {
            message: Some("container exited with restart policy rule".to_owned()),
            ..Judgement::holds(Some(RESTART_ALL_CONTAINERS_STARTED))
        },
        false => Judgement {
            holds: false,
            reason: None,
            message: None,
        },
    }
}

/// Containers that keep a condition from holding.
struct Lacking<'a> {
    unknown: Vec<&'a str>,
    unready: Vec<&'a str>,
}

impl<'a> Lacking<'a> {
    /// Those containers that do not suffice by their status. One without any lacks where
    /// an empty status does not suffice.
    fn among(
        pod: &'a Pod,
        status: &PodStatus,
        suffices: impl Fn(ContainerKind, &ContainerStatus) -> bool,
    ) -> Lacking<'a> {
        let mut lacking = Lacking {
            unknown: Vec::new(),
            unready: Vec::new(),
        };
        let none = ContainerStatus::default();
        for (kind, container) in pod.all_containers() {
            let name = container.name.as_str();
            let statuses = match kind {
                ContainerKind::Application => &status.container_statuses,
                ContainerKind::Ephemeral => &status.ephemeral_container_statuses,
                ContainerKind::Init | ContainerKind::Sidecar => &status.init_container_statuses,
            };
            match statuses.iter().flatten().find(|status| status.name == name) {
                None if !suffices(kind, &none) => lacking.unknown.push(name),
                Some(status) if !suffices(kind, status) => lacking.unready.push(name),
                None | Some(_) => {}
            }
        }
        lacking
    }

    /// The kubelet's words, or nothing if nothing lacks.
    fn message(&self, word: &str) -> Option<String> {
        let part = |word: &str, names: &[&str]| {
            let names = names.join(" ");
            (!names.is_empty()).then(|| format!("containers with {word} status: [{names}]"))
        };
        let parts: Vec<String> = [part("unknown", &self.unknown), part(word, &self.unready)]
            .into_iter()
            .flatten()
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
