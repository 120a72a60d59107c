//! Ports of the node that pods use.

use pod::{Pod, PodExt};

/// The address that stands for all addresses.
const ANY_IP: &str = "0.0.0.0";
const TCP: &str = "TCP";

/// A port of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    ip: String,
    protocol: String,
    port: i32,
}

impl HostPort {
    /// Whether both cannot be used at once.
    #[must_use]
    pub(crate) fn conflicts_with(&self, other: &HostPort) -> bool {
        let same_address = self.ip == other.ip || self.ip == ANY_IP || other.ip == ANY_IP;
        same_address && self.protocol == other.protocol && self.port == other.port
    }
}

/// The ports of the node that a pod uses, those of sidecars included. In the
/// node's network a container's port is the node's.
#[must_use]
pub(crate) fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let long_running = pod
        .all_containers()
        .filter(|(kind, _)| *kind != pod::accessors::ContainerKind::Init);
    let ports = long_running.flat_map(|(_, container)| container.ports.iter().flatten());
    let host_network = pod.host_network();
    ports
        .filter_map(|port| {
            let own = host_network.then_some(port.container_port);
            let number = port.host_port.filter(|number| *number > 0).or(own)?;
            let ip = port.host_ip.as_deref().filter(|ip| !ip.is_empty());
            Some(HostPort {
                ip: ip.unwrap_or(ANY_IP).to_owned(),
                protocol: port.protocol.as_deref().unwrap_or(TCP).to_owned(),
                port: number,
            })
        })
        .collect()
}
