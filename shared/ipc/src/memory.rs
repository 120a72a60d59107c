//! Sockets in memory, for the whole-node simulation and for tests.
//!
//! They behave as the real ones: a connection to a process that is down waits in
//! its queue until it is served, and killing a process breaks every connection
//! that it has, at both ends. Production code never makes one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;
use topology::Process;

use crate::listener::Listener;
use crate::memory_socket::{MemoryListener, Queued, Severable};
use crate::peer::Peer;

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
