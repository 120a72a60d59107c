//! TLS of HTTPS probes, which take any certificate.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::Error;
use tokio_rustls::rustls::client::Resumption;

/// What HTTPS probes connect with.
pub(super) fn connector() -> Result<TlsConnector, Error> {
    let mut config = any_certificate::client()?.with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
