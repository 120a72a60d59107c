//! Ports of the node that pods use.

use std::collections::HashSet;
use std::fmt;

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

/// As people write it: `8080/TCP`, `127.0.0.1:53/UDP`.
impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostPort { ip, protocol, port } = self;
        match ip.as_str() {
            ANY_IP => write!(formatter, "{port}/{protocol}"),
            ip if ip.contains(':') => write!(formatter, "[{ip}]:{port}/{protocol}"),
            ip => write!(formatter, "{ip}:{port}/{protocol}"),
        }
    }
}

/// A protocol and the number of a port.
type Number<'a> = (&'a str, i32);

impl HostPort {
    fn number(&self) -> Number<'_> {
        (&self.protocol, self.port)
    }
}

/// Ports of a pod, to be compared with those of others. Pods may have thousands each, so
/// none is compared with each of the others.
#[derive(Debug, Default)]
pub(crate) struct PortSet<'a> {
    numbers: HashSet<Number<'a>>,
    /// Of those, the ones at all addresses.
    everywhere: HashSet<Number<'a>>,
    /// And the ones at one address.
    at: HashSet<(Number<'a>, &'a str)>,
}

impl<'a> PortSet<'a> {
    pub(crate) fn new(ports: &'a [HostPort]) -> PortSet<'a> {
        let mut set = PortSet::default();
        for port in ports {
            set.numbers.insert(port.number());
            if port.ip == ANY_IP {
                set.everywhere.insert(port.number());
            } else {
                set.at.insert((port.number(), &port.ip));
            }
        }
        set
    }

    /// Whether a port and one of these cannot be used at once.
    #[must_use]
    pub(crate) fn conflicts_with(&self, port: &HostPort) -> bool {
        let number = port.number();
        match port.ip == ANY_IP {
            true => self.numbers.contains(&number),
            false => self.everywhere.contains(&number) || self.at.contains(&(number, &port.ip)),
        }
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
