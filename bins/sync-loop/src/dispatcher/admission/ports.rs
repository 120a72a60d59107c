//! Ports of the node: no two pods can have the same.

use super::rejection::Rejection;
use crate::dispatcher::host_ports::PortSet;
use crate::dispatcher::pod_facts::PodFacts;

/// Ports that a message names, each with the pod that has it.
const MAX_NAMED: usize = 5;

/// Refuses a pod one of whose ports another pod uses.
pub(super) fn check(pod: &PodFacts, others: &[&PodFacts]) -> Result<(), Rejection> {
    if pod.host_ports.is_empty() {
        return Ok(());
    }
    let wanted = PortSet::new(&pod.host_ports);
    let taken = others.iter().flat_map(|other| {
        let ports = other.host_ports.iter();
        ports.map(|port| (port, &other.full_name))
    });
    let mut conflicts = taken.filter(|(port, _)| wanted.conflicts_with(port));
    let named: Vec<String> = conflicts
        .by_ref()
        .take(MAX_NAMED)
        .map(|(port, pod)| format!("{port} is that of {pod}"))
        .collect();
    if named.is_empty() {
        return Ok(());
    }
    let more = match conflicts.count() {
        0 => String::new(),
        more => format!(", and {more} more are taken"),
    };
    let description = format!(
        "node(s) didn't have free ports for the requested pod ports: {}{more}",
        named.join(", ")
    );
    Err(Rejection::predicate("NodePorts", &description))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_port_that_is_taken_is_named_with_the_pod_that_has_it() {
        let using = |name: &str, ports: &[(&str, i32)]| {
            let port = |(ip, number): &(&str, i32)| json!({"containerPort": 1, "hostPort": number, "hostIP": ip});
            let ports: Vec<Value> = ports.iter().map(port).collect();
            let pod = json!({
                "metadata": {"name": name, "namespace": "d", "uid": name},
                "spec": {"containers": [{"name": "c", "ports": ports}]},
            });
            PodFacts::of(&serde_json::from_value(pod).unwrap())
        };
        let all = (1..=8).map(|number| ("", number)).collect::<Vec<_>>();
        let others = [
            using("web", &[("", 80), ("127.0.0.1", 53)]),
            using("six", &[("fd00::1", 6)]),
            using("all", &all),
        ];
        let others: Vec<&PodFacts> = others.iter().collect();
        for (wanted, named) in [
            (&[("", 80)][..], "80/TCP is that of d/web"),
            (&[("127.0.0.1", 80)], "80/TCP is that of d/web"),
            (
                &[("", 53), ("", 80)],
                "80/TCP is that of d/web, 127.0.0.1:53/TCP is that of d/web",
            ),
            (
                &[("fd00::1", 6)],
                "[fd00::1]:6/TCP is that of d/six, 6/TCP is that of d/all",
            ),
            (
                &all,
                "[fd00::1]:6/TCP is that of d/six, 1/TCP is that of d/all, 2/TCP is that of d/all, \
                 3/TCP is that of d/all, 4/TCP is that of d/all, and 4 more are taken",
            ),
        ] {
            let wanted = using("p", wanted);
            let refused = check(&wanted, &others);
            let text = "Predicate NodePorts failed: node(s) didn't have free ports for the requested \
                        pod ports";
            assert_eq!(refused.unwrap_err().message, format!("{text}: {named}"));
        }
    }
}
