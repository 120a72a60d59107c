//! TLS as the kubelet's HTTP client has it by default: the system's authorities,
//! or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`; TLS 1.2 or 1.3; the host's name
//! checked; and no way around any of it. What is sent through it is the business
//! of `http_client`.
//!
//! Authorities are read when they are first needed, and again after a handshake
//! has failed: an authority that the operator adds counts from the next request. One
//! that the other end never finishes has not failed, and says nothing about them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use clock::WallClock;
use rustls_native_certs::{CertificateResult, load_native_certs};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore};

/// Names of a certificate that are shown; a hostile one may have any number.
const MAX_SHOWN_NAMES: usize = 5;

/// Characters of such a name that are shown: a DNS name has no more.
const MAX_SHOWN_NAME: usize = 253;

/// Why there is no connection that could be trusted. None of the texts changes
/// from one attempt to the next: each would be told as another problem.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// There is nothing to check a certificate by.
    #[error(
        "no certificate authority is known ({reason}): install the system's CA certificates, \
         or set SSL_CERT_FILE for the supervisor to a PEM file that config-sourcer may read"
    )]
    NoAuthorities {
        /// What reading them has shown.
        reason: String,
    },
    /// The host cannot be in a certificate.
    #[error("{host:?} is no host name or address that a certificate could be for")]
    Host {
        /// The host of the URL.
        host: String,
    },
    /// The certificate does not prove that this is the host.
    #[error("the certificate of {authority} {problem}")]
    Certificate {
        /// Host and port.
        authority: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// The other end broke off, or does not speak TLS.
    #[error("no TLS handshake with {authority}: does it serve https there?")]
    Handshake {
        /// Host and port.
        authority: String,
        /// The cause.
        source: std::io::Error,
    },
    /// TLS cannot be set up at all.
    #[error("cannot set up TLS")]
    Setup(#[source] Error),
}

/// Reads the authorities; may block.
type ReadAuthorities = Arc<dyn Fn() -> CertificateResult + Send + Sync>;

/// Makes connections that are trusted.
pub(crate) struct Tls {
    clock: WallClock,
    read: ReadAuthorities,
    /// At most one: a file system that hangs gets no second reader.
    reading: Option<JoinHandle<CertificateResult>>,
    connector: Option<TlsConnector>,
}

impl Tls {
    /// With the system's authorities. `clock` tells whether a certificate is
    /// valid now.
    pub(crate) fn new(clock: WallClock) -> Self {
        Self::with_authorities(clock, Arc::new(load_native_certs))
    }

    pub(crate) fn with_authorities(clock: WallClock, read: ReadAuthorities) -> Self {
        Self {
            clock,
            read,
            reading: None,
            connector: None,
        }
    }

    /// Shakes hands with `host`, on a connection to `authority`. Takes as long as
    /// the other end likes: the caller's deadline ends it.
    pub(crate) async fn connect(
        &mut self,
        host: &str,
        authority: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, TlsError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Host {
            host: host.to_owned(),
        })?;
        let connector = match &self.connector {
            Some(connector) => connector.clone(),
            None => self.new_connector().await?,
        };
        self.connector = Some(connector.clone());
        // A caller that gives up proves nothing about the authorities.
        connector.connect(name, stream).await.map_err(|source| {
            self.connector = None;
            failure(authority, source)
        })
    }

    async fn new_connector(&mut self) -> Result<TlsConnector, TlsError> {
        let read = &self.read;
        let reading = self.reading.get_or_insert_with(|| {
            let read = Arc::clone(read);
            tokio::task::spawn_blocking(move || read())
        });
        // Cancel-safe: a caller that gives up leaves the reading to the next one.
        let found = reading.await;
        self.reading = None;
        let found = found.map_err(|error| TlsError::NoAuthorities {
            reason: error.to_string(),
        })?;
        let mut roots = RootCertStore::empty();
        let (_, unusable) = roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let reason = match found.errors.first() {
                Some(error) => error.to_string(),
                None if unusable > 0 => format!("{unusable} certificates cannot be used"),
                None => "none was found".to_owned(),
            };
            return Err(TlsError::NoAuthorities { reason });
        }
        let provider = Arc::new(ring::default_provider());
        let time = Arc::new(Time(self.clock.clone()));
        let mut config = ClientConfig::builder_with_details(provider, time)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tls")
            .field("connector", &self.connector.is_some())
            .finish_non_exhaustive()
    }
}

/// The time by which certificates are judged.
#[derive(Debug)]
struct Time(WallClock);

impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        let nanos = u64::try_from(self.0.now().0).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(nanos)))
    }
}

fn failure(authority: &str, source: std::io::Error) -> TlsError {
    let cause = source.get_ref().and_then(|cause| cause.downcast_ref());
    match cause {
        Some(Error::InvalidCertificate(error)) => TlsError::Certificate {
            authority: authority.to_owned(),
            problem: problem(error),
        },
        Some(Error::NoCertificatesPresented) => TlsError::Certificate {
            authority: authority.to_owned(),
            problem: "is missing: the server has to present one".to_owned(),
        },
        _ => TlsError::Handshake {
            authority: authority.to_owned(),
            source,
        },
    }
}

/// What is wrong with a certificate, and what to do about it.
fn problem(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "is issued by nobody who is known here: \
             add its CA to the system's certificates or to SSL_CERT_FILE of the supervisor"
            .to_owned(),
        CertificateError::BadSignature => "is signed by another key than that of the CA that is \
             known here under this name: put the CA's present certificate in the old one's place"
            .to_owned(),
        CertificateError::NotValidForName => "is for another name: \
             use a name that it is for, or have it issued for this one"
            .to_owned(),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "is not for {:?}, it is for {}: \
             use a name that it is for, or have it issued for this one",
            expected.to_str(),
            shown_names(presented)
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired: renew it on the server, or correct this node's clock".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet: correct this node's clock, or wait".to_owned()
        }
        // The webpki crate's word for a CA's own certificate, which Go takes.
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "is a CA's own: have that CA issue one for the server".to_owned()
        }
        other => format!("cannot be accepted ({other:?}): have another one issued")
            .chars()
            .take(MAX_SHOWN_NAME)
            .collect(),
    }
}

fn shown_names(names: &[String]) -> String {
    if names.is_empty() {
        return "no name at all (a subjectAltName is needed)".to_owned();
    }
    let mut shown: Vec<String> = names
        .iter()
        .take(MAX_SHOWN_NAMES)
        .map(|name| {
            let printable = name.chars().filter(|character| !character.is_control());
            printable.take(MAX_SHOWN_NAME).collect()
        })
        .collect();
    if names.len() > MAX_SHOWN_NAMES {
        shown.push(format!("{} others", names.len() - MAX_SHOWN_NAMES));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests;
