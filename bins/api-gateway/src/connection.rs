//! One HTTP/2 connection to the API server.

use std::io;
use std::time::Duration;

use http::Uri;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use node_config::ApiServer;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Time for a connection with its handshakes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Silence after which the other end is asked whether it is there, and how long it may take
/// to answer: together, after so long a connection that leads nowhere is noticed. The
/// kubelet's HTTP/2 client asks after 30 s and waits 15 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes of one answer that may be on their way before they are read, and of all together.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig's server cannot be one.
    #[error("{url:?} is no address of an API server")]
    Url {
        /// What the kubeconfig says.
        url: String,
    },
    /// Nobody listens there, or the certificate is not that of the API server.
    #[error("cannot connect to {authority}")]
    Connect {
        /// Host and port.
        authority: String,
        /// The cause.
        source: io::Error,
    },
    /// The other end does not speak HTTP/2.
    #[error("{authority} does not speak HTTP/2")]
    Handshake {
        /// Host and port.
        authority: String,
        /// The cause.
        source: hyper::Error,
    },
    /// It took too long.
    #[error("no connection with {authority} within {} s", CONNECT_TIMEOUT.as_secs())]
    Timeout {
        /// Host and port.
        authority: String,
    },
}

/// Where the API server is, and how it is trusted.
#[derive(Clone)]
pub(crate) struct Address {
    host: String,
    port: u16,
    /// Host and port, for requests and for people.
    pub(crate) authority: String,
    /// What the kubeconfig's URL has before the paths of the API.
    pub(crate) prefix: String,
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl Address {
    /// # Errors
    /// When the URL cannot be one of an API server.
    pub(crate) fn new(server: &ApiServer, connector: TlsConnector) -> Result<Self, ConnectError> {
        let refused = || ConnectError::Url {
            url: node_config::url_without_secrets(&server.url),
        };
        let uri: Uri = server.url.parse().map_err(|_| refused())?;
        let authority = uri.authority().ok_or_else(refused)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let name = server.server_name.clone().unwrap_or_else(|| host.clone());
        Ok(Self {
            port: authority.port_u16().unwrap_or(443),
            authority: authority.as_str().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            name: ServerName::try_from(name).map_err(|_| refused())?,
            host,
            connector,
        })
    }

    /// Connects. The connection lives on as long as it is used.
    pub(crate) async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ConnectError> {
        let authority = || self.authority.clone();
        let connecting = async {
            let failed = |source| ConnectError::Connect {
                authority: authority(),
                source,
            };
            let stream = TcpStream::connect((self.host.as_str(), self.port));
            let stream = stream.await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            let stream = self.connector.connect(self.name.clone(), stream);
            let stream = stream.await.map_err(failed)?;
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(PING_INTERVAL)
                .keep_alive_timeout(PING_TIMEOUT)
                .keep_alive_while_idle(true)
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|source| ConnectError::Handshake {
                    authority: authority(),
                    source,
                })?;
            // Ends with the last use of `sender`, or with the connection, whose error comes
            // out of each request too.
            tokio::spawn(async move { drop(connection.await) });
            Ok(sender)
        };
        tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .unwrap_or_else(|_| {
                Err(ConnectError::Timeout {
                    authority: authority(),
                })
            })
    }
}
