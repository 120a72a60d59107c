//! Addresses of pods.

use std::net::IpAddr;

/// A pod's addresses as the API has them: one of each family, that of the node's own first. A
/// network plugin may tell more, in any order. With a node without an address IPv4 is first.
#[must_use]
pub fn pod_ips(told: impl IntoIterator<Item = IpAddr>, node: Option<IpAddr>) -> Vec<IpAddr> {
    let told: Vec<IpAddr> = told.into_iter().collect();
    let is_first_v6 = node.is_some_and(|ip| ip.is_ipv6());
    let families = [is_first_v6, !is_first_v6].into_iter();
    families
        .filter_map(|is_v6| told.iter().find(|ip| ip.is_ipv6() == is_v6).copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_of_each_family_is_left_the_nodes_first() {
        let told = ["fd00::5", "10.0.0.5", "fd00::6", "10.0.0.6"];
        for (told, node, expected) in [
            (&told[..], "10.0.0.1", &["10.0.0.5", "fd00::5"][..]),
            (&told, "fd00::1", &["fd00::5", "10.0.0.5"]),
            (&told, "", &["10.0.0.5", "fd00::5"]),
            (&told[..1], "10.0.0.1", &["fd00::5"]),
            (&[], "10.0.0.1", &[]),
        ] {
            let told = told.iter().map(|ip| ip.parse().unwrap());
            let ips = pod_ips(told, node.parse().ok());
            let ips: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
            assert_eq!(ips, expected, "{node}");
        }
    }
}
