//! The node's address where none was given: that of the interface with the
//! default route, else the first one that can be a node's.

use std::net::{IpAddr, Ipv4Addr};

use nix::ifaddrs::getifaddrs;

/// Looks it up; `None` on a machine without any usable address.
pub(crate) fn find() -> Option<IpAddr> {
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let addresses: Vec<(String, IpAddr)> = getifaddrs()
        .into_iter()
        .flatten()
        .filter_map(|interface| {
            let address = interface.address?;
            let address = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(address), _) => IpAddr::V4(address.ip()),
                (None, Some(address)) => IpAddr::V6(address.ip()),
                (None, None) => return None,
            };
            Some((interface.interface_name, address))
        })
        .collect();
    choose(default_interface(&routes), &addresses)
}

/// IPv4 before IPv6, the default route's interface before the others.
fn choose(default: Option<&str>, addresses: &[(String, IpAddr)]) -> Option<IpAddr> {
    addresses
        .iter()
        .filter(|(_name, address)| is_node_address(*address))
        .min_by_key(|(name, address)| (default != Some(name), address.is_ipv6()))
        .map(|(_name, address)| *address)
}

/// The interface of the default route with the lowest metric in the text of
/// `/proc/net/route`.
fn default_interface(routes: &str) -> Option<&str> {
    routes
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| {
                fields
                    .get(index)
                    .and_then(|field| u32::from_str_radix(field, 16).ok())
            };
            let is_default = |value: u32| Ipv4Addr::from_bits(value).is_unspecified();
            let default = number(1).is_some_and(is_default) && number(7).is_some_and(is_default);
            let metric: u32 = fields.get(6)?.parse().ok()?;
            default.then_some((metric, *fields.first()?))
        })
        .min_by_key(|(metric, _name)| *metric)
        .map(|(_metric, name)| name)
}

/// Whether an address can be a node's.
pub(crate) fn is_node_address(address: IpAddr) -> bool {
    !address.is_loopback()
        && !address.is_unspecified()
        && !address.is_multicast()
        && match address {
            IpAddr::V4(address) => !address.is_link_local(),
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
        wlan0\t00000000\t0100A8C0\t0003\t0\t0\t600\t00000000\t0\n\
        eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\n\
        eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n";

    #[test]
    fn the_default_route_with_the_lowest_metric_wins() {
        assert_eq!(default_interface(ROUTES), Some("eth0"));
        assert_eq!(default_interface(""), None);
        assert_eq!(default_interface("header\nbroken line"), None);
    }

    #[test]
    fn the_address_is_of_the_default_interface_and_usable() {
        let address = |text: &str| -> IpAddr { text.parse().unwrap() };
        let found = |name: &str, text: &str| (name.to_owned(), address(text));
        let addresses = [
            found("lo", "127.0.0.1"),
            found("eth1", "192.0.2.1"),
            found("eth0", "fe80::1"),
            found("eth0", "2001:db8::1"),
            found("eth0", "192.0.2.2"),
        ];
        assert_eq!(choose(Some("eth0"), &addresses), Some(address("192.0.2.2")));
        assert_eq!(choose(None, &addresses), Some(address("192.0.2.1")));
        assert_eq!(choose(None, &addresses[..1]), None);
    }
}
