//! Readiness and watchdog: the receiving side of sd_notify(3).
//!
//! Each process has its own datagram socket, so that one that floods its socket
//! delays nobody else. A message counts only when the kernel says that it comes
//! from the very process that runs, by user and pid.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use confine::{Datagram, receive_datagram};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::time::{Duration, Instant};
use topology::{Identities, Process};

use crate::failure::Failure;

/// Largest message: ours have at most a few fixed fields and a status line.
const MAX_MESSAGE_BYTES: usize = 512;

/// Longest status line that is kept.
const MAX_STATUS_BYTES: usize = 200;

/// Messages of one process that are read at once.
const BURST: usize = 32;

/// Rest after a full burst; a well-behaved process sends one message a second.
const REST_AFTER_BURST: Duration = Duration::from_millis(10);

/// What a process told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// `READY=1`
    pub(crate) ready: bool,
    /// `WATCHDOG=1`
    pub(crate) beat: bool,
    /// `STATUS=`, without control characters.
    pub(crate) status: Option<String>,
    /// `FDSTORE=1`
    pub(crate) keeps: bool,
}

/// Understands a datagram; unknown fields are left out, as sd_notify(3) asks.
#[must_use]
pub(crate) fn parse(bytes: &[u8]) -> Message {
    let mut message = Message::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        match line {
            b"READY=1" => message.ready = true,
            b"WATCHDOG=1" => message.beat = true,
            b"FDSTORE=1" => message.keeps = true,
            _ => {
                if let Some(text) = line.strip_prefix(b"STATUS=") {
                    message.status = Some(status_line(text));
                }
            }
        }
    }
    message
}

fn status_line(text: &[u8]) -> String {
    let mut line = String::new();
    for character in String::from_utf8_lossy(text).chars() {
        if line.len() + character.len_utf8() > MAX_STATUS_BYTES {
            break;
        }
        if !character.is_control() {
            line.push(character);
        }
    }
    line
}

/// The sockets of all processes.
#[derive(Debug)]
pub(crate) struct NotifySockets(BTreeMap<Process, NotifySocket>);

#[derive(Debug)]
struct NotifySocket {
    path: PathBuf,
    socket: UnixDatagram,
    resting_until: Option<Instant>,
    /// Messages that were dropped; logged when it begins.
    dropped: u64,
}

impl NotifySockets {
    /// Makes a socket for each process that is not the supervisor.
    pub(crate) fn open(run_dir: &Path, identities: &Identities) -> Result<NotifySockets, Failure> {
        let mut sockets = BTreeMap::new();
        for process in Process::ALL {
            if process == Process::Supervisor {
                continue;
            }
            let path = run_dir.join(format!("{process}.notify"));
            let socket = open(&path, identities.uid(process)).map_err(|source| Failure::Io {
                action: "create socket",
                path: path.clone(),
                source,
            })?;
            let socket = NotifySocket {
                path,
                socket,
                resting_until: None,
                dropped: 0,
            };
            sockets.insert(process, socket);
        }
        Ok(NotifySockets(sockets))
    }

    /// The socket's path, for `NOTIFY_SOCKET`.
    pub(crate) fn path(&self, process: Process) -> Option<&Path> {
        self.0.get(&process).map(|socket| socket.path.as_path())
    }

    /// Waits until a process has sent something. Cancel-safe: nothing is read.
    pub(crate) async fn readable(&mut self) -> Process {
        loop {
            let rested = self
                .0
                .values()
                .filter_map(|socket| socket.resting_until)
                .min();
            let readable = std::future::poll_fn(|context| self.poll_readable(context));
            match rested {
                None => return readable.await,
                Some(until) => tokio::select! {
                    // Both only wait; nothing is lost when one is dropped.
                    process = readable => return process,
                    () = tokio::time::sleep_until(until) => {}
                },
            }
            let now = Instant::now();
            for socket in self.0.values_mut() {
                if socket.resting_until.is_some_and(|until| until <= now) {
                    socket.resting_until = None;
                }
            }
        }
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<Process> {
        for (process, socket) in &self.0 {
            if socket.resting_until.is_none()
                && let Poll::Ready(_) = socket.socket.poll_recv_ready(context)
            {
                return Poll::Ready(*process);
            }
        }
        Poll::Pending
    }

    /// Reads what `process` sent, at most one burst. Only messages of `pid`
    /// running as `uid` count.
    pub(crate) fn receive(
        &mut self,
        process: Process,
        pid: Option<i32>,
        uid: u32,
    ) -> Vec<(Message, Vec<OwnedFd>)> {
        let Some(socket) = self.0.get_mut(&process) else {
            return Vec::new();
        };
        let mut messages = Vec::new();
        for _ in 0..BURST {
            let mut buffer = [0; MAX_MESSAGE_BYTES];
            match receive_datagram(&socket.socket, &mut buffer) {
                Ok(datagram) if is_from(&datagram, pid, uid) => {
                    let message = parse(buffer.get(..datagram.bytes).unwrap_or_default());
                    messages.push((message, datagram.descriptors));
                }
                Ok(datagram) => socket.drop_message(process, &datagram),
                Err(_error) => {
                    // Nothing more. Read past tokio's own readiness, so that a
                    // message that came just now is seen; tell it so.
                    let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                    drop(socket.socket.try_io(Interest::READABLE, empty));
                    return messages;
                }
            }
        }
        socket.resting_until = Some(Instant::now() + REST_AFTER_BURST);
        messages
    }
}

impl NotifySocket {
    fn drop_message(&mut self, process: Process, datagram: &Datagram) {
        // Powers of two: a flood must not fill the log.
        self.dropped = self.dropped.saturating_add(1);
        if self.dropped.is_power_of_two() {
            tracing::warn!(%process, ?datagram, dropped = self.dropped, "ignored a notification that does not come from the running process or is too long");
        }
    }
}

/// Whether it is whole and comes from this process running as this user.
fn is_from(datagram: &Datagram, pid: Option<i32>, uid: u32) -> bool {
    let sender = datagram.sender.filter(|_| !datagram.is_truncated);
    sender.is_some_and(|sender| Some(sender.pid()) == pid && sender.uid() == uid)
}

fn open(path: &Path, uid: u32) -> io::Result<UnixDatagram> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = std::os::unix::net::UnixDatagram::bind(path)?;
    setsockopt(&socket, sockopt::PassCred, &true)?;
    socket.set_nonblocking(true)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    std::os::unix::fs::lchown(path, Some(uid), None)?;
    UnixDatagram::from_std(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_fields_are_read_and_others_left_out() {
        let message = parse(b"READY=1\nMAINPID=1\nSTATUS=12 pods\nFDSTORE=1\nWATCHDOG=1\n");
        assert_eq!(
            message,
            Message {
                ready: true,
                beat: true,
                status: Some("12 pods".to_owned()),
                keeps: true,
            }
        );
        for nothing in [
            &b""[..],
            b"READY=0",
            b"READY=10",
            b"WATCHDOG=trigger",
            b"\xff\n\0",
        ] {
            assert_eq!(parse(nothing), Message::default());
        }
    }

    #[test]
    fn a_status_line_is_short_and_has_no_control_characters() {
        let long = format!("STATUS=\x1b[31m{}", "\u{20ac}".repeat(100));
        let status = parse(long.as_bytes()).status.unwrap();
        assert!(status.len() <= MAX_STATUS_BYTES && status.starts_with("[31m\u{20ac}"));
    }
}
