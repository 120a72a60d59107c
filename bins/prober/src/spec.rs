//! What a probe asks for: `core/v1` Probe, decoded into what this process acts
//! on, with ports by name looked up.
//!
//! Probes arrive admitted, so their fields have sensible values; what has not is
//! made harmless here and never stops another probe. Their size is bounded by the
//! message that they arrive in.

use std::time::Duration;

use pod::core::{ContainerPort, GRPCAction, HTTPGetAction, TCPSocketAction};
use pod::{IntOrString, core};

/// Longest timeout of a probe, against one that would hold a place for ever. The pool
/// gives a command no more either.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// What all probes may take in memory: 1.6 KiB each, of as many instances as there may be.
pub(crate) const MAX_SPEC_BYTES: usize = 8 << 20;

/// When a probe is tried and what its tries add up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// From the start of the container to the first try.
    pub initial_delay: Duration,
    /// From one try to the next.
    pub period: Duration,
    /// A try that takes longer is a failure.
    pub timeout: Duration,
    /// Successes in a row that make a success.
    pub success_threshold: u32,
    /// Failures in a row that make a failure.
    pub failure_threshold: u32,
}

impl Default for Timing {
    /// The API's defaults.
    fn default() -> Self {
        Timing {
            initial_delay: Duration::ZERO,
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            success_threshold: 1,
            failure_threshold: 3,
        }
    }
}

/// `http` or `https`; a certificate is never checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Plain.
    Http,
    /// TLS.
    Https,
}

/// An HTTP GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpGet {
    /// Plain or TLS.
    pub scheme: Scheme,
    /// Whom to ask; absent: the pod's address.
    pub host: Option<String>,
    /// Where.
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// Custom headers in order; `Host` among them.
    pub headers: Vec<(String, String)>,
}

/// A TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TcpSocket {
    /// Whom to connect to; absent: the pod's address.
    pub host: Option<String>,
    /// Where.
    pub port: u16,
}

/// A call of `grpc.health.v1.Health/Check` at the pod's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grpc {
    /// Where.
    pub port: u16,
    /// The service asked about; empty: the whole server.
    pub service: String,
}

/// What one try does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// An HTTP GET.
    Http(HttpGet),
    /// A TCP connection.
    Tcp(TcpSocket),
    /// A gRPC health check.
    Grpc(Grpc),
    /// A command in the container, which the pool knows.
    Exec,
    /// None that can be done; each try is thrown away for this reason.
    Impossible(String),
}

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeSpec {
    /// What.
    pub action: Action,
    /// When.
    pub timing: Timing,
}

/// Why a probe cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpecError {
    /// It is not a `core/v1` Probe.
    #[error("not a probe")]
    Format(#[from] serde_json::Error),
}

impl ProbeSpec {
    /// Decodes a probe; `ports` are those of its container, for ports by name.
    ///
    /// # Errors
    /// When the JSON is not a probe.
    pub(crate) fn decode(json: &[u8], ports: &[ContainerPort]) -> Result<ProbeSpec, SpecError> {
        let probe: core::Probe = serde_json::from_slice(json)?;
        let timing = timing(&probe);
        let action = action(probe, ports).unwrap_or_else(Action::Impossible);
        Ok(ProbeSpec { action, timing })
    }

    /// What it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let texts = match &self.action {
            Action::Http(get) => {
                let headers = get.headers.iter();
                let headers = headers.map(|(name, value)| name.len() + value.len());
                let host = get.host.as_ref().map_or(0, String::len);
                let list = size_of_val(get.headers.as_slice());
                host + get.path.len() + list + headers.sum::<usize>()
            }
            Action::Tcp(socket) => socket.host.as_ref().map_or(0, String::len),
            Action::Grpc(grpc) => grpc.service.len(),
            Action::Exec => 0,
            Action::Impossible(reason) => reason.len(),
        };
        size_of_val(self) + texts
    }
}

/// Decodes a container's ports; what cannot be decoded counts as no ports.
#[must_use]
pub(crate) fn decode_ports(json: &[u8]) -> Vec<ContainerPort> {
    if json.is_empty() {
        return Vec::new();
    }
    serde_json::from_slice(json).unwrap_or_default()
}

