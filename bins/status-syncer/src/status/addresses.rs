//! Addresses of the pod and of its node.

use std::net::IpAddr;

use bulkhead_api::v1::PodObservation;
use pod::core::{HostIP, Pod, PodIP, PodStatus};
use pod::{PodExt, addresses};

/// Sets `hostIP(s)` and `podIP(s)`.
pub(super) fn set_addresses(
    pod: &Pod,
    observation: &PodObservation,
    base: Option<&PodStatus>,
    status: &mut PodStatus,
) {
    let host: Option<IpAddr> = observation.host_ip.parse().ok();
    status.host_ip = host.map(|ip| ip.to_string());
    status.host_ips = host.map(|ip| vec![HostIP { ip: ip.to_string() }]);
    if host.is_none()
        && let Some(base) = base
    {
        status.host_ip.clone_from(&base.host_ip);
        status.host_ips.clone_from(&base.host_ips);
    }

    let mut ips = sandbox_ips(observation, host).unwrap_or_else(|| published_ips(base));
    if ips.is_empty() && pod.host_network() {
        ips.extend(status.host_ip.clone());
    }
    status.pod_ip = ips.first().cloned();
    status.pod_ips = (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect());
}

/// The addresses that the sandboxes tell, the node's own family first; `None`
/// when no sandbox is ready and none tells any: a pod that ended keeps what it
/// had.
fn sandbox_ips(observation: &PodObservation, host: Option<IpAddr>) -> Option<Vec<String>> {
    let ready = observation.sandboxes.iter().find(|sandbox| sandbox.ready);
    let sandbox = match ready {
        Some(ready) => ready,
        None => observation
            .sandboxes
            .iter()
            .find(|sandbox| !sandbox.ips.is_empty())?,
    };
    let told = sandbox.ips.iter().filter_map(|ip| ip.parse().ok());
    let ips = addresses::pod_ips(told, host);
    Some(ips.iter().map(IpAddr::to_string).collect())
}

fn published_ips(base: Option<&PodStatus>) -> Vec<String> {
    let Some(base) = base else { return Vec::new() };
    match &base.pod_ips {
        Some(ips) => ips.iter().map(|ip| ip.ip.clone()).collect(),
        None => base.pod_ip.clone().into_iter().collect(),
    }
}
