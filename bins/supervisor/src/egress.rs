//! Whether somebody outside of the processes keeps them off metadata services: systemd does
//! by `IPAddressDeny=` of a unit, on cgroup version 2 and where the kernel has BPF for
//! cgroups, and else leaves the setting out. So it is tried.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};

use node_config::egress::REFUSED_FROM_OUTSIDE;

/// Nobody listens there (RFC 863), and it is an address of this machine.
const PORT: u16 = 9;

/// That nobody does, for people.
pub(crate) fn not_in_force() -> Option<String> {
    told_of(try_to_send())
}

fn try_to_send() -> io::Result<usize> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.send_to(&[], (REFUSED_FROM_OUTSIDE, PORT))
}

fn told_of(sent: io::Result<usize>) -> Option<String> {
    let reason = match sent {
        Ok(_sent) => {
            "that takes a unit with IPAddressDeny=, cgroup version 2 alone and BPF for cgroups"
                .to_owned()
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
        Err(error) => format!("it cannot be tried: {error}"),
    };
    Some(format!(
        "only the processes themselves keep off metadata services: {reason}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_may_not_send_is_held_from_outside() {
        let refused = |number| Err(io::Error::from_raw_os_error(number));
        assert_eq!(told_of(refused(1)), None);
        let told = told_of(Ok(0)).unwrap();
        assert!(told.ends_with("BPF for cgroups"), "{told}");
        // ENETUNREACH: there is no loopback.
        let told = told_of(refused(101)).unwrap();
        assert!(told.contains("cannot be tried"), "{told}");
    }
}
