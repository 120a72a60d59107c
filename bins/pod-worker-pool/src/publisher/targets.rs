//! What the prober is to probe: each instance of a container that has probes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bulkhead_api::v1;
use ipc::limits::MAX_PROBE_TARGET_BYTES;
use pod::accessors::ContainerKind;
use pod::core::{Container as ContainerSpec, Probe};
use pod::{Pod, PodExt, addresses, probe};
use pod_lifecycle::observation::{Container, ContainerState};

use super::findings::{Findings, WorkerView};

/// Where pods in the node's network are probed, and their hooks go, while the node has no
/// address. A kubelet dials no host then, which leads to the same.
pub(crate) const LOOPBACK: &str = "127.0.0.1";

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
        // A node may be up before its network: a pod that shares it answers here.
        let node = Some(host_ip).filter(|ip| !ip.is_empty());
        node.unwrap_or(LOOPBACK).to_owned()
    } else {
        let sandbox = observation.current_sandbox();
        let told = sandbox.map_or(&[][..], |sandbox| sandbox.network.ips());
        let told = told.iter().filter_map(|ip| ip.parse().ok());
        let ips = addresses::pod_ips(told, host_ip.parse().ok());
        ips.first().map(ToString::to_string).unwrap_or_default()
    };
    let specs = pod.all_containers();
    specs
        .filter(|(kind, spec)| *kind != ContainerKind::Init && !probes(spec).is_empty())
        .filter_map(|(_, spec)| {
            let container = observation.newest(&spec.name)?;
            let is_in_post_start = findings.in_post_start.contains(&container.id);
            let spec = &permitted(spec, findings.is_refused);
            let target = target(worker, &pod, spec, container, &pod_ip, is_in_post_start);
            if prost::Message::encoded_len(&target) > MAX_PROBE_TARGET_BYTES {
                tracing::warn!(pod = %worker.identity, container = spec.name, "probes are too large");
                return None;
            }
            Some((container.id.clone(), target))
        })
        .collect()
}

/// The container without the probes that it may not have while the node policy refuses its
/// pod: those to hosts that they name; and without its liveness probe, since nothing is stopped
/// then for what it says, and that would be a stale reason once the policy permits the pod. The
/// prober goes on with all others, for a pod that is refused may run on.
fn permitted(spec: &ContainerSpec, is_refused: bool) -> Cow<'_, ContainerSpec> {
    if !is_refused {
        return Cow::Borrowed(spec);
    }
    let mut spec = spec.clone();
    spec.liveness_probe = None;
    for probe in [&mut spec.readiness_probe, &mut spec.startup_probe] {
        probe.take_if(|probe| probe::names_a_host(probe));
    }
    Cow::Owned(spec)
}

fn probes(spec: &ContainerSpec) -> Vec<&Probe> {
    let all = [
        &spec.liveness_probe,
        &spec.readiness_probe,
        &spec.startup_probe,
    ];
    all.into_iter().flatten().collect()
}

fn target(
    worker: &WorkerView,
    pod: &Pod,
    spec: &ContainerSpec,
    container: &Container,
    pod_ip: &str,
    is_in_post_start: bool,
) -> v1::ProbeTarget {
    let started_at = match &container.state {
        ContainerState::Running { started_at } => started_at.0,
        ContainerState::Exited(exit) => exit.started_at.0,
        ContainerState::Created | ContainerState::StartAbandoned(_) | ContainerState::Unknown => 0,
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
        ports_json: ports_json(spec),
        terminating: worker.termination.is_some() || pod.is_marked_for_deletion(),
        // As in the kubelet, it is not probed before its postStart hook has ended.
        running: container.state.is_running() && !is_in_post_start,
    }
}

fn probe_json(probe: Option<&Probe>) -> Vec<u8> {
    probe.map(probe::wire_form).unwrap_or_default()
}

/// The ports that probes name; a container may have thousands of others.
fn ports_json(spec: &ContainerSpec) -> Vec<u8> {
    let ports = spec.ports.as_deref().unwrap_or_default();
    let needed = probe::ports_by_name(&probes(spec), ports);
    // String keys and finite numbers only: encoding cannot fail.
    serde_json::to_vec(&needed).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ipc::limits::{
        MAX_CONTAINER_ID_BYTES, MAX_CONTAINER_NAME_BYTES, MAX_PROBE_TARGET_MESSAGE_BYTES,
    };
    use pod::probe::MAX_PROBE_BYTES;
    use prost::Message;
    use v1::watch_probe_targets_response::Message as Response;

    use super::*;

    #[test]
    fn the_largest_probes_with_all_that_is_beside_them_fit_a_target() {
        let text = |length: usize| "x".repeat(length);
        let target = v1::ProbeTarget {
            container_name: text(MAX_CONTAINER_NAME_BYTES),
            container_id: text(MAX_CONTAINER_ID_BYTES),
            liveness_json: vec![b' '; MAX_PROBE_BYTES],
            readiness_json: vec![b' '; MAX_PROBE_BYTES],
            startup_json: vec![b' '; MAX_PROBE_BYTES],
            ..v1::ProbeTarget::default()
        };
        // What is not counted here: three ports, and the pod's reference.
        assert!(target.encoded_len() + (4 << 10) <= MAX_PROBE_TARGET_BYTES);
    }

    #[test]
    fn the_largest_target_fits_its_message() {
        let mut target = v1::ProbeTarget::default();
        while target.encoded_len() < MAX_PROBE_TARGET_BYTES {
            target.liveness_json.push(b' ');
        }
        let response = v1::WatchProbeTargetsResponse {
            message: Some(Response::Target(target)),
        };
        assert!(response.encoded_len() <= MAX_PROBE_TARGET_MESSAGE_BYTES);
    }
}
