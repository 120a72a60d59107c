//! An HTTP server of manifests inside a node, plain or with TLS, for the HTTP
//! source: what it answers can be changed at any time.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::node::TestNode;

/// A client that says nothing must not hold the server for long.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct State {
    answer: Mutex<(u16, String)>,
    last_head: Mutex<String>,
    served: AtomicU64,
    ending: AtomicBool,
}

/// Serves until it is dropped.
#[derive(Debug)]
pub struct ManifestServer {
    address: SocketAddr,
    /// Who has issued its certificate, if it has one.
    authority: Option<PathBuf>,
    state: Arc<State>,
    node: Arc<TestNode>,
    thread: Option<JoinHandle<()>>,
}

impl ManifestServer {
    /// Starts one on a free port of the node's loopback interface.
    ///
    /// # Errors
    /// When no port can be opened.
    pub fn start(node: &Arc<TestNode>, status: u16, body: &str) -> Result<Self> {
        Self::listening(node, None, status, body)
    }

    /// The same with TLS, and a certificate of an authority that was made for it.
    ///
    /// # Errors
    /// When no port can be opened, or no certificate made.
    pub fn start_with_tls(node: &Arc<TestNode>, status: u16, body: &str) -> Result<Self> {
        let authority = node.directory().join("manifest-server-ca.pem");
        let config = Arc::new(certified(&authority)?);
        let mut server = Self::listening(node, Some(config), status, body)?;
        server.authority = Some(authority);
        Ok(server)
    }

    fn listening(
        node: &Arc<TestNode>,
        tls: Option<Arc<ServerConfig>>,
        status: u16,
        body: &str,
    ) -> Result<Self> {
        // The socket stays in the namespace that it was made in.
        let listener = node
            .run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .and_then(|result| result)
            .context("cannot open a port")?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let of_thread = Arc::clone(&state);
        let thread = std::thread::spawn(move || serve(&listener, tls.as_ref(), &of_thread));
        let server = Self {
            address,
            authority: None,
            state,
            node: Arc::clone(node),
            thread: Some(thread),
        };
        server.answer(status, body);
        Ok(server)
    }

    /// For `staticPodURL`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = self.authority.as_ref().map_or("http", |_| "https");
        format!("{scheme}://{}/pods", self.address)
    }

    /// The file with the certificate of its authority.
    #[must_use]
    pub fn authority(&self) -> Option<&Path> {
        self.authority.as_deref()
    }

    /// What to answer from now on.
    pub fn answer(&self, status: u16, body: &str) {
        *lock(&self.state.answer) = (status, body.to_owned());
    }

    /// How many requests were answered.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.state.served.load(Ordering::SeqCst)
    }

    /// Request line and headers of the last request.
    #[must_use]
    pub fn last_head(&self) -> String {
        lock(&self.state.last_head).clone()
    }
}

impl Drop for ManifestServer {
    fn drop(&mut self) {
        self.state.ending.store(true, Ordering::SeqCst);
        // Wakes the thread, which then sees that it is over.
        let address = self.address;
        let _ = self.node.run(|| TcpStream::connect(address).map(drop));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// For the loopback address, by an authority whose certificate is written to
/// `file`.
fn certified(file: &Path) -> Result<ServerConfig> {
    let mut of_authority = CertificateParams::new(Vec::new())?;
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(of_authority, KeyPair::generate()?)?;
    fs::write(file, authority.pem()).context("cannot write the authority's certificate")?;
    let address = IpAddr::from(Ipv4Addr::LOCALHOST).to_string();
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![address])?.signed_by(&key, &authority)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .context("cannot use the certificate")
}

fn serve(listener: &TcpListener, tls: Option<&Arc<ServerConfig>>, state: &State) {
    for stream in listener.incoming() {
        if state.ending.load(Ordering::SeqCst) {
            return;
        }
        // A client that went away concerns nobody.
        if let Ok(stream) = stream {
            let _ = accept(stream, tls, state);
        }
    }
}

fn accept(
    stream: TcpStream,
    tls: Option<&Arc<ServerConfig>>,
    state: &State,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let Some(tls) = tls else {
        return answer(stream, state);
    };
    let connection = ServerConnection::new(Arc::clone(tls)).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    answer(&mut stream, state)?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn answer(mut stream: impl Read + Write, state: &State) -> std::io::Result<()> {
    let mut head = String::new();
    let mut reader = BufReader::new(&mut stream);
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head)? > 0 {}
    *lock(&state.last_head) = head;
    let (status, body) = lock(&state.answer).clone();
    write!(
        stream,
        "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    state.served.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
