//! Addresses that no process connects to because somebody else says so: the writer of a
//! pod names the `host` of a probe, and a server names where its redirect leads. Both are
//! outside of the node's surroundings, and the process that connects is inside.
//!
//! Refused are link-local addresses and the other addresses of metadata services, where
//! clouds keep their credentials, and multicast and broadcast addresses, which are no
//! hosts; each also where an IPv6 address stands for it. Everything else is allowed,
//! loopback included: pods of the host network are probed there.
//!
//! Who calls this judges the address that is connected to, never a name.
//!
//! [`refused_networks`] says the same for a filter outside of the process, as far as
//! prefixes can.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why nobody connects to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Most metadata services are at one.
    #[error("link-local addresses are not connected to")]
    LinkLocal,
    /// A metadata service that is not at a link-local address.
    #[error("addresses of metadata services are not connected to")]
    Metadata,
    /// No host has this address.
    #[error("multicast and broadcast addresses are not connected to")]
    NoHost,
}

/// Metadata services of clouds, where they are not at a link-local address.
const METADATA_V4: [Ipv4Addr; 3] = [
    // Alibaba.
    Ipv4Addr::new(100, 100, 100, 200),
    // Azure's host, which also hands out certificates and settings of the machine.
    Ipv4Addr::new(168, 63, 129, 16),
    // Oracle.
    Ipv4Addr::new(192, 0, 0, 192),
];

/// The same for IPv6.
const METADATA_V6: [Ipv6Addr; 5] = [
    // Amazon: of the machine, and the credentials of pods.
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x23),
    // Google.
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    // Oracle.
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
    // Scaleway.
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
];

/// An address of this machine that nobody has any business with, and that only a filter
/// outside of the process refuses: who sends to it sees whether one is in force.
pub const REFUSED_FROM_OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 169, 254, 169);

/// Why nobody connects to this address; `None` when it is allowed.
#[must_use]
pub fn refusal(address: IpAddr) -> Option<Refusal> {
    match address {
        IpAddr::V4(address) => refusal_v4(address),
        IpAddr::V6(address) => {
            refusal_v6(address).or_else(|| embedded_v4(address).into_iter().find_map(refusal_v4))
        }
    }
}

fn refusal_v4(address: Ipv4Addr) -> Option<Refusal> {
    if address.is_link_local() {
        Some(Refusal::LinkLocal)
    } else if address.is_multicast() || address.is_broadcast() {
        Some(Refusal::NoHost)
    } else if METADATA_V4.contains(&address) {
        Some(Refusal::Metadata)
    } else {
        None
    }
}

fn refusal_v6(address: Ipv6Addr) -> Option<Refusal> {
    if address.is_unicast_link_local() {
        Some(Refusal::LinkLocal)
    } else if address.is_multicast() {
        Some(Refusal::NoHost)
    } else if METADATA_V6.contains(&address) {
        Some(Refusal::Metadata)
    } else {
        None
    }
}

/// The prefixes of the IPv4 networks of which every address is refused.
const NETWORKS_V4: [(Ipv4Addr, u8); 3] = [
    // Link-local, multicast, broadcast.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::BROADCAST, 32),
];

/// The same for IPv6.
const NETWORKS_V6: [(Ipv6Addr, u8); 2] = [
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

/// All that is refused, as prefixes for who filters packets. An IPv6 address that stands
/// for an IPv4 one is among them where its prefix tells so: with NAT64's well-known prefix
/// and with 6to4. (A mapped one leaves the machine as IPv4.)
#[must_use]
pub fn refused_networks() -> Vec<(IpAddr, u8)> {
    let metadata = METADATA_V4.map(|address| (address, 32));
    let v4: Vec<(Ipv4Addr, u8)> = NETWORKS_V4.into_iter().chain(metadata).collect();
    let nat64 = |(address, length): &(Ipv4Addr, u8)| {
        let [high, low] = halves(*address);
        let address = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
        (address, 96 + length)
    };
    let six_to_four = |(address, length): &(Ipv4Addr, u8)| {
        let [high, low] = halves(*address);
        (Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 0), 16 + length)
    };
    let v6 = NETWORKS_V6
        .into_iter()
        .chain(METADATA_V6.map(|address| (address, 128)))
        .chain(v4.iter().map(nat64))
        .chain(v4.iter().map(six_to_four));
    let v6 = v6.map(|(address, length)| (IpAddr::from(address), length));
    let v4 = v4
        .iter()
        .map(|(address, length)| (IpAddr::from(*address), *length));
    v4.chain(v6).collect()
}

