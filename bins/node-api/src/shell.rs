//! The process: its listening sockets and its certificate, and the servers until shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use clock::WallClock;
use node_config::{NodeConfig, NodeServer};
use process::Context;
use tokio_rustls::TlsAcceptor;
use tonic::service::Routes;
use topology::Process;

use crate::certificate::{self, CertificateError};
use crate::network::{Listen, ServerNetwork, Tcp};
use crate::node::Node;
use crate::server::{Server, serve_health};
use crate::tls::{self, TlsError};

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Cause);

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("cannot listen on {address}: does another node agent run here?")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot go on serving")]
    Serve(#[from] ipc::ServeError),
}

/// What is made before the process is sealed; nothing on a node that serves nothing.
#[derive(Debug)]
pub struct Opened(Option<Listening>);

struct Listening {
    settings: NodeServer,
    clients: Box<dyn Listen>,
    health: Option<Box<dyn Listen>>,
    acceptor: TlsAcceptor,
    network: Arc<dyn ServerNetwork>,
}

/// What it is, and no key.
impl std::fmt::Debug for Listening {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Listening");
        shown.field("clients", &self.clients);
        shown.field("health", &self.health).finish_non_exhaustive()
    }
}

/// Listens, and finds or makes the certificate.
///
/// # Errors
/// When an address is taken, or the certificate cannot be used.
pub fn open(config: &NodeConfig) -> Result<Opened, Error> {
    open_on(config, WallClock::system(), Arc::new(Tcp))
}

/// The same on a network that is not the node's, with another clock.
///
/// # Errors
/// When an address is taken, or the certificate cannot be used.
pub fn open_on(
    config: &NodeConfig,
    clock: WallClock,
    network: Arc<dyn ServerNetwork>,
) -> Result<Opened, Error> {
    Ok(Opened(listening(config, clock, network)?))
}

fn listening(
    config: &NodeConfig,
    clock: WallClock,
    network: Arc<dyn ServerNetwork>,
) -> Result<Option<Listening>, Cause> {
    let Some(settings) = &config.node_server else {
        return Ok(None);
    };
    let certificate = match &settings.certificate {
        Some(given) => given.clone(),
        None => {
            let state_dir = config.directories.state(Process::NodeApi);
            certificate::own(config, clock.now(), &state_dir)?
        }
    };
    let listen = |address| {
        let bound = network.listen(address);
        bound.map_err(|source| Cause::Listen { address, source })
    };
    Ok(Some(Listening {
        acceptor: tls::acceptor(settings, &certificate, clock)?,
        clients: listen(settings.address)?,
        health: settings.health_address.map(listen).transpose()?,
        settings: settings.clone(),
        network,
    }))
}

/// Serves until shutdown.
///
/// # Errors
/// When the listening socket of the process itself fails.
pub async fn serve(context: Context, Opened(listening): Opened) -> Result<(), Error> {
    if listening.is_none() {
        context.lifecycle.set_status("no server is configured");
    }
    let node = Arc::new(Node::new(&context.network));
    let node_name = context.config.node_name.clone();
    let clock = context.clock.clone();
    let serving_clients = async {
        let Some(listening) = listening else {
            return std::future::pending().await;
        };
        let health = listening.health;
        let serving_health = async {
            match health {
                Some(listener) => serve_health(Arc::clone(&node), listener).await,
                None => std::future::pending().await,
            }
        };
        let server = Server::new(
            Arc::clone(&node),
            listening.network,
            node_name,
            listening.settings,
            clock,
        );
        let server = Arc::new(server);
        tokio::select! {
            never = server.serve(listening.clients, listening.acceptor) => never,
            never = serving_health => never,
        }
    };
    // It serves no process: what it answers is answered over the network.
    let serving = ipc::serve(
        context.process,
        context.identities,
        context.listener,
        Routes::default(),
        context.lifecycle.shutdown(),
    );
    context.lifecycle.ready();
    tokio::select! {
        result = serving => Ok(result.map_err(Cause::from)?),
        never = context.lifecycle.keep_beating() => match never {},
        never = serving_clients => match never {},
    }
}
