//! Debug of the messages that carry secrets: registry passwords and the addresses of sessions
//! stay out of logs.

use crate::v1::{AttachResponse, AuthConfig, ExecResponse, PortForwardResponse};

impl std::fmt::Debug for AuthConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("AuthConfig")
            .field("server_address", &self.server_address)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ExecResponse {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ExecResponse(..)")
    }
}

impl std::fmt::Debug for AttachResponse {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AttachResponse(..)")
    }
}

impl std::fmt::Debug for PortForwardResponse {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PortForwardResponse(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let secret = || "hunter2".to_owned();
        let auth = AuthConfig {
            username: secret(),
            password: secret(),
            auth: secret(),
            server_address: "registry.example".to_owned(),
            identity_token: secret(),
            registry_token: secret(),
        };
        assert_eq!(
            format!("{auth:?}"),
            r#"AuthConfig { server_address: "registry.example", .. }"#
        );
    }
}
