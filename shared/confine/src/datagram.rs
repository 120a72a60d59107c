//! Looking at a datagram: what the kernel says of its sender, and what it carries.
//!
//! A datagram is looked at before it is taken from the queue, because closing what
//! it carries can block for as long as the sender likes (a TCP socket with
//! `SO_LINGER`), and the kernel closes by itself what the receiver has no room for.
//! While it is in the queue, no close of a copy is the last one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::libc;
use nix::sys::socket::{MsgFlags, UnixCredentials, recv};

/// `SO_PASSRIGHTS` of Linux 6.16, which the libc crate does not have everywhere.
#[cfg(not(any(target_arch = "sparc", target_arch = "sparc64")))]
const SO_PASSRIGHTS: libc::c_int = 83;
#[cfg(any(target_arch = "sparc", target_arch = "sparc64"))]
const SO_PASSRIGHTS: libc::c_int = 0x5c;

/// A datagram at the head of a queue.
#[derive(Debug)]
pub struct Datagram {
    /// How much of the buffer it filled.
    pub bytes: usize,
    /// Whether it is longer than the buffer.
    pub is_truncated: bool,
    /// Who sent it, where the socket asks for that (`SO_PASSCRED`).
    pub sender: Option<UnixCredentials>,
    /// What it carries.
    pub carried: Carried,
}

/// The descriptors that a datagram carries.
#[derive(Debug)]
pub enum Carried {
    /// None.
    Nothing,
    /// One, of which this is a copy; closed in children.
    One(OwnedFd),
    /// More than one, or one that could not be copied.
    Other,
}

/// Looks at the first datagram of a queue without waiting and leaves it there.
///
/// # Errors
/// When there is none, or the socket fails.
pub fn peek_datagram(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<Datagram> {
    let mut control = Control([0; CONTROL_BYTES]);
    let (bytes, flags, control_bytes) = peek(socket, buffer, &mut control)?;
    let (sender, mut descriptors) = control.take(control_bytes);
    let is_cut = flags & libc::MSG_CTRUNC != 0;
    Ok(Datagram {
        bytes,
        is_truncated: flags & libc::MSG_TRUNC != 0,
        sender,
        carried: match (is_cut, descriptors.pop()) {
            (false, None) => Carried::Nothing,
            (false, Some(one)) if descriptors.is_empty() => Carried::One(one),
            _ => Carried::Other,
        },
    })
}

/// Takes the first datagram from a queue, without waiting for one. What it carries
/// is closed, which blocks when nobody has a copy and that close blocks.
///
/// # Errors
/// When there is none, or the socket fails.
pub fn discard_datagram(socket: &impl AsFd) -> io::Result<()> {
    // Without room for them descriptors are not copied but closed.
    recv(socket.as_fd().as_raw_fd(), &mut [], MsgFlags::MSG_DONTWAIT)?;
    Ok(())
}

/// Has the kernel refuse datagrams that carry descriptors: who sends one gets
/// `EPERM`. Returns whether this kernel can.
///
/// # Errors
/// When the socket fails.
pub fn refuse_descriptors(socket: &impl AsFd) -> io::Result<bool> {
    let pass: libc::c_int = 0;
    let length = libc::socklen_t::try_from(size_of_val(&pass)).map_err(io::Error::other)?;
    // SAFETY: reads one integer, which lives until it returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const pass).cast(),
            length,
        )
    };
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOPROTOOPT) => Ok(false),
        _ => Err(error),
    }
}

/// Returns the bytes of the datagram, flags, and bytes of control messages.
fn peek(
    socket: &impl AsFd,
    buffer: &mut [u8],
    control: &mut Control,
) -> io::Result<(usize, libc::c_int, usize)> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut header = control.header(size_of::<Control>());
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header and both buffers that it names live until it returns, and
    // the lengths are theirs.
    let bytes = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
    let bytes = usize::try_from(bytes).map_err(|_negative| io::Error::last_os_error())?;
    Ok((bytes, header.msg_flags, header.msg_controllen))
}

/// Room for who the sender is and for one descriptor; because of the alignment of
/// control messages a second one fits as well.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

// SAFETY: computes a number from a number.
const CONTROL_BYTES: usize = unsafe {
    libc::CMSG_SPACE(size_of::<libc::ucred>() as libc::c_uint)
        + libc::CMSG_SPACE(size_of::<RawFd>() as libc::c_uint)
} as usize;

impl Control {
    /// A message header whose control messages are the first `length` bytes.
    fn header(&mut self, length: usize) -> libc::msghdr {
        // SAFETY: all-zero is a valid msghdr: it names no buffers.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_control = self.0.as_mut_ptr().cast();
        header.msg_controllen = length;
        header
    }

    /// Understands what the kernel wrote. All descriptors are taken whatever the
    /// flags of the message say: when the limit of open files is reached midway,
    /// those before are open, and the message is said to be cut off.
    fn take(mut self, length: usize) -> (Option<UnixCredentials>, Vec<OwnedFd>) {
        let header = self.header(length.min(CONTROL_BYTES));
        let mut sender = None;
        let mut descriptors = Vec::new();
        // SAFETY: the header names the kernel's control messages in `self`.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
        while !next.is_null() {
            // SAFETY: not null, so a whole control message's header lies there,
            // aligned, and its data follows.
            let (message, data) = unsafe { (*next, libc::CMSG_DATA(next)) };
            // SAFETY: computes a number from a number.
            let before_data = unsafe { libc::CMSG_LEN(0) } as usize;
            let length = message.cmsg_len.saturating_sub(before_data);
            match (message.cmsg_level, message.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for index in 0..length / size_of::<RawFd>() {
                        // SAFETY: within the data of the message; the kernel has
                        // just opened it for this call, so nobody else owns it.
                        descriptors.push(unsafe {
                            OwnedFd::from_raw_fd(data.cast::<RawFd>().add(index).read_unaligned())
                        });
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if length >= size_of::<libc::ucred>() => {
                    // SAFETY: within the data of the message, and any bytes are
                    // valid credentials.
                    let credentials = unsafe { data.cast::<libc::ucred>().read_unaligned() };
                    sender = Some(UnixCredentials::from(credentials));
                }
                _ => {}
            }
            // SAFETY: of the same header.
            next = unsafe { libc::CMSG_NXTHDR(&raw const header, next) };
        }
        (sender, descriptors)
    }
}

#[cfg(test)]
mod tests;
