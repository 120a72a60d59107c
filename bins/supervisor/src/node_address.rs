//! The node's address: what `--node-ip` says, else that of the interface with the default
//! route, else the first one that can be a node's.

use std::net::{IpAddr, Ipv4Addr};

use nix::ifaddrs::getifaddrs;

/// What `--node-ip` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The one that is found; of two, that of this family.
    Found {
        /// Whether IPv6 comes before IPv4.
        ipv6_first: bool,
    },
    /// This one.
    Given(IpAddr),
    /// This one, the first of a pair: a node has one address here.
    FirstOfPair(IpAddr),
}

/// What a flag asks for, as a kubelet takes it: `0.0.0.0` and `::` name a family, a pair has
/// one of each, and empty text is no flag.
///
/// # Errors
/// Why it cannot be.
pub(crate) fn wanted(flag: Option<&str>) -> Result<Wanted, &'static str> {
    let text = flag.unwrap_or_default();
    if text.is_empty() {
        return Ok(Wanted::Found { ipv6_first: false });
    }
    let parsed = text.split(',').map(|one| one.trim().parse::<IpAddr>());
    let addresses: Vec<IpAddr> = parsed
        .map(|parsed| parsed.map(|address| address.to_canonical()))
        .collect::<Result<_, _>>()
        .map_err(|_error| "this is no address")?;
    if let [family] = addresses[..]
        && family.is_unspecified()
    {
        let ipv6_first = family.is_ipv6();
        return Ok(Wanted::Found { ipv6_first });
    }
    if !addresses.iter().all(|address| is_node_address(*address)) {
        return Err(
            "a node has no address of loopback, multicast or one link, and a pair no 0.0.0.0 or ::",
        );
    }
    match addresses[..] {
        [address] => Ok(Wanted::Given(address)),
        [first, second] if first.is_ipv4() != second.is_ipv4() => Ok(Wanted::FirstOfPair(first)),
        _ => Err("give one address, or one of each family"),
    }
}

/// Looks the node's address up; `None` on a machine without any usable one.
pub(crate) fn find(ipv6_first: bool) -> Option<IpAddr> {
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let ipv6_routes = std::fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    let defaults = Defaults {
        ipv4: default_interface(&routes),
        ipv6: default_ipv6_interface(&ipv6_routes),
    };
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
    choose(defaults, ipv6_first, &addresses)
}

/// The interfaces of the default routes.
#[derive(Clone, Copy, Debug, Default)]
struct Defaults<'a> {
    ipv4: Option<&'a str>,
    ipv6: Option<&'a str>,
}

/// Those of the default routes' interfaces before the others, then the wished family.
fn choose(
    defaults: Defaults<'_>,
    ipv6_first: bool,
    addresses: &[(String, IpAddr)],
) -> Option<IpAddr> {
    addresses
        .iter()
        .filter(|(_name, address)| is_node_address(*address))
        .min_by_key(|(name, address)| {
            let default = match address {
                IpAddr::V4(_) => defaults.ipv4,
                IpAddr::V6(_) => defaults.ipv6,
            };
            (default != Some(name), address.is_ipv6() != ipv6_first)
        })
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

/// The same in the text of `/proc/net/ipv6_route`. The kernel keeps routes there that lead
/// nowhere, on the loopback interface.
fn default_ipv6_interface(routes: &str) -> Option<&str> {
    routes
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [target, "00", _, _, _, metric, _, _, _, name] = fields[..] else {
                return None;
            };
            let is_default = target.bytes().all(|digit| digit == b'0') && name != "lo";
            let metric = u32::from_str_radix(metric, 16).ok()?;
            is_default.then_some((metric, name))
        })
        .min_by_key(|(metric, _name)| *metric)
        .map(|(_metric, name)| name)
}

