//! Receiving a datagram with what the kernel says of its sender and with the
//! descriptors that it carries.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, UnixCredentials, recvmsg};

/// Most descriptors that the kernel lets one datagram carry (`SCM_MAX_FD`, unix(7)).
/// There is room for all: of a list that is cut off, what did arrive would be open
/// and nobody's.
const MAX_DESCRIPTORS: usize = 253;

/// A datagram that was received.
#[derive(Debug)]
pub struct Datagram {
    /// How much of the buffer it filled.
    pub bytes: usize,
    /// Whether it was longer than the buffer.
    pub is_truncated: bool,
    /// Who sent it, where the socket asks for that (`SO_PASSCRED`).
    pub sender: Option<UnixCredentials>,
    /// What it carries; closed in children.
    pub descriptors: Vec<OwnedFd>,
}

/// Receives one datagram without waiting.
///
/// # Errors
/// When there is none, or the socket fails.
pub fn receive_datagram(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<Datagram> {
    let mut parts = [IoSliceMut::new(buffer)];
    let mut control = nix::cmsg_space!(UnixCredentials, [RawFd; MAX_DESCRIPTORS]);
    let message = recvmsg::<UnixAddr>(
        socket.as_fd().as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let mut datagram = Datagram {
        bytes: message.bytes,
        is_truncated: message.flags.contains(MsgFlags::MSG_TRUNC),
        sender: None,
        descriptors: Vec::new(),
    };
    for control in message.cmsgs().into_iter().flatten() {
        match control {
            ControlMessageOwned::ScmCredentials(sender) => datagram.sender = Some(sender),
            ControlMessageOwned::ScmRights(descriptors) => {
                let owned = descriptors.into_iter().map(|descriptor| {
                    // SAFETY: the kernel has just opened it for this call, so
                    // nobody else knows or owns it.
                    unsafe { OwnedFd::from_raw_fd(descriptor) }
                });
                datagram.descriptors.extend(owned);
            }
            _ => {}
        }
    }
    Ok(datagram)
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read as _, Write as _};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use nix::sys::socket::{ControlMessage, sendmsg, setsockopt, sockopt};

    use super::*;

    fn pair() -> (UnixDatagram, UnixDatagram) {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        setsockopt(&receiver, sockopt::PassCred, &true).unwrap();
        (sender, receiver)
    }

    #[test]
    fn a_datagram_comes_with_its_sender_and_what_it_carries() {
        let (sender, receiver) = pair();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let carried = [theirs.as_raw_fd()];
        sendmsg::<()>(
            sender.as_raw_fd(),
            &[IoSlice::new(b"FDSTORE=1")],
            &[ControlMessage::ScmRights(&carried)],
            MsgFlags::empty(),
            None,
        )
        .unwrap();
        drop(theirs);
        let mut buffer = [0; 32];
        let mut datagram = receive_datagram(&receiver, &mut buffer).unwrap();
        assert_eq!(&buffer[..datagram.bytes], b"FDSTORE=1");
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(datagram.sender.map(|sender| sender.pid()), Some(own));
        // It is the other end of ours, and lives as long as it is held.
        let mut kept = UnixStream::from(datagram.descriptors.remove(0));
        ours.write_all(b"x").unwrap();
        let mut byte = [0];
        kept.read_exact(&mut byte).unwrap();
        drop(kept);
        assert_eq!(ours.read(&mut byte).unwrap(), 0);
    }

    #[test]
    fn all_descriptors_that_a_datagram_can_carry_are_closed_with_it() {
        let (sender, receiver) = pair();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let carried = [theirs.as_raw_fd(); MAX_DESCRIPTORS];
        let send = |carried: &[RawFd]| {
            let rights = [ControlMessage::ScmRights(carried)];
            let parts = [IoSlice::new(b"x")];
            sendmsg::<()>(sender.as_raw_fd(), &parts, &rights, MsgFlags::empty(), None)
        };
        send(&carried).unwrap();
        let one_more = [theirs.as_raw_fd(); MAX_DESCRIPTORS + 1];
        assert!(send(&one_more).is_err(), "it is the most");
        drop(theirs);
        let datagram = receive_datagram(&receiver, &mut [0; 8]).unwrap();
        assert_eq!(datagram.descriptors.len(), MAX_DESCRIPTORS);
        assert!(datagram.sender.is_some());
        drop(datagram);
        assert_eq!(ours.read(&mut [0]).unwrap(), 0, "none is left open");
    }

    #[test]
    fn a_long_datagram_is_told_and_none_is_an_error() {
        let (sender, receiver) = pair();
        sender.send(&[1; 64]).unwrap();
        let mut buffer = [0; 8];
        assert!(
            receive_datagram(&receiver, &mut buffer)
                .unwrap()
                .is_truncated
        );
        let error = receive_datagram(&receiver, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
