//! Readiness and watchdog: the receiving side of sd_notify(3).
//!
//! Each process has its own datagram socket, so that one that floods its socket
//! delays nobody else. A message counts only when the kernel says that it comes
//! from the very process that runs, by user and pid.
//!
//! Only pod-worker-pool may send descriptors, one with each `FDSTORE=1`. For the
//! others the kernel refuses them (`SO_PASSRIGHTS`, Linux 6.16). What comes
//! nevertheless, from them on an older kernel or from the pool, never gets into the
//! supervisor: it is discarded in the socket, by [the closing
//! thread](crate::closing) of that process. If that blocks, the process is not heard,
//! so that the watchdog restarts it, and nobody else is concerned. Its next run has a
//! new socket and is heard, unless [`MAX_LEFT`] earlier ones are stuck already: then
//! it is not heard, and restarted, until one of them is done.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};

use confine::{Carried, Datagram, discard_datagram, peek_datagram, refuse_descriptors};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};
use process::MAX_STATUS_BYTES;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::time::{Duration, Instant};
use topology::{Identities, Process};

use crate::closing::{Closer, Work};
use crate::failure::Failure;

/// Largest message: ours have at most a few fixed fields and a status line.
const MAX_MESSAGE_BYTES: usize = 2048;

/// Messages of one process that are read at once.
const BURST: usize = 32;

/// Rest after a full burst; a well-behaved process sends one message in two seconds.
const REST_AFTER_BURST: Duration = Duration::from_millis(10);

/// Rest while descriptors that the process sent are being closed.
const REST_WHILE_CLOSING: Duration = Duration::from_millis(50);

/// Sockets of earlier runs of one process that are left with a close that blocks.
/// Each has a thread and what was sent to it, which must not add up.
const MAX_LEFT: usize = 4;

/// What a descriptor is that is to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DescriptorName {
    /// A connection to the runtime, or something that is called as nothing known.
    #[default]
    Runtime,
    /// What keeps the node from shutting down.
    Shutdown,
}

/// What a process told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// `READY=1`
    pub(crate) ready: bool,
    /// `WATCHDOG=1`
    pub(crate) beat: bool,
    /// `STATUS=`, without control characters and what turns or hides text.
    pub(crate) status: Option<String>,
    /// `FDSTORE=1`
    pub(crate) keeps: bool,
    /// `FDSTOREREMOVE=1`
    pub(crate) releases: bool,
    /// `FDNAME=`: which descriptor one of these two means.
    pub(crate) descriptor: DescriptorName,
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
            b"FDSTOREREMOVE=1" => message.releases = true,
            b"FDNAME=shutdown" => message.descriptor = DescriptorName::Shutdown,
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
        if !telemetry::misleads(character) {
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
    /// The same socket, for the closing thread.
    shared: Arc<std::os::unix::net::UnixDatagram>,
    closer: Closer,
    /// Of earlier runs' sockets, as long as they have work.
    left: Vec<Closer>,
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
            let socket = open(process, path.clone(), identities.uid(process));
            let socket = socket.map_err(|source| Failure::Io {
                action: "create socket",
                path,
                source,
            })?;
            sockets.insert(process, socket);
        }
        Ok(NotifySockets(sockets))
    }

    /// The socket's path, for `NOTIFY_SOCKET`.
    pub(crate) fn path(&self, process: Process) -> Option<&Path> {
        self.0.get(&process).map(|socket| socket.path.as_path())
    }

    /// To be called before `process` starts: a close that an earlier run made block
    /// does not keep the next one, which runs as `uid`, from being heard.
    pub(crate) fn renew(&mut self, process: Process, uid: u32) {
        let Some(socket) = self.0.get_mut(&process) else {
            return;
        };
        socket.left.retain(|closer| !closer.is_idle());
        if socket.closer.is_idle() && socket.is_empty() {
            return;
        }
        if socket.left.len() >= MAX_LEFT {
            tracing::error!(%process, left = MAX_LEFT, "closing what earlier runs sent blocks: this one may not be heard");
            return;
        }
        match open_instead(process, &socket.path, uid) {
            Ok(new) => {
                tracing::warn!(%process, "what an earlier run sent is not all read or closed: the next has a new notification socket");
                std::mem::replace(socket, new).leave_to(socket);
            }
            // The old one stays; it is tried again at the next start.
            Err(error) => {
                tracing::error!(%process, %error, "cannot renew the notification socket");
            }
        }
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

    /// Reads what `process` sent, at most one burst. Only messages count of who runs as
    /// `uid` and, by its pid, is the process; a descriptor is to be kept.
    pub(crate) fn receive(
        &mut self,
        process: Process,
        uid: u32,
        is_process: impl Fn(i32) -> bool,
    ) -> Vec<(Message, Option<OwnedFd>)> {
        let Some(socket) = self.0.get_mut(&process) else {
            return Vec::new();
        };
        let mut messages = Vec::new();
        for _ in 0..BURST {
            if socket.closer.is_behind() {
                socket.rest(REST_WHILE_CLOSING);
                return messages;
            }
            let mut buffer = [0; MAX_MESSAGE_BYTES];
            let datagram = match peek_datagram(&socket.socket, &mut buffer) {
                Ok(datagram) => datagram,
                Err(_error) => {
                    // Nothing more. Read past tokio's own readiness, so that a
                    // message that came just now is seen; tell it so.
                    let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                    drop(socket.socket.try_io(Interest::READABLE, empty));
                    return messages;
                }
            };
            let message = parse(buffer.get(..datagram.bytes).unwrap_or_default());
            let counts = is_from(&datagram, uid, &is_process);
            let may_keep = counts && message.keeps && process == Process::PodWorkerPool;
            match (&datagram.carried, may_keep) {
                // What it carries has a copy here, so no close in it is the last.
                (Carried::Nothing, _) | (Carried::One(_), true) => {
                    drop(discard_datagram(&socket.socket));
                }
                _ => {
                    socket.count_ignored(process, &datagram);
                    // While it is in the socket: later this copy may be the last.
                    drop(datagram);
                    let shared = Arc::clone(&socket.shared);
                    socket.closer.hand_over(Work::Discard(shared));
                    continue;
                }
            }
            if !counts {
                socket.count_ignored(process, &datagram);
                continue;
            }
            let kept = match datagram.carried {
                Carried::One(descriptor) => Some(descriptor),
                Carried::Nothing | Carried::Other => None,
            };
            messages.push((message, kept));
        }
        socket.rest(REST_AFTER_BURST);
        messages
    }

    /// Closes what was kept for `process`, without waiting for that.
    pub(crate) fn close(&self, process: Process, descriptors: Vec<OwnedFd>) {
        if let Some(socket) = self.0.get(&process) {
            for descriptor in descriptors {
                socket.closer.hand_over(Work::Close(descriptor));
            }
        }
    }
}

