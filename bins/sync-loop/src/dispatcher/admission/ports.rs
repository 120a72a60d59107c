//! Ports of the node: no two pods can have the same.

use super::rejection::Rejection;
use crate::dispatcher::host_ports::PortSet;
use crate::dispatcher::pod_facts::PodFacts;

/// Refuses a pod one of whose ports another pod uses.
pub(super) fn check(pod: &PodFacts, others: &[&PodFacts]) -> Result<(), Rejection> {
    if pod.host_ports.is_empty() {
        return Ok(());
    }
    let wanted = PortSet::new(&pod.host_ports);
    let mut taken = others.iter().flat_map(|other| &other.host_ports);
    if taken.any(|port| wanted.conflicts_with(port)) {
        return Err(Rejection::predicate(
            "NodePorts",
            "node(s) didn't have free ports for the requested pod ports",
        ));
    }
    Ok(())
}
