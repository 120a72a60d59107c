//! Sockets in memory, for the whole-node simulation and for tests.
//!
//! They behave as the real ones: a connection to a process that is down waits in
//! its queue until it is served, and killing a process breaks every connection
//! that it has, at both ends. Production code never makes one.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use topology::Process;

use crate::authorize::Peer;
use crate::listener::Listener;

/// Bytes that wait in one direction of a connection, like a socket's buffer.
const PIPE_BYTES: usize = 64 << 10;

/// All sockets of one simulated node.
#[derive(Clone, Debug, Default)]
pub struct MemoryHub {
    servers: Arc<Mutex<BTreeMap<Process, MemoryListener>>>,
    connections: Arc<Mutex<Vec<Connection>>>,
}

#[derive(Debug)]
struct Connection {
    client: Process,
    server: Process,
    /// Cancelled: the connection is broken.
    broken: CancellationToken,
    /// Cancelled: the server has accepted it.
    accepted: CancellationToken,
}

impl MemoryHub {
    /// No sockets yet; they appear when first used.
    #[must_use]
    pub fn new() -> MemoryHub {
        MemoryHub::default()
    }

    /// The listening end of a process's socket. Connections made before and
    /// between two listeners are queued.
    #[must_use]
    pub fn listener(&self, server: Process) -> Listener {
        Listener::from_memory(self.memory_listener(server))
    }

    /// Breaks all connections that `process` made or accepted, as its death
    /// would. Connections that wait in its queue stay there.
    pub fn kill(&self, process: Process) {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| {
            let dies = connection.client == process
                || (connection.server == process && connection.accepted.is_cancelled());
            if dies {
                connection.broken.cancel();
            }
            !dies
        });
    }

    pub(crate) fn connect(&self, client: Process, peer: Peer, server: Process) -> Severable {
        let (client_end, server_end) = tokio::io::duplex(PIPE_BYTES);
        let broken = CancellationToken::new();
        let accepted = CancellationToken::new();
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Connection {
                client,
                server,
                broken: broken.clone(),
                accepted: accepted.clone(),
            });
        let queued = Queued {
            stream: Severable::new(server_end, &broken),
            peer,
            accepted,
        };
        self.memory_listener(server).push(queued);
        Severable::new(client_end, &broken)
    }

    fn memory_listener(&self, server: Process) -> MemoryListener {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.entry(server).or_default().clone()
    }
}

#[derive(Debug)]
struct Queued {
    stream: Severable,
    peer: Peer,
    accepted: CancellationToken,
}

/// A queue of connections that outlives whoever accepts from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryListener {
    queue: Arc<Mutex<VecDeque<Queued>>>,
    arrived: Arc<Notify>,
}

impl MemoryListener {
    fn push(&self, queued: Queued) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(queued);
        self.arrived.notify_one();
    }

    pub(crate) async fn accept(&self) -> (Severable, Peer) {
        loop {
            let next = self
                .queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            if let Some(queued) = next {
                queued.accepted.cancel();
                return (queued.stream, queued.peer);
            }
            self.arrived.notified().await;
        }
    }
}

/// One end of a connection that can be broken from outside.
#[derive(Debug)]
pub(crate) struct Severable {
    stream: DuplexStream,
    broken: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Severable {
    fn new(stream: DuplexStream, token: &CancellationToken) -> Severable {
        let broken = Box::pin(token.clone().cancelled_owned());
        Severable { stream, broken }
    }
}

impl AsyncRead for Severable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.broken.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Severable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.broken.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.broken.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
