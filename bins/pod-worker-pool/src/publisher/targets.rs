//! What the prober is to probe: each instance of a container that has probes.

use std::collections::BTreeMap;

use bulkhead_api::v1;
use ipc::limits::MAX_PROBE_TARGET_BYTES;
use pod::core::{Container as ContainerSpec, ExecAction, Probe};
use pod::{Pod, PodExt};

use super::{Findings, WorkerView};
use crate::observation::{Container, ContainerState};

/// The targets of one pod, by container id.
pub(super) fn of(
    worker: &WorkerView,
    findings: &Findings,
    host_ip: &str,
) -> BTreeMap<String, v1::ProbeTarget> {
    let Some(desired) = &worker.desired else {
        return BTreeMap::new();
    };
    let Ok(pod) = desired.decode() else {
        return BTreeMap::new();
    };
    let observation = &findings.observation;
    let pod_ip = if pod.host_network() {
        Some(host_ip)
    } else {
        let ips = observation
            .current_sandbox()
            .map(|sandbox| sandbox.network.ips());
        ips.and_then(|ips| ips.first()).map(String::as_str)
    };
    let specs = pod.containers().iter().filter(|spec| has_probes(spec));
    specs
        .filter_map(|spec| {
            let container = observation.newest(&spec.name)?;
            let target = target(worker, &pod, spec, container, pod_ip.unwrap_or_default());
            if prost::Message::encoded_len(&target) > MAX_PROBE_TARGET_BYTES {
                tracing::warn!(pod = %worker.identity, container = spec.name, "probes are too large");
                return None;
            }
            Some((container.id.clone(), target))
        })
        .collect()
}

fn has_probes(spec: &ContainerSpec) -> bool {
    spec.liveness_probe.is_some() || spec.readiness_probe.is_some() || spec.startup_probe.is_some()
}

fn target(
    worker: &WorkerView,
    pod: &Pod,
    spec: &ContainerSpec,
    container: &Container,
    pod_ip: &str,
) -> v1::ProbeTarget {
    let started_at = match &container.state {
        ContainerState::Running { started_at } => started_at.0,
        ContainerState::Exited(exit) => exit.started_at.0,
        ContainerState::Created | ContainerState::Interrupted(_) | ContainerState::Unknown => 0,
    };
    v1::ProbeTarget {
        pod: Some((&worker.identity).into()),
        container_name: spec.name.clone(),
        container_id: container.id.clone(),
        pod_ip: pod_ip.to_owned(),
        started_at_unix_nanos: started_at,
        liveness_json: probe_json(spec.liveness_probe.as_ref()),
        readiness_json: probe_json(spec.readiness_probe.as_ref()),
        startup_json: probe_json(spec.startup_probe.as_ref()),
        ports_json: json(&spec.ports),
        terminating: worker.termination.is_some() || pod.is_marked_for_deletion(),
        running: container.state.is_running(),
        last_verdicts: worker
            .verdicts
            .iter()
            .filter(|verdict| verdict.container_id == container.id)
            .cloned()
            .collect(),
    }
}

/// A probe as JSON, without the command of an exec probe.
fn probe_json(probe: Option<&Probe>) -> Vec<u8> {
    let Some(probe) = probe else {
        return Vec::new();
    };
    let mut probe = probe.clone();
    if probe.exec.is_some() {
        probe.exec = Some(ExecAction::default());
    }
    json(&Some(probe))
}

/// These types have string keys and finite numbers: encoding cannot fail.
fn json<T: serde::Serialize>(value: &Option<T>) -> Vec<u8> {
    value
        .as_ref()
        .and_then(|value| serde_json::to_vec(value).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ipc::limits::MAX_PROBE_TARGET_MESSAGE_BYTES;
    use prost::Message;
    use v1::watch_probe_targets_response::Message as Response;

    use super::*;

    #[test]
    fn the_largest_target_fits_its_message() {
        let mut target = v1::ProbeTarget::default();
        while target.encoded_len() < MAX_PROBE_TARGET_BYTES {
            target.liveness_json.push(b' ');
        }
        let response = v1::WatchProbeTargetsResponse {
            boot_id: "0".repeat(36),
            message: Some(Response::Target(target)),
        };
        assert!(response.encoded_len() <= MAX_PROBE_TARGET_MESSAGE_BYTES);
    }
}