/// The timing, with the API's defaults where a value is missing or senseless.
fn timing(probe: &core::Probe) -> Timing {
    let usual = Timing::default();
    let at_least = |value: Option<i32>, least: u32, usual: u32| {
        let value = value.and_then(|value| u32::try_from(value).ok());
        value.filter(|value| *value >= least).unwrap_or(usual)
    };
    let seconds = |value: Option<i32>, least: u64, usual: Duration| {
        let value = value.and_then(|value| u64::try_from(value).ok());
        value
            .filter(|value| *value >= least)
            .map_or(usual, Duration::from_secs)
    };
    Timing {
        initial_delay: seconds(probe.initial_delay_seconds, 0, usual.initial_delay),
        period: seconds(probe.period_seconds, 1, usual.period),
        timeout: seconds(probe.timeout_seconds, 1, usual.timeout).min(MAX_TIMEOUT),
        success_threshold: at_least(probe.success_threshold, 1, usual.success_threshold),
        failure_threshold: at_least(probe.failure_threshold, 1, usual.failure_threshold),
    }
}

fn action(probe: core::Probe, ports: &[ContainerPort]) -> Result<Action, String> {
    // The order of the kubelet, should there be several.
    if probe.exec.is_some() {
        return Ok(Action::Exec);
    }
    if let Some(http_get) = probe.http_get {
        return http(http_get, ports).map(Action::Http);
    }
    if let Some(TCPSocketAction { host, port }) = probe.tcp_socket {
        let host = host_name(host);
        let port = resolve_port(&port, ports)?;
        return Ok(Action::Tcp(TcpSocket { host, port }));
    }
    if let Some(GRPCAction {
        mode,
        port,
        service,
    }) = probe.grpc
    {
        // The pool refuses such a pod. A probe without TLS would tell something else.
        if let Some(mode) = mode.filter(|mode| !["", "Plaintext"].contains(&mode.as_str())) {
            return Err(format!("mode {mode:?} is not supported"));
        }
        let port = port_number(port)?;
        let service = service.unwrap_or_default();
        return Ok(Action::Grpc(Grpc { port, service }));
    }
    Err("the probe has no handler".to_owned())
}

fn http(action: HTTPGetAction, ports: &[ContainerPort]) -> Result<HttpGet, String> {
    if let Some(protocol) = action.protocol.filter(|protocol| !protocol.is_empty()) {
        return Err(format!("protocol {protocol:?} is not supported"));
    }
    let headers = action.http_headers.unwrap_or_default();
    let headers = headers
        .into_iter()
        .map(|header| (header.name, header.value))
        .collect();
    let scheme = match action.scheme.as_deref().unwrap_or("HTTP") {
        scheme if scheme.eq_ignore_ascii_case("http") => Scheme::Http,
        scheme if scheme.eq_ignore_ascii_case("https") => Scheme::Https,
        other => return Err(format!("unknown scheme {other:?}")),
    };
    Ok(HttpGet {
        scheme,
        host: host_name(action.host),
        port: resolve_port(&action.port, ports)?,
        path: action.path.unwrap_or_default(),
        headers,
    })
}

fn host_name(host: Option<String>) -> Option<String> {
    host.filter(|host| !host.is_empty())
}

/// A port by number, by its name among the container's ports, or by a number
/// written as text.
fn resolve_port(port: &IntOrString, ports: &[ContainerPort]) -> Result<u16, String> {
    match port {
        IntOrString::Int(number) => port_number(*number),
        IntOrString::String(name) => {
            let named = ports
                .iter()
                .find(|port| port.name.as_deref() == Some(name.as_str()));
            match (named, name.parse()) {
                (Some(named), _) => port_number(named.container_port),
                (None, Ok(number)) => port_number(number),
                (None, Err(_)) => Err(format!("no port of the container is named {name:?}")),
            }
        }
    }
}

