//! The network of node-api, in memory. A kill of node-api breaks its connections, and nobody
//! listens at its ports until it runs again.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use async_trait::async_trait;
use ipc::Stream;
use memory_network::{MemoryHub, PortListener};
use node_api::{Accepted, Listen, ServerNetwork};
use node_config::{Authorization, NodeServer};
use simulated_runtime::{SimulatedRuntime, StreamingServer as _};
use topology::Process;

/// Where clients ask, as with a kubelet: with TLS, and for its health without.
pub(crate) const CLIENTS_PORT: u16 = 10250;
pub(crate) const HEALTH_PORT: u16 = 10248;

/// What node-api is configured to: nobody has to be reviewed.
pub(crate) fn settings() -> NodeServer {
    NodeServer {
        address: ([0, 0, 0, 0], CLIENTS_PORT).into(),
        health_address: Some(([127, 0, 0, 1], HEALTH_PORT).into()),
        certificate: None,
        tls13_only: true,
        client_authority: None,
        anonymous: true,
        token_review: None,
        authorization: Authorization::AlwaysAllow,
        debugging_handlers: true,
        stream_idle_timeout: std::time::Duration::from_secs(4 * 3600),
        configuration: serde_json::Map::new(),
    }
}

/// The network as node-api sees it.
#[derive(Debug)]
pub(crate) struct NodeNetwork {
    pub(crate) hub: MemoryHub,
    pub(crate) runtime: SimulatedRuntime,
}

#[derive(Debug)]
struct Port(PortListener);

#[async_trait]
impl ServerNetwork for NodeNetwork {
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listen>> {
        let process = Some(Process::NodeApi);
        let listener = self.hub.listen_at_port(process, address.port())?;
        Ok(Box::new(Port(listener)))
    }

    async fn connect_to_runtime(&self, port: u16) -> io::Result<Box<dyn Stream>> {
        if self.runtime.is_away() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let process = Some(Process::NodeApi);
        Ok(Box::new(self.hub.connect_to_port(process, port)?))
    }
}

#[async_trait]
impl Listen for Port {
    async fn accept(&self) -> io::Result<Accepted> {
        Ok(Accepted {
            stream: Box::new(self.0.accept().await),
            from: Ipv4Addr::LOCALHOST.into(),
        })
    }
}