/// Whether an address can be a node's.
fn is_node_address(address: IpAddr) -> bool {
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

    /// As a machine with two interfaces and one without IPv6 have it.
    const IPV6_ROUTES: &str = "\
        20010db8000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth1\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 wlan0\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000064 00000001 00000000 00000003 eth0\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 00000001 00000001 00000000 00200200 lo\n";

    #[test]
    fn the_default_route_of_ipv6_is_one_that_leads_somewhere() {
        assert_eq!(default_ipv6_interface(IPV6_ROUTES), Some("eth0"));
        let nowhere = IPV6_ROUTES.lines().last().unwrap();
        assert_eq!(default_ipv6_interface(nowhere), None);
        assert_eq!(default_ipv6_interface("broken line"), None);
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn on(name: &str, text: &str) -> (String, IpAddr) {
        (name.to_owned(), address(text))
    }

    #[test]
    fn the_address_is_of_the_default_interface_and_usable() {
        let addresses = [
            on("lo", "127.0.0.1"),
            on("eth1", "192.0.2.1"),
            on("eth0", "fe80::1"),
            on("eth0", "2001:db8::1"),
            on("eth0", "192.0.2.2"),
        ];
        let ipv4 = Defaults {
            ipv4: Some("eth0"),
            ipv6: None,
        };
        let choose = |defaults, addresses| choose(defaults, false, addresses);
        assert_eq!(choose(ipv4, &addresses), Some(address("192.0.2.2")));
        let none = Defaults::default();
        assert_eq!(choose(none, &addresses), Some(address("192.0.2.1")));
        assert_eq!(choose(none, &addresses[..1]), None);
        // On a node of IPv6 alone, that of a bridge is not the node's.
        let ipv6 = Defaults {
            ipv4: None,
            ipv6: Some("eth0"),
        };
        assert_eq!(choose(ipv6, &addresses), Some(address("2001:db8::1")));
    }

    #[test]
    fn an_address_that_names_a_family_asks_for_the_nodes_own_of_it() {
        let both = [on("eth0", "192.0.2.1"), on("eth0", "2001:db8::1")];
        let everywhere = Defaults {
            ipv4: Some("eth0"),
            ipv6: Some("eth0"),
        };
        for defaults in [everywhere, Defaults::default()] {
            for (flag, expected) in [
                (None, "192.0.2.1"),
                (Some(""), "192.0.2.1"),
                (Some("0.0.0.0"), "192.0.2.1"),
                (Some("::"), "2001:db8::1"),
            ] {
                let Ok(Wanted::Found { ipv6_first }) = wanted(flag) else {
                    panic!("{flag:?}");
                };
                let chosen = choose(defaults, ipv6_first, &both);
                assert_eq!(chosen, Some(address(expected)), "{flag:?}");
            }
            // Only a preference.
            let chosen = choose(defaults, true, &both[..1]);
            assert_eq!(chosen, Some(address("192.0.2.1")));
        }
    }

    #[test]
    fn an_address_that_is_given_can_be_a_nodes() {
        let given = |text| Ok(Wanted::Given(address(text)));
        assert_eq!(wanted(Some("192.0.2.1")), given("192.0.2.1"));
        assert_eq!(wanted(Some("::ffff:192.0.2.1")), given("192.0.2.1"));
        assert_eq!(wanted(Some("fd00::1")), given("fd00::1"));
        for (pair, first) in [
            ("10.0.0.1,fd00::1", "10.0.0.1"),
            ("fd00::1, 10.0.0.1", "fd00::1"),
        ] {
            let first = Wanted::FirstOfPair(address(first));
            assert_eq!(wanted(Some(pair)), Ok(first), "{pair}");
        }
        for flag in [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "224.0.0.1",
            "ff02::1",
            "169.254.1.1",
            "fe80::1",
            "node.example.org",
            "10.0.0.1/24",
            ",",
            "10.0.0.1,",
            "10.0.0.1,10.0.0.2",
            "0.0.0.0,::",
            "10.0.0.1,::",
            "10.0.0.1,fd00::1,fd00::2",
        ] {
            assert!(wanted(Some(flag)).is_err(), "{flag}");
        }
    }
}
