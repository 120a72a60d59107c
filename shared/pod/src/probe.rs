//! A probe on its way to the prober: its wire form, how large that may be, and the
//! ports that it needs. When a probe is tried and what its tries mean is the
//! prober's.

use crate::IntOrString;
use crate::core::{ContainerPort, ExecAction, Probe};

/// Largest probe in its wire form, in bytes: several hundred headers. All three of a
/// container travel in one message.
pub const MAX_PROBE_BYTES: usize = 16 << 10;

/// The probe as JSON without the command of an exec probe: whoever runs that has
/// the pod.
#[must_use]
pub fn wire_form(probe: &Probe) -> Vec<u8> {
    let mut probe = probe.clone();
    if probe.exec.is_some() {
        probe.exec = Some(ExecAction::default());
    }
    // String keys and finite numbers only: encoding cannot fail.
    serde_json::to_vec(&probe).unwrap_or_default()
}

/// Whether the probe goes to a host that it names, and not to its pod.
#[must_use]
pub fn names_a_host(probe: &Probe) -> bool {
    let http = probe.http_get.as_ref().and_then(|get| get.host.as_ref());
    let tcp = probe.tcp_socket.as_ref().and_then(|it| it.host.as_ref());
    http.or(tcp).is_some_and(|host| !host.is_empty())
}

/// Of a container's ports those that one of its probes names, by name and number
/// alone.
#[must_use]
pub fn ports_by_name(probes: &[&Probe], ports: &[ContainerPort]) -> Vec<ContainerPort> {
    let names: Vec<String> = probes.iter().filter_map(|probe| port_name(probe)).collect();
    let is_named = |port: &&ContainerPort| {
        let name = port.name.as_ref();
        name.is_some_and(|name| names.contains(name))
    };
    ports
        .iter()
        .filter(is_named)
        .map(|port| ContainerPort {
            name: port.name.clone(),
            container_port: port.container_port,
            ..ContainerPort::default()
        })
        .collect()
}

fn port_name(probe: &Probe) -> Option<String> {
    let http = probe.http_get.as_ref().map(|action| &action.port);
    let tcp = probe.tcp_socket.as_ref().map(|action| &action.port);
    match http.or(tcp)? {
        IntOrString::String(name) => Some(name.clone()),
        IntOrString::Int(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(json: &str) -> Probe {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_command_stays_at_home() {
        let exec = probe(r#"{"exec":{"command":["cat","/secret"]},"periodSeconds":3}"#);
        assert_eq!(wire_form(&exec), br#"{"exec":{},"periodSeconds":3}"#);
        let http = r#"{"httpGet":{"port":"web"}}"#;
        assert_eq!(wire_form(&probe(http)), http.as_bytes());
    }

    #[test]
    fn only_ports_that_a_probe_names_are_needed() {
        let ports: Vec<ContainerPort> = (1..2000)
            .map(|number| ContainerPort {
                container_port: number,
                name: (number % 2 == 0).then(|| format!("p{number}")),
                host_ip: Some("x".repeat(100)),
                ..ContainerPort::default()
            })
            .collect();
        let needed = |probes: &[&str]| -> Vec<i32> {
            let probes: Vec<Probe> = probes.iter().map(|json| probe(json)).collect();
            let probes: Vec<&Probe> = probes.iter().collect();
            let needed = ports_by_name(&probes, &ports);
            assert!(needed.iter().all(|port| port.host_ip.is_none()));
            needed.iter().map(|port| port.container_port).collect()
        };
        let named = [
            r#"{"httpGet":{"port":"p8"}}"#,
            r#"{"tcpSocket":{"port":"p4"}}"#,
        ];
        assert_eq!(needed(&named), [4, 8]);
        let others = [
            r#"{"httpGet":{"port":8}}"#,
            r#"{"tcpSocket":{"port":"none"}}"#,
            r#"{"grpc":{"port":4}}"#,
            r#"{"exec":{}}"#,
        ];
        assert_eq!(needed(&others), [0; 0]);
    }
}
