//! A double of a Kubernetes API server inside a node, with the smallest controllers: for tests
//! of a node in a cluster where there is no real one. It has what these need and that a real
//! one has shown, and can be broken in ways that a real one cannot.
//!
//! ```text
//!   requests --> serve --> fault --> state --> rules, patch --> store --> watch --> lines
//!   a test's calls ------------------^  '--> controllers, until they have nothing to do
//! ```

mod controllers;
mod fault;
mod patch;
mod request;
mod rules;
mod selector;
mod serve;
mod state;
mod store;
mod watch;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

pub use fault::Fault;

use crate::node::TestNode;
use serve::Shared;
use state::State;
use store::Key;

/// Serves until it is dropped.
#[derive(Debug)]
pub struct ApiServer {
    /// Without one it listens on this machine.
    node: Option<Arc<TestNode>>,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    /// With a certificate that is too old.
    expired_tls: Arc<ServerConfig>,
    shared: Arc<Shared>,
    /// Absent while it was stopped.
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl ApiServer {
    /// Starts one on this port of the node's loopback interface; `node_name` is the name of the
    /// Node. `directory` has `server.crt` and `server.key`, the same as `expired`, and in `ca.crt`
    /// the authority of the certificates of clients.
    ///
    /// # Errors
    /// When the certificates cannot be used, or the port cannot be opened.
    pub fn start(
        node: &Arc<TestNode>,
        node_name: &str,
        port: u16,
        directory: &Path,
    ) -> Result<ApiServer> {
        ApiServer::start_on(Some(Arc::clone(node)), node_name, port, directory)
    }

    /// Starts one on a free port of this machine's loopback interface.
    ///
    /// # Errors
    /// See [`ApiServer::start`].
    pub fn start_on_this_machine(node_name: &str, directory: &Path) -> Result<ApiServer> {
        ApiServer::start_on(None, node_name, 0, directory)
    }

    fn start_on(
        node: Option<Arc<TestNode>>,
        node_name: &str,
        port: u16,
        directory: &Path,
    ) -> Result<ApiServer> {
        let mut server = ApiServer {
            node,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            tls: Arc::new(certified(directory, "server")?),
            expired_tls: Arc::new(certified(directory, "expired")?),
            shared: Arc::new(Shared::new(State::new(node_name)?)),
            running: None,
        };
        server.start_again()?;
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens again, with the objects that it had.
    ///
    /// # Errors
    /// When the port cannot be opened.
    pub fn start_again(&mut self) -> Result<()> {
        let address = self.address;
        // The socket stays in the namespace that it was made in.
        let listener = match &self.node {
            Some(node) => node.run(|| TcpListener::bind(address)).flatten(),
            None => TcpListener::bind(address),
        };
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        self.address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let has_expired = self.shared.with(|state| state.has_expired());
        let tls = match has_expired {
            true => &self.expired_tls,
            false => &self.tls,
        };
        let tls = TlsAcceptor::from(Arc::clone(tls));
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                    return;
                };
                tokio::select! {
                    _ = stopped => {}
                    _ = serve::serve(listener, tls, shared) => {}
                }
            });
            // Ends connections and watches.
            drop(runtime);
        });
        self.running = Some(Running { stop, thread });
        Ok(())
    }

    /// Closes the port and all connections, as an API server's end does.
    pub fn stop(&mut self) {
        if let Some(Running { stop, thread }) = self.running.take() {
            drop(stop);
            drop(thread.join());
        }
    }

    /// Answers in this way from now on, or as it should.
    ///
    /// # Errors
    /// When it has to start again, and the port cannot be opened.
    pub fn set_fault(&mut self, fault: Option<Fault>) -> Result<()> {
        let had_expired = self.shared.with(|state| state.has_expired());
        let has_expired = self.shared.with(|state| {
            state.set_fault(fault);
            state.has_expired()
        });
        if had_expired != has_expired {
            self.stop();
            self.start_again()?;
        }
        Ok(())
    }

    /// How many answers the fault has changed.
    #[must_use]
    pub fn faulty_answers(&self) -> u64 {
        self.shared.with(|state| state.faulty())
    }

    /// Creates an object, or merges it into the one that there is.
    ///
    /// # Errors
    /// When it is refused.
    pub fn apply(&self, object: &Value) -> Result<()> {
        let kind = object["kind"]
            .as_str()
            .context("an object without a kind")?;
        let resource = resource(kind);
        Ok(self
            .shared
            .with(|state| state.apply(&resource, object.clone()))?)
    }

    /// All objects of a kind.
    #[must_use]
    pub fn list(&self, kind: &str) -> Vec<Value> {
        let objects = self.shared.with(|state| state.store.list(&resource(kind)));
        objects.iter().map(|object| (**object).clone()).collect()
    }

    /// Deletes an object, with this grace or its own.
    ///
    /// # Errors
    /// When it is not there.
    pub fn delete(&self, kind: &str, name: &str, grace_seconds: Option<u32>) -> Result<()> {
        let options = json!({"gracePeriodSeconds": grace_seconds});
        let key = key(kind, name);
        Ok(self
            .shared
            .with(|state| state.delete(&key, &options))
            .map(drop)?)
    }

    /// Merges a strategic merge patch into an object, or into its status alone.
    ///
    /// # Errors
    /// When it is refused.
    pub fn patch(&self, kind: &str, name: &str, subresource: &str, patch: &Value) -> Result<()> {
        let key = key(kind, name);
        let patched = self
            .shared
            .with(|state| state.patch(&key, subresource, patch, true));
        Ok(patched.map(drop)?)
    }

    /// Keeps new pods away from a node, and deletes those that it has.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn drain(&self, node: &str) -> Result<()> {
        Ok(self.shared.with(|state| state.drain(node))?)
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The kind's plural, as paths have it.
fn resource(kind: &str) -> String {
    format!("{}s", kind.to_lowercase())
}

fn key(kind: &str, name: &str) -> Key {
    let resource = resource(kind);
    let namespace = match &*resource {
        "nodes" => "",
        _ => "default",
    };
    Key::new(&resource, namespace, name)
}

/// Asks clients for a certificate, as an API server does.
fn certified(directory: &Path, name: &str) -> Result<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let path = |name: &str| directory.join(name);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(path("ca.crt"))?)?;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let certificate = CertificateDer::from_pem_file(path(&format!("{name}.crt")))?;
    let key = PrivateKeyDer::from_pem_file(path(&format!("{name}.key")))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier.build()?)
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
