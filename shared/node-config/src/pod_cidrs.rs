//! The networks of a node's pods.

use std::net::IpAddr;

/// One of each IP family.
const MAX_POD_CIDRS: usize = 2;

/// Whether these can be the networks of a node's pods: at most two, each in CIDR notation.
#[must_use]
pub fn are_pod_cidrs(texts: &[String]) -> bool {
    texts.len() <= MAX_POD_CIDRS && texts.iter().all(|text| is_cidr(text))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let longest = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
    is_number && length.parse().is_ok_and(|length: u8| length <= longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_two_networks_in_cidr_notation() {
        for (texts, expected) in [
            (&[][..], true),
            (&["10.1.0.0/24"], true),
            (&["10.1.0.0/24", "fd00::/64"], true),
            (&["0.0.0.0/0", "::1/128"], true),
            (&["10.1.0.0/24", "10.2.0.0/24", "fd00::/64"], false),
            (&["10.1.0.0/24", ""], false),
            (&["10.1.0.0"], false),
            (&["10.1.0.0/33"], false),
            (&["fd00::/129"], false),
            (&["10.1.0.0/"], false),
            (&["10.1.0.0/+8"], false),
            (&["10.1.0.0/24,10.2.0.0/24"], false),
            (&["10.1.0.0/24\"}"], false),
            (&["fe80::1%eth0/64"], false),
        ] {
            let given: Vec<_> = texts.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(are_pod_cidrs(&given), expected, "{texts:?}");
        }
    }
}
