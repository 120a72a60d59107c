//! What a run of a process can do to its listening socket for good, and how that is seen
//! without using the socket: by our supervisor once the run has ended, and where systemd
//! supervises by the next run before it serves. Not here: whose file its name leads to.

use std::fmt;
use std::io;
use std::os::unix::net::UnixListener;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Connections that queue while a process is down or starts.
pub const BACKLOG: i32 = 1024;

/// What a run of a process has done to its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// `shutdown(2)`.
    ShutDown,
    /// `listen(2)`, which also says how many callers may queue.
    Backlog,
    /// `fcntl(2)`: for example `O_ASYNC`, which sends signals to later runs.
    Flags,
    /// The file at its path is gone, or another one.
    Path,
}

impl fmt::Display for Harm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Harm::ShutDown => "was shut down",
            Harm::Backlog => "had its queue changed",
            Harm::Flags => "had its flags changed",
            Harm::Path => "was gone from its path",
        })
    }
}

/// What can be seen of a listening socket without using it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketLook {
    /// Whether callers are refused since it was shut down.
    pub is_shut_down: bool,
    /// Who last called `listen(2)`: its pid.
    pub listened_by: i32,
    /// The user that it had.
    pub listened_as: u32,
    /// Flags of the open file that last over a restart and mean something.
    pub flags: OFlag,
}

impl SocketLook {
    /// Of this socket, now.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn at(socket: &UnixListener) -> io::Result<SocketLook> {
        let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
        poll(&mut polled, Some(&Timespec::default()))?;
        let seen = polled[0].revents();
        let listener = getsockopt(socket, sockopt::PeerCredentials)?;
        // Each run sets this one for itself.
        let flags = OFlag::from_bits_retain(fcntl(socket, FcntlArg::F_GETFL)?) - OFlag::O_NONBLOCK;
        Ok(SocketLook {
            is_shut_down: seen.intersects(PollFlags::RDHUP | PollFlags::HUP),
            listened_by: listener.pid(),
            listened_as: listener.uid(),
            flags,
        })
    }
}
