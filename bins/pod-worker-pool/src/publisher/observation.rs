//! The message that tells of one pod.

use std::collections::{BTreeMap, BTreeSet};

use bulkhead_api::v1;
use clock::UnixNanos;
use pod::{Pod, PodExt, ephemeral};
use pod_lifecycle::observation::{Container, ContainerState, Observation, Sandbox};
use pod_lifecycle::{DesiredPod, plan};

use super::findings::{Findings, Waiting, WorkerView};

/// Containers of one pod that are told of: two instances of as many containers as
/// any pod has, and what a runaway left.
const MAX_CONTAINERS: usize = 500;

/// Why each container that does not run waits: what its last start came to, a
/// back-off, or that its turn has not come.
#[must_use]
pub(crate) fn waiting(
    pod: &Pod,
    observation: &Observation,
    reasons: &BTreeMap<String, (String, String)>,
) -> Vec<Waiting> {
    let not_yet = if pod.init_containers().is_empty() {
        "ContainerCreating"
    } else {
        "PodInitializing"
    };
    let left: BTreeSet<&str> = plan::left_of_earlier(pod, observation)
        .map(|container| container.id.as_str())
        .collect();
    let names = pod.all_containers().map(|(_, spec)| &spec.name);
    names
        .chain(ephemeral::listed(pod).iter().map(|it| &it.name))
        .filter_map(|name| {
            let newest = observation.newest(name);
            if newest.is_some_and(|container| container.state.may_run()) {
                return None;
            }
            let waits = |reason: &str, message: &str| {
                Some(Waiting {
                    name: name.clone(),
                    reason: reason.to_owned(),
                    message: message.to_owned(),
                })
            };
            if let Some((reason, message)) = reasons.get(name) {
                return waits(reason, message);
            }
            let has_ended = newest.is_some_and(|it| it.state.exit().is_some());
            let is_left = newest.is_some_and(|it| left.contains(it.id.as_str()));
            if has_ended && !is_left {
                return None;
            }
            waits(not_yet, "")
        })
        .collect()
}

/// The pod's own first: its address is the pod's.
fn sandboxes(observation: &Observation) -> Vec<v1::SandboxObservation> {
    let own = observation.current_sandbox().map(|sandbox| &sandbox.id);
    let mut sandboxes: Vec<&Sandbox> = observation.sandboxes.iter().collect();
    sandboxes.sort_by_key(|sandbox| Some(&sandbox.id) != own);
    let message = |sandbox: &Sandbox| v1::SandboxObservation {
        id: sandbox.id.clone(),
        ready: sandbox.ready,
        created_at_unix_nanos: sandbox.created_at.0,
        ips: sandbox.network.ips().to_vec(),
    };
    sandboxes.into_iter().map(message).collect()
}

pub(super) fn message(
    worker: &WorkerView,
    findings: &Findings,
    host_ip: &str,
) -> v1::PodObservation {
    let termination = worker.termination.as_ref();
    let failure = termination.and_then(|termination| termination.cause.failure());
    let (failed_reason, failed_message) = failure.unwrap_or_default();
    let document = worker.desired.as_ref().map(DesiredPod::document);
    let grace = termination.and_then(|termination| termination.grace);
    v1::PodObservation {
        pod: Some((&worker.identity).into()),
        source: document.map_or_else(String::new, |it| it.source().as_str().to_owned()),
        hash: document.map_or_else(String::new, |it| it.hash().to_owned()),
        phase: worker.phase.into(),
        sandboxes: sandboxes(&findings.observation),
        containers: findings
            .observation
            .containers
            .iter()
            .take(MAX_CONTAINERS)
            .map(|it| container(it, findings))
            .collect(),
        waiting: findings
            .waiting
            .iter()
            .map(|waiting| v1::ContainerWaiting {
                name: waiting.name.clone(),
                reason: waiting.reason.clone(),
                message: waiting.message.clone(),
            })
            .collect(),
        termination_requested_at_unix_nanos: termination.map_or(0, |it| it.requested_at.0),
        termination_grace_period_seconds: grace
            .and_then(|grace| i64::try_from(grace.as_secs()).ok())
            .unwrap_or(0),
        failed_reason: failed_reason.to_owned(),
        failed_message: failed_message.to_owned(),
        sync_error: findings.sync_error.clone(),
        last_plan: findings.last_plan.clone(),
        is_observed: findings.is_observed,
        terminal: termination.is_some_and(|termination| termination.cause.is_terminal()),
        host_ip: host_ip.to_owned(),
        resize: findings
            .resize
            .clone()
            .map(|error| v1::ResizeObservation { error }),
        pending_resize: worker.pending_resize.clone(),
        is_disruption: termination.is_some_and(|it| it.cause.is_disruption()),
        runtime_name: String::new(),
    }
}

fn container(container: &Container, findings: &Findings) -> v1::ContainerObservation {
    let state = match &container.state {
        // As in the kubelet, it counts as started when its postStart hook has ended.
        _ if findings.in_post_start.contains(&container.id) => v1::RuntimeState::Created,
        // One that never ran is told of as not started yet: it is about to be.
        ContainerState::Created | ContainerState::StartAbandoned(_) => v1::RuntimeState::Created,
        ContainerState::Running { .. } => v1::RuntimeState::Running,
        ContainerState::Exited(_) => v1::RuntimeState::Exited,
        ContainerState::Unknown => v1::RuntimeState::Unknown,
    };
    let exit = container.state.exit();
    let started_at = match &container.state {
        ContainerState::Running { started_at } => *started_at,
        _ => exit.map_or(UnixNanos(0), |exit| exit.started_at),
    };
    v1::ContainerObservation {
        name: container.name.clone(),
        id: container.id.clone(),
        state: state.into(),
        created_at_unix_nanos: container.created_at.0,
        started_at_unix_nanos: started_at.0,
        finished_at_unix_nanos: exit.map_or(0, |exit| exit.finished_at.0),
        exit_code: exit.map_or(0, |exit| exit.exit_code),
        reason: exit.map_or_else(String::new, |exit| exit.reason.clone()),
        message: exit.map_or_else(String::new, |exit| exit.message.clone()),
        restart_count: container.restart_count,
        image: container.image.clone(),
        image_id: container.image_id.clone(),
        stop_signal: container.stop_signal.unwrap_or_default().to_owned(),
        user: container.user.as_ref().map(|user| v1::ContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: user.groups.iter().flat_map(|it| it.to_le_bytes()).collect(),
        }),
        is_recursively_read_only: container.is_recursively_read_only,
        is_of_earlier_round: findings.left_of_earlier.contains(&container.id),
        is_restarted_after_kill: findings.restarted_after_kill.contains(&container.id),
        resources: findings
            .resources
            .get(&container.id)
            .map(|resources| v1::InstanceResources {
                cpu_request_millis: resources.cpu_request_millis,
                cpu_limit_millis: resources.cpu_limit_millis,
                memory_limit_bytes: resources.memory_limit_bytes,
            }),
    }
}
