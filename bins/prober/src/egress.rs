//! Where a probe may go. A probe's `host` is chosen by who writes the pod, and
//! the prober sees networks that the pod does not: without a rule, probes are a
//! way to ask the node's surroundings questions.
//!
//! Refused are link-local addresses, where clouds keep their metadata services
//! and their credentials, and multicast and broadcast, which are no hosts. The
//! pod's own address and everything else is allowed, loopback included: pods of
//! the host network are probed there. A finer rule belongs to the node's policy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The metadata service of one cloud that is not at a link-local address.
const UNIQUE_LOCAL_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254);

/// Why a probe may not go to this address; `None` when it may.
#[must_use]
pub(crate) fn refusal(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => refusal_v4(address),
        IpAddr::V6(address) => match embedded_v4(address) {
            Some(embedded) => refusal_v4(embedded),
            None => refusal_v6(address),
        },
    }
}

fn refusal_v4(address: Ipv4Addr) -> Option<&'static str> {
    if address.is_link_local() {
        Some("link-local addresses are not probed")
    } else if address.is_multicast() || address.is_broadcast() {
        Some("multicast and broadcast addresses are not probed")
    } else {
        None
    }
}

fn refusal_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_unicast_link_local() {
        Some("link-local addresses are not probed")
    } else if address.is_multicast() {
        Some("multicast and broadcast addresses are not probed")
    } else if address == UNIQUE_LOCAL_METADATA {
        Some("metadata services are not probed")
    } else {
        None
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped (`::ffff:0:0/96`) or
/// translated (`64:ff9b::/96`).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [first, second, 0, 0, 0, 0, high, low] = address.segments() else {
        return address.to_ipv4_mapped();
    };
    let [a, b] = high.to_be_bytes();
    let [c, d] = low.to_be_bytes();
    ((first, second) == (0x64, 0xff9b)).then_some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_and_multicast_are_refused_in_every_spelling() {
        for address in [
            "169.254.169.254",
            "169.254.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "224.0.0.1",
            "255.255.255.255",
            "::ffff:224.0.0.1",
            "ff02::1",
        ] {
            assert!(refusal(address.parse().unwrap()).is_some(), "{address}");
        }
    }

    #[test]
    fn ordinary_addresses_are_allowed() {
        for address in [
            "10.0.0.1",
            "127.0.0.1",
            "0.0.0.0",
            "192.168.1.1",
            "169.253.0.1",
            "169.255.0.1",
            "::1",
            "::",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "fd00::1",
            "fec0::1",
            "2001:db8::1",
        ] {
            assert_eq!(refusal(address.parse().unwrap()), None, "{address}");
        }
    }
}
