//! The sending side of the `NOTIFY_SOCKET` protocol of sd_notify(3), which never waits:
//! the kernel queues ten datagrams for who reads none, and a supervisor that hangs must not
//! have the others hang too.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;

use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use sd_notify::NotifyState;

/// Where the process tells how it is.
#[derive(Debug)]
pub(crate) struct NotifySocket(OsString);

impl NotifySocket {
    /// That which this variable of the environment names, if it is there.
    pub(crate) fn of_environment(variable: &str) -> Option<NotifySocket> {
        env::var_os(variable).map(NotifySocket)
    }

    /// Sends one datagram with these states and descriptors.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when the receiver's queue is full.
    pub(crate) fn send(
        &self,
        states: &[NotifyState<'_>],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let text: String = states.iter().map(|state| format!("{state}\n")).collect();
        let descriptors: Vec<RawFd> = descriptors.iter().map(BorrowedFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let control: &[ControlMessage<'_>] = match descriptors.is_empty() {
            true => &[],
            false => &rights,
        };
        let socket = UnixDatagram::unbound()?;
        sendmsg(
            socket.as_raw_fd(),
            &[IoSlice::new(text.as_bytes())],
            control,
            MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
            Some(&address(&self.0)?),
        )?;
        Ok(())
    }
}

/// A path, or with `@` at its beginning an abstract name.
fn address(place: &OsStr) -> io::Result<UnixAddr> {
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => UnixAddr::new_abstract(name),
        None => UnixAddr::new(place),
    };
    Ok(address?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A socket that nobody reads, and what sends to it.
    pub(crate) fn unread() -> (tempfile::TempDir, UnixDatagram, NotifySocket) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let receiver = UnixDatagram::bind(&path).unwrap();
        (directory, receiver, NotifySocket(path.into_os_string()))
    }

    /// What one datagram says.
    pub(crate) fn read(receiver: &UnixDatagram) -> String {
        let mut bytes = [0; 512];
        let length = receiver.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_full_queue_is_an_error_and_no_wait() {
        let (_directory, receiver, sender) = unread();
        let mut sent = 0_usize;
        let error = loop {
            match sender.send(&[NotifyState::Watchdog], &[]) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(sent > 0);
        assert_eq!(read(&receiver), "WATCHDOG=1\n");
        sender.send(&[NotifyState::Ready], &[]).unwrap();
    }

    #[test]
    fn an_abstract_name_is_an_address() {
        assert!(
            address(OsStr::new("@name"))
                .unwrap()
                .as_abstract()
                .is_some()
        );
        let path = OsStr::new("/run/notify");
        assert_eq!(address(path).unwrap().path(), Some(path.as_ref()));
    }
}
