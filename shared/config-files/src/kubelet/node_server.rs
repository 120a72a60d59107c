//! The fields of the node's own server, and the files that they name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use node_config::{Authorization, NodeServer, ServingCertificate};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::duration::GoDuration;
use super::problem::WrongValue;
use crate::pem_file;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Authentication {
    x509: X509,
    webhook: TokenWebhook,
    anonymous: Anonymous,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct X509 {
    #[serde(rename = "clientCAFile")]
    client_ca_file: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TokenWebhook {
    enabled: Option<bool>,
    #[serde(rename = "cacheTTL")]
    cache_ttl: Option<GoDuration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Anonymous {
    enabled: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GivenAuthorization {
    mode: String,
    webhook: AccessWebhook,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AccessWebhook {
    #[serde(rename = "cacheAuthorizedTTL")]
    authorized: Option<GoDuration>,
    #[serde(rename = "cacheUnauthorizedTTL")]
    unauthorized: Option<GoDuration>,
}

/// An object and nothing else: a list would be taken for one without names.
pub(super) fn object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let fields = Map::deserialize(deserializer)?;
    serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)
}

/// What the file says.
pub(super) struct Given<'a> {
    pub(super) enabled: Option<bool>,
    pub(super) address: &'a str,
    pub(super) port: i32,
    pub(super) health_address: &'a str,
    pub(super) health_port: Option<i32>,
    pub(super) certificate_file: &'a str,
    pub(super) key_file: &'a str,
    pub(super) min_version: &'a str,
    pub(super) authentication: &'a Authentication,
    pub(super) authorization: &'a GivenAuthorization,
    pub(super) debugging_handlers: Option<bool>,
    pub(super) stream_idle_timeout: Option<GoDuration>,
    pub(super) configuration: Map<String, Value>,
}

impl Given<'_> {
    /// The server; none where it is off.
    pub(super) fn server(self) -> Result<Option<NodeServer>, WrongValue> {
        if self.enabled == Some(false) {
            return Ok(None);
        }
        let certificate = self.certificate()?;
        let webhook = &self.authentication.webhook;
        let authority = &*self.authentication.x509.client_ca_file;
        let tls13_only = match self.min_version {
            "" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            _ => return Err(wrong("tlsMinVersion", "give VersionTLS12 or VersionTLS13")),
        };
        let token_review = webhook.enabled != Some(false);
        Ok(Some(NodeServer {
            address: socket(("address", self.address), ("port", self.port), 10250)?,
            health_address: self.health_address()?,
            certificate,
            tls13_only,
            client_authority: match authority {
                "" => None,
                path => Some(read("authentication.x509.clientCAFile", path)?),
            },
            anonymous: self.authentication.anonymous.enabled,
            token_review: token_review.then(|| given(webhook.cache_ttl, 120)),
            authorization: self.authorization()?,
            debugging_handlers: self.debugging_handlers != Some(false),
            stream_idle_timeout: given(self.stream_idle_timeout, 4 * 3600),
            configuration: self.configuration,
        }))
    }

    fn health_address(&self) -> Result<Option<SocketAddr>, WrongValue> {
        let address = match self.health_address {
            "" => "127.0.0.1",
            given => given,
        };
        match self.health_port {
            Some(0) => Ok(None),
            port => {
                let port = ("healthzPort", port.unwrap_or_default());
                socket(("healthzBindAddress", address), port, 10248).map(Some)
            }
        }
    }

    fn certificate(&self) -> Result<Option<ServingCertificate>, WrongValue> {
        match (self.certificate_file, self.key_file) {
            ("", "") => Ok(None),
            ("", _) => Err(wrong("tlsPrivateKeyFile", "tlsCertFile is missing")),
            (_, "") => Err(wrong("tlsCertFile", "tlsPrivateKeyFile is missing")),
            (chain, key) => Ok(Some(ServingCertificate {
                chain: read("tlsCertFile", chain)?,
                key: read("tlsPrivateKeyFile", key)?,
            })),
        }
    }

    fn authorization(&self) -> Result<Authorization, WrongValue> {
        let webhook = &self.authorization.webhook;
        match &*self.authorization.mode {
            "" | "Webhook" => Ok(Authorization::Webhook {
                authorized: given(webhook.authorized, 300),
                unauthorized: given(webhook.unauthorized, 30),
            }),
            "AlwaysAllow" => Ok(Authorization::AlwaysAllow),
            _ => Err(wrong("authorization.mode", "give Webhook or AlwaysAllow")),
        }
    }
}

fn wrong(field: &str, reason: impl Into<String>) -> WrongValue {
    WrongValue {
        field: field.to_owned(),
        reason: reason.into(),
    }
}

fn read(field: &str, path: &str) -> Result<String, WrongValue> {
    pem_file::read(Path::new(path)).map_err(|reason| wrong(field, format!("{path}: {reason}")))
}

fn given(duration: Option<GoDuration>, default_seconds: u64) -> Duration {
    let given = duration.map(|GoDuration(duration)| duration);
    let given = given.filter(|duration| !duration.is_zero());
    given.unwrap_or(Duration::from_secs(default_seconds))
}

/// An address that is listened on.
fn socket(
    (address_field, address): (&str, &str),
    (port_field, port): (&str, i32),
    default_port: u16,
) -> Result<SocketAddr, WrongValue> {
    let address: IpAddr = match address {
        "" => Ipv4Addr::UNSPECIFIED.into(),
        text => text
            .parse()
            .map_err(|_| wrong(address_field, format!("{text:?} is no IP address")))?,
    };
    let port = match u16::try_from(port) {
        Ok(0) => default_port,
        Ok(port) => port,
        Err(_) => return Err(wrong(port_field, format!("{port} is no port"))),
    };
    Ok(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(
        change: impl FnOnce(&mut Given<'_>),
        authentication: Value,
        authorization: Value,
    ) -> Result<Option<NodeServer>, String> {
        let authentication = serde_json::from_value(authentication).unwrap();
        let authorization = serde_json::from_value(authorization).unwrap();
        let mut given = Given {
            enabled: None,
            address: "",
            port: 0,
            health_address: "",
            health_port: None,
            certificate_file: "",
            key_file: "",
            min_version: "",
            authentication: &authentication,
            authorization: &authorization,
            debugging_handlers: None,
            stream_idle_timeout: None,
            configuration: Map::new(),
        };
        change(&mut given);
        given.server().map_err(|error| error.to_string())
    }

    #[test]
    fn without_fields_the_server_is_a_kubelets() {
        let server = server(|_| {}, json!({}), json!({})).unwrap().unwrap();
        assert_eq!(server.address.to_string(), "0.0.0.0:10250");
        let health = server.health_address.unwrap().to_string();
        assert_eq!(health, "127.0.0.1:10248");
        assert_eq!(server.token_review, Some(Duration::from_secs(120)));
        let expected = Authorization::Webhook {
            authorized: Duration::from_secs(300),
            unauthorized: Duration::from_secs(30),
        };
        assert_eq!(server.authorization, expected);
        assert!(!server.anonymous && server.debugging_handlers && !server.tls13_only);
        assert_eq!(server.client_authority, None);
    }

    #[test]
    fn fields_are_applied_or_refused_by_name() {
        let off = server(|it| it.enabled = Some(false), json!({}), json!({}));
        assert_eq!(off, Ok(None));
        let open = server(
            |it| (it.port, it.health_port) = (10260, Some(0)),
            json!({"webhook": {"enabled": false}, "anonymous": {"enabled": true}}),
            json!({"mode": "AlwaysAllow"}),
        );
        let open = open.unwrap().unwrap();
        assert!(!open.asks_reviews() && open.anonymous);
        assert_eq!((open.address.port(), open.health_address), (10260, None));
        let short = server(
            |_| {},
            json!({"webhook": {"cacheTTL": "5s"}}),
            json!({"webhook": {"cacheAuthorizedTTL": "6s", "cacheUnauthorizedTTL": "7s"}}),
        );
        let short = short.unwrap().unwrap();
        assert_eq!(short.token_review, Some(Duration::from_secs(5)));
        let missing = json!({"x509": {"clientCAFile": "/is/not/there"}});
        for (found, field) in [
            (server(|it| it.port = 70_000, json!({}), json!({})), "port"),
            (
                server(|it| it.address = "here", json!({}), json!({})),
                "address",
            ),
            (
                server(|it| it.key_file = "/k", json!({}), json!({})),
                "tlsPrivateKeyFile",
            ),
            (
                server(|it| it.certificate_file = "/c", json!({}), json!({})),
                "tlsCertFile",
            ),
            (
                server(|it| it.min_version = "1.1", json!({}), json!({})),
                "tlsMinVersion",
            ),
            (
                server(|_| {}, json!({}), json!({"mode": "RBAC"})),
                "authorization.mode",
            ),
            (
                server(|_| {}, missing, json!({})),
                "authentication.x509.clientCAFile",
            ),
        ] {
            let error = found.unwrap_err();
            assert!(error.starts_with(field), "{error}");
        }
    }
}
