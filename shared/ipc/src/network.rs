//! Reaching another process.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::Endpoint;
use topology::{Identities, Process};

use crate::call_channel::CallChannel;
use crate::channel::Channel;
use crate::listener::Stream;
use crate::memory::MemoryHub;
use crate::peer::Peer;

/// How this process reaches the others. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Network(Arc<Transport>);

#[derive(Debug)]
enum Transport {
    Unix {
        run_dir: PathBuf,
    },
    Memory {
        hub: MemoryHub,
        client: Process,
        peer: Peer,
    },
}

impl Network {
    /// Sockets in `run_dir`, named by [`Process::socket_file_name`].
    #[must_use]
    pub fn unix(run_dir: impl Into<PathBuf>) -> Network {
        Network(Arc::new(Transport::Unix {
            run_dir: run_dir.into(),
        }))
    }

    /// Sockets of a simulated node, as seen by one of its processes.
    #[must_use]
    pub fn memory(hub: MemoryHub, client: Process, identities: &Identities) -> Network {
        let peer = Peer {
            uid: identities.uid(client),
            pid: None,
        };
        Network(Arc::new(Transport::Memory { hub, client, peer }))
    }

    /// Sockets of a simulated node, as seen by the operator's command line.
    #[must_use]
    pub fn memory_as_operator(hub: MemoryHub) -> Network {
        let peer = Peer { uid: 0, pid: None };
        Network(Arc::new(Transport::Memory {
            hub,
            client: Process::Supervisor,
            peer,
        }))
    }

    /// A channel to `server`. It connects when first used and again after the
    /// server restarted; while the server is down, calls wait in its socket.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn channel(&self, server: Process) -> Channel {
        let transport = Arc::clone(&self.0);
        if let Transport::Memory { hub, client, peer } = &*transport
            && !hub.speaks_http2()
        {
            let calls = CallChannel::new(hub.clone(), (*client, *peer), server);
            return Channel::in_memory(calls);
        }
        // The authority is never looked up: the connector ignores it.
        let endpoint = Endpoint::from_static("http://bulkhead");
        let connect = tower::service_fn(move |_| {
            let transport = Arc::clone(&transport);
            async move { transport.connect(server).await.map(TokioIo::new) }
        });
        Channel::by_sockets(endpoint.connect_with_connector_lazy(connect))
    }
}

impl Transport {
    async fn connect(&self, server: Process) -> io::Result<Box<dyn Stream>> {
        match self {
            Transport::Unix { run_dir } => {
                let stream = UnixStream::connect(run_dir.join(server.socket_file_name())).await?;
                Ok(Box::new(stream))
            }
            Transport::Memory { hub, client, peer } => {
                Ok(Box::new(hub.connect_pipe((*client, *peer), server)))
            }
        }
    }
}