fn halves(address: Ipv4Addr) -> [u16; 2] {
    let [a, b, c, d] = address.octets();
    [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
}

/// The IPv4 addresses that an IPv6 address may stand for. Where its prefix does not tell
/// how it is made, these are several.
fn embedded_v4(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let octets = address.octets();
    let at = |places: [usize; 4]| Ipv4Addr::from(places.map(|place| octets[place]));
    let last = at([12, 13, 14, 15]);
    match address.segments() {
        // Compatible, mapped and translated (RFC 4291, RFC 2765).
        [0, 0, 0, 0, 0, 0, _, _]
        | [0, 0, 0, 0, 0, 0xffff, _, _]
        | [0, 0, 0, 0, 0xffff, 0, _, _]
        // NAT64 (RFC 6052).
        | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => vec![last],
        // NAT64 with a prefix of the site's own choice (RFC 8215), of any of the lengths
        // that RFC 6052 has and that fit: octet 8 is left out.
        [0x64, 0xff9b, 1, ..] => vec![
            last,
            at([6, 7, 9, 10]),
            at([7, 9, 10, 11]),
            at([9, 10, 11, 12]),
        ],
        // 6to4 (RFC 3056).
        [0x2002, ..] => vec![at([2, 3, 4, 5])],
        // Teredo (RFC 4380): the server, and the client with all bits inverted.
        [0x2001, 0, ..] => vec![at([4, 5, 6, 7]), Ipv4Addr::from_bits(!last.to_bits())],
        // ISATAP (RFC 5214), below any prefix.
        [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => vec![last],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(address: &str) -> Option<Refusal> {
        refusal(address.parse().unwrap())
    }

    #[test]
    fn metadata_link_local_and_multicast_addresses_are_refused() {
        for (address, expected) in [
            ("169.254.169.254", Refusal::LinkLocal),
            ("169.254.0.1", Refusal::LinkLocal),
            ("169.254.255.255", Refusal::LinkLocal),
            ("fe80::1", Refusal::LinkLocal),
            ("febf::1", Refusal::LinkLocal),
            ("fe80::a9fe:a9fe", Refusal::LinkLocal),
            ("168.63.129.16", Refusal::Metadata),
            ("100.100.100.200", Refusal::Metadata),
            ("192.0.0.192", Refusal::Metadata),
            ("fd00:ec2::254", Refusal::Metadata),
            ("fd00:ec2::23", Refusal::Metadata),
            ("fd20:ce::254", Refusal::Metadata),
            ("fd00:c1::a9fe:a9fe", Refusal::Metadata),
            ("fd00:42::42", Refusal::Metadata),
            ("224.0.0.1", Refusal::NoHost),
            ("239.255.255.255", Refusal::NoHost),
            ("255.255.255.255", Refusal::NoHost),
            ("ff02::1", Refusal::NoHost),
        ] {
            assert_eq!(judged(address), Some(expected), "{address}");
        }
    }

    #[test]
    fn an_ipv6_address_is_judged_as_the_ipv4_address_that_it_stands_for() {
        // The same for 169.254.169.254 and for 10.0.0.1.
        for (refused, allowed) in [
            ("::169.254.169.254", "::10.0.0.1"),
            ("::ffff:169.254.169.254", "::ffff:10.0.0.1"),
            ("::ffff:0:169.254.169.254", "::ffff:0:10.0.0.1"),
            ("64:ff9b::169.254.169.254", "64:ff9b::10.0.0.1"),
            ("64:ff9b:1::169.254.169.254", "64:ff9b:1::10.0.0.1"),
            ("64:ff9b:1:7::169.254.169.254", "64:ff9b:1:7::10.0.0.1"),
            ("64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:a00:0:100::"),
            ("64:ff9b:1:7a9:fe:a9fe::", "64:ff9b:1:70a:0:1::"),
            ("64:ff9b:1:7:a9:fea9:fe00:0", "64:ff9b:1:7:a:0:100:0"),
            ("2002:a9fe:a9fe::1", "2002:a00:1::1"),
            ("2001:0:1:1:1:1:5601:5601", "2001:0:1:1:1:1:f5ff:fffe"),
            ("2001:0:a9fe:a9fe:1:1:1:1", "2001:0:a00:1:1:1:1:1"),
            ("2001:db8::5efe:a9fe:a9fe", "2001:db8::5efe:a00:1"),
            ("fd00::200:5efe:a9fe:a9fe", "fd00::200:5efe:a00:1"),
        ] {
            assert_eq!(judged(refused), Some(Refusal::LinkLocal), "{refused}");
            assert_eq!(judged(allowed), None, "{allowed}");
        }
        for (address, expected) in [
            ("::ffff:168.63.129.16", Refusal::Metadata),
            ("::ffff:224.0.0.1", Refusal::NoHost),
            ("64:ff9b::100.100.100.200", Refusal::Metadata),
            ("64:ff9b::192.0.0.192", Refusal::Metadata),
            ("2002:a83f:8110::", Refusal::Metadata),
            ("2002:6464:64c8::1", Refusal::Metadata),
            ("2002:c000:c0::1", Refusal::Metadata),
        ] {
            assert_eq!(judged(address), Some(expected), "{address}");
        }
    }

    #[test]
    fn other_addresses_are_allowed() {
        for address in [
            "10.0.0.1",
            "127.0.0.1",
            "0.0.0.0",
            "192.168.1.1",
            "169.253.0.1",
            "169.255.0.1",
            "168.63.129.15",
            "168.63.129.17",
            "100.100.100.199",
            "100.100.100.201",
            "192.0.0.191",
            "192.0.0.193",
            "223.255.255.255",
            "240.0.0.1",
            "::1",
            "::",
            "fd00::1",
            "fd00:ec2::253",
            "fec0::1",
            "2001:db8::1",
            // These only look like one of the above.
            "2001:db8::a9fe:a9fe",
            "2003:a9fe:a9fe::1",
            "65:ff9b::169.254.169.254",
        ] {
            assert_eq!(judged(address), None, "{address}");
        }
    }

    /// The first and the last address of a prefix.
    fn ends((address, length): (IpAddr, u8)) -> [IpAddr; 2] {
        match address {
            IpAddr::V4(address) => {
                let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
                let last = Ipv4Addr::from_bits(address.to_bits() | host);
                [address.into(), last.into()]
            }
            IpAddr::V6(address) => {
                let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
                let last = Ipv6Addr::from_bits(address.to_bits() | host);
                [address.into(), last.into()]
            }
        }
    }

    #[test]
    fn what_is_filtered_outside_is_refused_inside() {
        let networks = refused_networks();
        for network in &networks {
            for end in ends(*network) {
                assert!(refusal(end).is_some(), "{end} of {network:?}");
            }
        }
        let is_filtered = |address: IpAddr| {
            let mut networks = networks.iter().map(|network| ends(*network));
            networks.any(|[first, last]| {
                first.is_ipv4() == address.is_ipv4() && first <= address && address <= last
            })
        };
        for address in METADATA_V4.into_iter().map(IpAddr::from) {
            assert!(is_filtered(address), "{address}");
        }
        for (address, expected) in [
            ("169.254.169.254", true),
            ("169.253.255.255", false),
            ("239.1.2.3", true),
            ("240.0.0.1", false),
            ("fe80::1", true),
            ("fec0::1", false),
            ("fd00:ec2::254", true),
            ("64:ff9b::169.254.169.254", true),
            ("64:ff9b::10.0.0.1", false),
            ("2002:a9fe:a9fe::1", true),
            ("2002:a00:1::1", false),
            ("127.0.0.1", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(is_filtered(address.parse().unwrap()), expected, "{address}");
        }
    }
}