impl NotifySocket {
    /// Whether nothing is left in it: to discard what is may block, and takes the time
    /// of whoever comes after it.
    fn is_empty(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(self.shared.as_raw_fd(), &mut [0], flags) == Err(Errno::EAGAIN)
    }

    /// Has the socket closed by its own closing thread: what is still in it is closed
    /// as well, which may block.
    fn leave_to(self, new: &mut NotifySocket) {
        // Not the last one of this socket.
        drop(self.socket);
        self.closer.hand_over(Work::Leave(self.shared));
        new.dropped = self.dropped;
        new.left = self.left;
        new.left.push(self.closer);
    }

    fn rest(&mut self, duration: Duration) {
        self.resting_until = Some(Instant::now() + duration);
    }

    fn count_ignored(&mut self, process: Process, datagram: &Datagram) {
        // Powers of two: a flood must not fill the log.
        self.dropped = self.dropped.saturating_add(1);
        if self.dropped.is_power_of_two() {
            tracing::warn!(%process, ?datagram, dropped = self.dropped, "ignored a notification that does not come from the running process, is too long, or carries what it may not");
        }
    }
}

/// Whether it is whole and comes from this process running as this user.
fn is_from(datagram: &Datagram, uid: u32, is_process: impl Fn(i32) -> bool) -> bool {
    let sender = datagram.sender.filter(|_| !datagram.is_truncated);
    sender.is_some_and(|sender| sender.uid() == uid && is_process(sender.pid()))
}

fn open(process: Process, path: PathBuf, uid: u32) -> io::Result<NotifySocket> {
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = std::os::unix::net::UnixDatagram::bind(&path)?;
    setsockopt(&socket, sockopt::PassCred, &true)?;
    if process != Process::PodWorkerPool && !refuse_descriptors(&socket)? {
        tracing::debug!(%process, "this kernel cannot refuse descriptors: they are discarded");
    }
    socket.set_nonblocking(true)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    std::os::unix::fs::lchown(&path, Some(uid), None)?;
    Ok(NotifySocket {
        path,
        shared: Arc::new(socket.try_clone()?),
        socket: UnixDatagram::from_std(socket)?,
        closer: Closer::default(),
        left: Vec::new(),
        resting_until: None,
        dropped: 0,
    })
}

/// Opens a socket that takes the place of the one at `path`, at once or not at all.
fn open_instead(process: Process, path: &Path, uid: u32) -> io::Result<NotifySocket> {
    // Not longer than the path: that of a socket has a limit.
    let mut new = open(process, path.with_extension("new"), uid)?;
    std::fs::rename(&new.path, path)?;
    path.clone_into(&mut new.path);
    Ok(new)
}

#[cfg(test)]
mod tests;
