//! TLS towards clients: 1.2 or newer, as rustls has it by default; a client's certificate is
//! asked for, checked by `clientCAFile` where there is one, and may be missing.

use std::sync::Arc;
use std::time::Duration;

use clock::WallClock;
use node_config::{NodeServer, ServingCertificate};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// A field's text is not in PEM.
    #[error("{what} cannot be read as PEM")]
    Pem {
        /// Which.
        what: &'static str,
        /// The cause.
        source: pem::Error,
    },
    /// Certificate and key do not go together, or cannot be used.
    #[error("tlsCertFile and tlsPrivateKeyFile cannot be used")]
    Certificate(#[source] Error),
    /// No client could be checked.
    #[error("authentication.x509.clientCAFile cannot be used")]
    Authority(#[source] VerifierBuilderError),
}

#[derive(Debug)]
struct Time(WallClock);

impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        let nanos = u64::try_from(self.0.now().0).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(nanos)))
    }
}

/// Whoever shakes hands with clients.
pub(crate) fn acceptor(
    server: &NodeServer,
    certificate: &ServingCertificate,
    clock: WallClock,
) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let versions: &[_] = match server.tls13_only {
        true => &[&TLS13],
        false => &[&TLS13, &TLS12],
    };
    let builder = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(Time(clock)))
        .with_protocol_versions(versions)
        .map_err(TlsError::Certificate)?;
    let builder = match &server.client_authority {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let listed = certificates("authentication.x509.clientCAFile", authority)?;
            roots.add_parsable_certificates(listed);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(TlsError::Authority)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = certificates("tlsCertFile", &certificate.chain)?;
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes());
    let key = key.map_err(|source| TlsError::Pem {
        what: "tlsPrivateKeyFile",
        source,
    })?;
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(TlsError::Certificate)?;
    // An upgrade needs HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A session that is resumed would be one more thing to keep for whoever comes.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(tokio_rustls::rustls::server::NoServerSessionStorage {});
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(what: &'static str, text: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|source| TlsError::Pem { what, source })
}
