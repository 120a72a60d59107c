//! The API server of the node's cluster, and the node's credentials for it, as a kubeconfig
//! names them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The current context of a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiServer {
    /// `server`: `https://host:port`.
    pub url: String,
    /// `tls-server-name`: the name in its certificate, where that is not the URL's host.
    pub server_name: Option<String>,
    /// `certificate-authority`: certificates in PEM that the server's is checked by.
    pub authority: String,
    /// Absent for all processes but api-gateway.
    pub credential: Option<ApiCredential>,
}

/// What the node shows to the API server. Its Debug form shows nothing of it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiCredential {
    /// `client-certificate`: a chain in PEM.
    pub certificate: String,
    /// `client-key`, in PEM.
    pub key: String,
}

impl fmt::Debug for ApiCredential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ApiCredential")
            .finish_non_exhaustive()
    }
}

impl ApiServer {
    /// The same without what is secret.
    #[must_use]
    pub fn without_secrets(&self) -> ApiServer {
        ApiServer {
            credential: None,
            ..self.clone()
        }
    }
}
