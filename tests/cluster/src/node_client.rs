//! What the API server does when somebody asks it for something of a node: it connects to the
//! node's own server with its client certificate. The double of a control plane leaves that
//! to its clients.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use remote_command::{Event, Outcome, Output, Size, Streams};
use test_support::node::TestNode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::kubectl::Ended;

/// Where a node serves.
const PORT: u16 = 10250;

/// A connection to a node's own server.
pub type Connection = TlsStream<TcpStream>;

/// A client of the node's own server.
pub struct NodeClient {
    node: Arc<TestNode>,
    from: Ipv4Addr,
    connector: TlsConnector,
    runtime: tokio::runtime::Runtime,
}

impl NodeClient {
    /// With the certificate and key `kubelet-client` in this directory.
    ///
    /// # Errors
    /// When they cannot be used.
    pub fn new(node: &Arc<TestNode>, directory: &Path) -> Result<NodeClient> {
        let read = |ending: &str| fs::read(directory.join(format!("kubelet-client.{ending}")));
        let chain = CertificateDer::pem_slice_iter(&read("crt")?).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&read("key")?)?;
        let config = any_certificate::client()?.with_client_auth_cert(chain, key)?;
        NodeClient::with(node, Ipv4Addr::UNSPECIFIED, config)
    }

    /// Without credentials, and at an address of its own.
    ///
    /// # Errors
    /// When there can be no client.
    pub fn without_credentials(node: &Arc<TestNode>) -> Result<NodeClient> {
        let config = any_certificate::client()?.with_no_client_auth();
        NodeClient::with(node, Ipv4Addr::new(127, 0, 0, 2), config)
    }

    fn with(node: &Arc<TestNode>, from: Ipv4Addr, config: ClientConfig) -> Result<NodeClient> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(NodeClient {
            node: Arc::clone(node),
            from,
            connector: TlsConnector::from(Arc::new(config)),
            runtime,
        })
    }

    /// Does what takes connections.
    pub fn block_on<T>(&self, action: impl Future<Output = T>) -> T {
        self.runtime.block_on(action)
    }

    /// Connects, and says nothing.
    ///
    /// # Errors
    /// When the node does not listen.
    pub async fn connect_silently(&self) -> Result<TcpStream> {
        // The socket stays in the namespace that it was made in.
        let socket = self.node.run(TcpSocket::new_v4)??;
        socket.bind(SocketAddr::from((self.from, 0)))?;
        let address = SocketAddr::from((self.node.address(), PORT));
        Ok(socket.connect(address).await?)
    }

    /// Connects, and shakes hands.
    ///
    /// # Errors
    /// When the node does not.
    pub async fn connect(&self) -> Result<Connection> {
        let stream = self.connect_silently().await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.node.address());
        Ok(self.connector.connect(name, stream).await?)
    }

    /// Status and text of an answer.
    pub(crate) fn get(&self, path: &str) -> Result<(u16, String)> {
        self.block_on(async { ask(self.connect().await?, Method::GET, path).await })
    }

    /// The same of a request that does something.
    pub(crate) fn post(&self, path: &str) -> Result<(u16, String)> {
        self.block_on(async { ask(self.connect().await?, Method::POST, path).await })
    }

    /// Reads an answer until this text is in it.
    pub(crate) fn get_until(&self, path: &str, text: &str) -> Result<()> {
        self.block_on(async {
            let mut stream = self.connect().await?;
            let request = format!("GET {path} HTTP/1.1\r\nhost: node\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut read = String::new();
            let mut buffer = [0; 4096];
            while !read.contains(text) {
                let count = stream.read(&mut buffer).await?;
                ensure!(count > 0, "the answer ends without {text:?}: {read}");
                read += &String::from_utf8_lossy(&buffer[..count]);
            }
            Ok(())
        })
    }

    /// How a command ended, with this input; with `until`, what came until that came.
    pub(crate) fn session(
        &self,
        path: &str,
        streams: Streams,
        input: &str,
        until: Option<&str>,
    ) -> Result<Ended> {
        self.block_on(async {
            let stream = self.connect().await?;
            let (sender, output) = remote_command::command(stream, path, streams).await?;
            if streams.stdin {
                sender.send(input.as_bytes()).await;
                if until.is_none() {
                    sender.end().await;
                }
            }
            read(output, until).await
        })
    }

    /// How a command at a terminal of this size ended where these keys were pressed.
    pub(crate) fn shell(&self, path: &str, size: Size, keys: &str) -> Result<Ended> {
        let streams = Streams {
            stdin: true,
            stdout: true,
            stderr: false,
            tty: true,
        };
        self.block_on(async {
            let stream = self.connect().await?;
            let (sender, output) = remote_command::command(stream, path, streams).await?;
            sender.resize(size).await;
            sender.send(keys.as_bytes()).await;
            read(output, None).await
        })
    }

    /// What a port of a pod answers to a request of HTTP.
    pub(crate) fn ask_port(&self, path: &str, port: u16) -> Result<String> {
        self.block_on(async {
            let stream = self.connect().await?;
            let (near, mut far) = tokio::io::duplex(4096);
            let forwarding = remote_command::forward(stream, path, port, near);
            let asking = async {
                far.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                    .await?;
                let mut answer = String::new();
                far.read_to_string(&mut answer).await?;
                Ok::<_, anyhow::Error>(answer)
            };
            let (forwarded, answer) = tokio::join!(forwarding, asking);
            forwarded.context("the port is not forwarded")?;
            answer
        })
    }
}

/// What a command says and how it ends; with `until`, what it says until that came.
async fn read(mut output: Output, until: Option<&str>) -> Result<Ended> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let code = loop {
        match output.next().await? {
            Event::Stdout(bytes) => stdout.extend(bytes),
            Event::Stderr(bytes) => stderr.extend(bytes),
            Event::Ended(Outcome::Exited(code)) => break Some(code),
            Event::Ended(Outcome::Failed(reason)) => {
                stderr.extend(reason.into_bytes());
                break Some(1);
            }
        }
        let so_far = String::from_utf8_lossy(&stdout);
        if until.is_some_and(|until| so_far.contains(until)) {
            break None;
        }
    };
    Ok(Ended {
        code,
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    })
}

/// Status and text of an answer.
///
/// # Errors
/// When the connection breaks.
pub async fn ask(connection: Connection, method: Method, path: &str) -> Result<(u16, String)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(connection)).await?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "node")
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
