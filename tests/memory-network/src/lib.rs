//! Sockets in memory, for the whole-node simulation and for tests.
//!
//! They behave as the real ones: a connection to a process that is down waits in
//! its queue until it is served, and killing a process breaks every connection
//! that it has, at both ends.

mod call_channel;
mod calls;
mod ports;
mod socket;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use ipc::{Channel, Connect, Listener, Network, Peer, Stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use topology::{Identities, Process};

use call_channel::CallChannel;
use calls::{ClientEnd, ServerEnd};
use ports::Ports;
use socket::{MemoryListener, Queued, Severable};

pub use ports::PortListener;

/// Bytes that wait in one direction of a connection, like a socket's buffer.
const PIPE_BYTES: usize = 64 << 10;

/// All sockets of one simulated node.
#[derive(Clone, Debug)]
pub struct MemoryHub {
    /// Whether client and server speak HTTP/2 over a pipe; else calls are handed over.
    speaks_http2: bool,
    pipes: Sockets<Severable>,
    calls: Sockets<ServerEnd>,
    ports: Ports,
    connections: Arc<Mutex<Vec<Connection>>>,
}

type Sockets<E> = Arc<Mutex<BTreeMap<Process, MemoryListener<E>>>>;

#[derive(Debug)]
struct Connection {
    client: Option<Process>,
    server: Option<Process>,
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
            ports: Ports::default(),
            connections: Arc::default(),
        }
    }

    /// The listening end of a process's socket. Connections made before and
    /// between two listeners are queued.
    #[must_use]
    pub fn listener(&self, server: Process) -> Listener {
        match self.speaks_http2 {
            true => Listener::accepting(socket(&self.pipes, server)),
            false => Listener::answering(socket(&self.calls, server)),
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
            let dies = connection.client == Some(process)
                || (connection.server == Some(process) && connection.accepted.is_cancelled());
            if dies {
                connection.broken.cancel();
            }
            !dies
        });
    }

    /// The sockets as one of the processes sees them.
    #[must_use]
    pub fn network(&self, client: Process, identities: &Identities) -> Network {
        self.network_of(client, identities.uid(client))
    }

    /// The sockets as the operator's command line sees them.
    #[must_use]
    pub fn network_of_operator(&self) -> Network {
        self.network_of(Process::Supervisor, 0)
    }

    fn network_of(&self, client: Process, uid: u32) -> Network {
        Network::of(Client {
            hub: self.clone(),
            client: (client, Peer { uid, pid: None }),
        })
    }

    pub(crate) fn connect_pipe(&self, client: (Process, Peer), server: Process) -> Severable {
        let ends = (Some(client.0), Some(server));
        self.pipe(ends, client.1, &socket(&self.pipes, server))
    }

    /// Has a process, or a stranger, listen at a port of the node until what this returns is
    /// dropped.
    ///
    /// # Errors
    /// When somebody listens there.
    pub fn listen_at_port(&self, server: Option<Process>, port: u16) -> io::Result<PortListener> {
        self.ports.listen(server, port)
    }

    /// Connects a process, or a stranger, to a port.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect_to_port(
        &self,
        client: Option<Process>,
        port: u16,
    ) -> io::Result<impl Stream + use<>> {
        let nobody = Peer { uid: 0, pid: None };
        let (server, queue) = self.ports.at(port)?;
        Ok(self.pipe((client, server), nobody, &queue))
    }

    fn pipe(
        &self,
        ends: (Option<Process>, Option<Process>),
        peer: Peer,
        queue: &MemoryListener<Severable>,
    ) -> Severable {
        let (client_end, server_end) = tokio::io::duplex(PIPE_BYTES);
        let broken = self.connect(ends, peer, queue, |broken| {
            Severable::new(server_end, broken)
        });
        Severable::new(client_end, &broken)
    }

    pub(crate) fn connect_calls(&self, client: (Process, Peer), server: Process) -> ClientEnd {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (ends, queue) = ((Some(client.0), Some(server)), socket(&self.calls, server));
        let broken = self.connect(ends, client.1, &queue, |broken| {
            ServerEnd::new(receiver, broken.clone())
        });
        ClientEnd::new(sender, broken)
    }

    /// Puts a new connection into the server's queue; what breaks it.
    fn connect<E>(
        &self,
        (client, server): (Option<Process>, Option<Process>),
        peer: Peer,
        queue: &MemoryListener<E>,
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
        queue.push(Queued {
            end: end(&broken),
            peer,
            accepted,
        });
        broken
    }
}

/// A process that connects.
#[derive(Clone, Debug)]
struct Client {
    hub: MemoryHub,
    client: (Process, Peer),
}

impl Connect for Client {
    fn channel(&self, server: Process) -> Channel {
        let Client { hub, client } = self.clone();
        if hub.speaks_http2 {
            return Channel::over(move || {
                let stream: Box<dyn Stream> = Box::new(hub.connect_pipe(client, server));
                std::future::ready(Ok(stream))
            });
        }
        let calls = CallChannel::new(move || hub.connect_calls(client, server));
        Channel::handed_to(move |request| calls.call(request))
    }
}

fn socket<E>(sockets: &Sockets<E>, server: Process) -> MemoryListener<E> {
    let mut sockets = sockets.lock().unwrap_or_else(PoisonError::into_inner);
    sockets.entry(server).or_default().clone()
}
