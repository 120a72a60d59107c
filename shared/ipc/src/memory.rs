//! Sockets in memory, for the whole-node simulation and for tests.
//!
//! They behave as the real ones: a connection to a process that is down waits in
//! its queue until it is served, and killing a process breaks every connection
//! that it has, at both ends. Production code never makes one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use topology::Process;

use crate::calls::{ClientEnd, ServerEnd};
use crate::listener::Listener;
use crate::memory_socket::{MemoryListener, Queued, Severable};
use crate::peer::Peer;

/// Bytes that wait in one direction of a connection, like a socket's buffer.
const PIPE_BYTES: usize = 64 << 10;

/// All sockets of one simulated node.
#[derive(Clone, Debug)]
pub struct MemoryHub {
    /// Whether client and server speak HTTP/2 over a pipe; else calls are handed over.
    speaks_http2: bool,
    pipes: Sockets<Severable>,
    calls: Sockets<ServerEnd>,
    connections: Arc<Mutex<Vec<Connection>>>,
}

type Sockets<E> = Arc<Mutex<BTreeMap<Process, MemoryListener<E>>>>;

#[derive(Debug)]
struct Connection {
    client: Process,
    server: Process,
    /// Cancelled: the connection is broken.
    broken: CancellationToken,
    /// Cancelled: the server has accepted it.
    accepted: CancellationToken,
}

impl Default for MemoryHub {
    fn default() -> MemoryHub {
        MemoryHub::new()
    }
}

impl MemoryHub {
    /// No sockets yet; they appear when first used. What goes through them is what goes
    /// through real ones.
    #[must_use]
    pub fn new() -> MemoryHub {
        MemoryHub::speaking(true)
    }

    /// The same, but that nobody makes bytes of calls and answers: much faster.
    #[must_use]
    pub fn without_http2() -> MemoryHub {
        MemoryHub::speaking(false)
    }

    fn speaking(http2: bool) -> MemoryHub {
        MemoryHub {
            speaks_http2: http2,
            pipes: Arc::default(),
            calls: Arc::default(),
            connections: Arc::default(),
        }
    }

    /// The listening end of a process's socket. Connections made before and
    /// between two listeners are queued.
    #[must_use]
    pub fn listener(&self, server: Process) -> Listener {
        match self.speaks_http2 {
            true => Listener::from_pipes(socket(&self.pipes, server)),
            false => Listener::from_calls(socket(&self.calls, server)),
        }
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

    /// Whether connections are pipes of bytes, for calls by HTTP/2.
    pub(crate) fn speaks_http2(&self) -> bool {
        self.speaks_http2
    }

    pub(crate) fn connect_pipe(&self, client: (Process, Peer), server: Process) -> Severable {
        let (client_end, server_end) = tokio::io::duplex(PIPE_BYTES);
        let broken = self.connect(client, server, &self.pipes, |broken| {
            Severable::new(server_end, broken)
        });
        Severable::new(client_end, &broken)
    }

    pub(crate) fn connect_calls(&self, client: (Process, Peer), server: Process) -> ClientEnd {
        let (sender, receiver) = mpsc::unbounded_channel();
        let broken = self.connect(client, server, &self.calls, |broken| {
            ServerEnd::new(receiver, broken.clone())
        });
        ClientEnd::new(sender, broken)
    }

    /// Puts a new connection into the server's queue; what breaks it.
    fn connect<E>(
        &self,
        (client, peer): (Process, Peer),
        server: Process,
        sockets: &Sockets<E>,
        end: impl FnOnce(&CancellationToken) -> E,
    ) -> CancellationToken {
        let (broken, accepted) = (CancellationToken::new(), CancellationToken::new());
        let connection = Connection {
            client,
            server,
            broken: broken.clone(),
            accepted: accepted.clone(),
        };
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        socket(sockets, server).push(Queued {
            end: end(&broken),
            peer,
            accepted,
        });
        broken
    }
}

fn socket<E>(sockets: &Sockets<E>, server: Process) -> MemoryListener<E> {
    let mut sockets = sockets.lock().unwrap_or_else(PoisonError::into_inner);
    sockets.entry(server).or_default().clone()
}
