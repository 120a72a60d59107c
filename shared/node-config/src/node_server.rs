//! What the node serves over the network: :10250, and its health at :10248.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The node's own server, as a `KubeletConfiguration` says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeServer {
    /// `address` and `port`: 0.0.0.0 and 10250 by default.
    pub address: SocketAddr,
    /// `healthzBindAddress` and `healthzPort`: 127.0.0.1 and 10248 by default; absent where
    /// the port is 0.
    pub health_address: Option<SocketAddr>,
    /// `tlsCertFile` and `tlsPrivateKeyFile`; without them the server makes a certificate.
    pub certificate: Option<ServingCertificate>,
    /// `tlsMinVersion` is VersionTLS13.
    pub tls13_only: bool,
    /// What `authentication.x509.clientCAFile` has, in PEM: certificates of clients are
    /// checked by it. Absent: none is accepted.
    pub client_authority: Option<String>,
    /// `authentication.anonymous.enabled`.
    pub anonymous: bool,
    /// `authentication.webhook`: how long the API server's word about a bearer token stands,
    /// 2 min by default; absent where it is not enabled.
    pub token_review: Option<Duration>,
    /// `authorization`.
    pub authorization: Authorization,
    /// `enableDebuggingHandlers`: logs, commands and the like; true by default.
    pub debugging_handlers: bool,
    /// `streamingConnectionIdleTimeout`, 4 h by default.
    pub stream_idle_timeout: Duration,
    /// The KubeletConfiguration as it was given, for /configz.
    pub configuration: Map<String, Value>,
}

/// Who may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Authorization {
    /// Whoever was authenticated may do everything.
    AlwaysAllow,
    /// The API server decides (SubjectAccessReview).
    Webhook {
        /// How long its yes stands: 5 min by default.
        authorized: Duration,
        /// How long its no stands: 30 s by default.
        unauthorized: Duration,
    },
}

/// What the server shows to its clients. Its Debug form shows no key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServingCertificate {
    /// A chain in PEM.
    pub chain: String,
    /// In PEM; empty for all processes but the one that serves.
    pub key: String,
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ServingCertificate")
            .finish_non_exhaustive()
    }
}

impl NodeServer {
    /// Whether it asks the API server whom a token belongs to, or who may do what.
    #[must_use]
    pub fn asks_reviews(&self) -> bool {
        self.token_review.is_some() || self.authorization != Authorization::AlwaysAllow
    }

    /// The same without what is secret.
    #[must_use]
    pub fn without_secrets(&self) -> NodeServer {
        let mut public = self.clone();
        if let Some(certificate) = &mut public.certificate {
            certificate.key.clear();
        }
        public
    }
}