fn port_number(number: i32) -> Result<u16, String> {
    u16::try_from(number)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| format!("{number} is not a port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(json: &str) -> ProbeSpec {
        let ports = decode_ports(br#"[{"name":"web","containerPort":8080},{"containerPort":9}]"#);
        ProbeSpec::decode(json.as_bytes(), &ports).unwrap()
    }

    fn action(json: &str) -> Action {
        decode(json).action
    }

    fn impossible(json: &str) -> String {
        match action(json) {
            Action::Impossible(reason) => reason,
            other => panic!("possible: {other:?}"),
        }
    }

    #[test]
    fn all_fields_of_a_probe_are_taken() {
        let spec = decode(
            r#"{"httpGet":{"scheme":"HTTPS","host":"h","port":"web","path":"/x?y=1",
                "httpHeaders":[{"name":"Host","value":"v"},{"name":"A","value":""}]},
                "initialDelaySeconds":1,"periodSeconds":2,"timeoutSeconds":3,
                "successThreshold":4,"failureThreshold":5}"#,
        );
        assert_eq!(
            spec.timing,
            Timing {
                initial_delay: Duration::from_secs(1),
                period: Duration::from_secs(2),
                timeout: Duration::from_secs(3),
                success_threshold: 4,
                failure_threshold: 5,
            }
        );
        let headers = [("Host", "v"), ("A", "")];
        assert_eq!(
            spec.action,
            Action::Http(HttpGet {
                scheme: Scheme::Https,
                host: Some("h".to_owned()),
                port: 8080,
                path: "/x?y=1".to_owned(),
                headers: headers
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into(),
            })
        );
    }

    #[test]
    fn missing_and_senseless_times_are_the_defaults_of_the_api() {
        let defaults = Timing::default();
        assert_eq!(decode(r#"{"exec":{}}"#).timing, defaults);
        let senseless = r#"{"exec":{},"initialDelaySeconds":-1,"periodSeconds":0,
            "timeoutSeconds":-5,"successThreshold":0,"failureThreshold":-2147483648}"#;
        assert_eq!(decode(senseless).timing, defaults);
        let endless = r#"{"tcpSocket":{"port":80},"timeoutSeconds":2147483647}"#;
        assert_eq!(decode(endless).timing.timeout, MAX_TIMEOUT);
    }

    #[test]
    fn each_kind_of_handler_is_understood() {
        assert_eq!(action(r#"{"exec":{}}"#), Action::Exec);
        let tcp = TcpSocket {
            host: None,
            port: 80,
        };
        assert_eq!(action(r#"{"tcpSocket":{"port":80}}"#), Action::Tcp(tcp));
        let grpc = Grpc {
            port: 5000,
            service: "s".to_owned(),
        };
        assert_eq!(
            action(r#"{"grpc":{"port":5000,"service":"s"}}"#),
            Action::Grpc(grpc)
        );
    }

    #[test]
    fn ports_are_found_by_number_name_or_text() {
        for (port, number) in [("80", 80), ("\"web\"", 8080), ("\"443\"", 443)] {
            let json = format!(r#"{{"tcpSocket":{{"port":{port},"host":""}}}}"#);
            let tcp = TcpSocket {
                host: None,
                port: number,
            };
            assert_eq!(action(&json), Action::Tcp(tcp), "{port}");
        }
        for port in ["0", "65536", "-1", "\"nope\"", "\"\"", "\"70000\""] {
            impossible(&format!(r#"{{"tcpSocket":{{"port":{port}}}}}"#));
        }
    }

    #[test]
    fn what_cannot_be_done_says_why() {
        assert!(impossible("{}").contains("no handler"));
        assert!(impossible(r#"{"httpGet":{"port":1,"scheme":"ftp"}}"#).contains("ftp"));
        assert!(impossible(r#"{"httpGet":{"port":1,"protocol":"HTTP2"}}"#).contains("HTTP2"));
        assert!(impossible(r#"{"grpc":{"port":1,"mode":"TLS"}}"#).contains("TLS"));
        assert!(ProbeSpec::decode(b"[1]", &[]).is_err());
        assert!(decode_ports(b"garbage").is_empty());
    }
}
