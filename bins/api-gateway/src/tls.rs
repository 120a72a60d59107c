//! TLS as the kubeconfig says: its authorities alone, the name of the server checked, and the
//! node's certificate shown. HTTP/2 or nothing.

use std::sync::Arc;
use std::time::Duration;

use clock::WallClock;
use node_config::{ApiCredential, ApiServer};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// Why there can be no connection by this kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The authorities are none.
    #[error("the kubeconfig's certificate-authority has no certificate that can be used")]
    Authority,
    /// The node's certificate is none.
    #[error("the kubeconfig's client-certificate has no certificate in PEM")]
    Certificate,
    /// The node's key is none.
    #[error("the kubeconfig's client-key has no key in PEM")]
    Key,
    /// The two do not fit, or TLS cannot be set up at all.
    #[error("the kubeconfig's client certificate cannot be used")]
    Setup(#[source] Error),
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

/// Makes connections that are trusted.
///
/// # Errors
/// When the kubeconfig's certificates or key cannot be used.
pub(crate) fn connector(server: &ApiServer, clock: WallClock) -> Result<TlsConnector, TlsError> {
    let mut roots = RootCertStore::empty();
    let authorities = CertificateDer::pem_slice_iter(server.authority.as_bytes());
    roots.add_parsable_certificates(authorities.flatten());
    if roots.is_empty() {
        return Err(TlsError::Authority);
    }
    let Some(ApiCredential { certificate, key }) = &server.credential else {
        return Err(TlsError::Key);
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate.as_bytes())
        .flatten()
        .collect();
    if chain.is_empty() {
        return Err(TlsError::Certificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| TlsError::Key)?;
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_details(provider, Arc::new(Time(clock)))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(TlsError::Setup)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// When the node's certificate ends, in seconds of Unix time; none where it does not say so in
/// a way that can be read.
pub(crate) fn certificate_end(server: &ApiServer) -> Option<i64> {
    let certificate = server.credential.as_ref()?.certificate.as_bytes();
    let first = CertificateDer::from_pem_slice(certificate).ok()?;
    let (_, parsed) = X509Certificate::from_der(&first).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn the_end_of_the_nodes_certificate_is_read() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_after = rcgen::date_time_ymd(2031, 7, 1);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let end = |certificate: &str| {
            certificate_end(&ApiServer {
                url: String::new(),
                server_name: None,
                authority: String::new(),
                credential: Some(ApiCredential {
                    certificate: certificate.to_owned(),
                    key: String::new(),
                }),
            })
        };
        assert_eq!(end(&certificate.pem()), Some(1_940_630_400));
        assert_eq!(end("none"), None);
    }
}
