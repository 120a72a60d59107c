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
}
