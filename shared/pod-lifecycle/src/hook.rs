//! Lifecycle hooks: what is run in or for an instance just after its start, and just
//! before its SIGTERM.
//!
//! A hook is begun once per instance, whatever restarts: that it is to be begun is on
//! disk before it is. After that it may have run, or may run still, and is not begun
//! again.

use std::time::Duration;

use pod::IntOrString;
use pod::core::{Container as ContainerSpec, ContainerPort, HTTPGetAction, LifecycleHandler};
use serde::{Deserialize, Serialize};

/// What a hook does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A command in the container.
    Exec(Vec<String>),
    /// A GET request to the container.
    HttpGet(HttpHook),
    /// A wait.
    Sleep(Duration),
    /// Nothing that can be carried out: it fails, for this reason.
    Impossible(String),
}

/// A GET request to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpHook {
    /// Whether by TLS, unless the server speaks none.
    pub tls: bool,
    /// Where to; absent: the pod's address.
    pub host: Option<String>,
    /// Port.
    pub port: u16,
    /// Path with query.
    pub path: String,
    /// Further headers.
    pub headers: Vec<(String, String)>,
}

/// How far the postStart hook of an instance is. None is known of an instance that has
/// none, or whose hook has ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PostStart {
    /// To be begun once the instance runs.
    Due,
    /// Begun by this process, or by one before it: then nobody will know its result.
    Begun,
    /// It failed: the instance is to be stopped.
    Failed,
}

/// How far the preStop hook of an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreStop {
    /// It was begun then, in wall time (Unix nanoseconds).
    Begun(i64),
    /// It has ended, well or not.
    Ended,
}

impl Hook {
    /// What a handler of a container with these ports asks for. `None` without any.
    #[must_use]
    pub fn of(handler: &LifecycleHandler, ports: &[ContainerPort]) -> Option<Hook> {
        if let Some(exec) = &handler.exec {
            return Some(Hook::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(action) = &handler.http_get {
            return Some(http(action, ports));
        }
        if let Some(sleep) = &handler.sleep {
            let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
            return Some(Hook::Sleep(Duration::from_secs(seconds)));
        }
        let tcp = handler.tcp_socket.as_ref();
        tcp.map(|_| Hook::Impossible("a hook cannot be a tcpSocket".to_owned()))
    }

    /// The postStart hook of a container.
    #[must_use]
    pub fn post_start(spec: &ContainerSpec) -> Option<Hook> {
        let handler = spec.lifecycle.as_ref()?.post_start.as_ref()?;
        Hook::of(handler, spec.ports.as_deref().unwrap_or_default())
    }

    /// The preStop hook of a container.
    #[must_use]
    pub fn pre_stop(spec: &ContainerSpec) -> Option<Hook> {
        let handler = spec.lifecycle.as_ref()?.pre_stop.as_ref()?;
        Hook::of(handler, spec.ports.as_deref().unwrap_or_default())
    }
}

fn http(action: &HTTPGetAction, ports: &[ContainerPort]) -> Hook {
    let port = match &action.port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => {
            let named = |port: &&ContainerPort| port.name.as_deref() == Some(name);
            let named = ports.iter().find(named);
            named
                .and_then(|port| u16::try_from(port.container_port).ok())
                .or_else(|| name.parse().ok())
        }
    };
    let Some(port) = port.filter(|&port| port != 0) else {
        return Hook::Impossible(format!("there is no port {:?}", action.port));
    };
    let text = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
    let headers = action.http_headers.iter().flatten();
    Hook::HttpGet(HttpHook {
        tls: action.scheme.as_deref() == Some("HTTPS"),
        host: text(&action.host),
        port,
        path: text(&action.path).unwrap_or_else(|| "/".to_owned()),
        headers: headers
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(json: &str) -> Option<Hook> {
        let ports = r#"[{"name":"web","containerPort":8080},{"containerPort":9}]"#;
        let ports: Vec<ContainerPort> = serde_json::from_str(ports).unwrap();
        Hook::of(&serde_json::from_str(json).unwrap(), &ports)
    }

    fn get(json: &str) -> HttpHook {
        match hook(json) {
            Some(Hook::HttpGet(hook)) => hook,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_handler_has_its_hook() {
        assert_eq!(hook("{}"), None);
        let command = Hook::Exec(vec!["a".into(), "b".into()]);
        assert_eq!(hook(r#"{"exec":{"command":["a","b"]}}"#), Some(command));
        for (seconds, expected) in [(0, 0), (7, 7), (-1, 0)] {
            let found = hook(&format!(r#"{{"sleep":{{"seconds":{seconds}}}}}"#));
            assert_eq!(found, Some(Hook::Sleep(Duration::from_secs(expected))));
        }
        let tcp = hook(r#"{"tcpSocket":{"port":1}}"#);
        assert!(matches!(tcp, Some(Hook::Impossible(_))));
    }

    #[test]
    fn a_request_has_its_port_by_number_or_by_name() {
        for (port, expected) in [("8081", 8081), (r#""web""#, 8080), (r#""8082""#, 8082)] {
            let found = get(&format!(r#"{{"httpGet":{{"port":{port}}}}}"#));
            assert_eq!((found.port, found.path.as_str()), (expected, "/"));
            assert!(!found.tls && found.host.is_none());
        }
        for port in [r#""other""#, "0", "70000"] {
            let found = hook(&format!(r#"{{"httpGet":{{"port":{port}}}}}"#));
            assert!(matches!(found, Some(Hook::Impossible(_))), "{port}");
        }
        let full = get(
            r#"{"httpGet":{"port":1,"host":"h","scheme":"HTTPS","path":"/x?y",
            "httpHeaders":[{"name":"A","value":"b"}]}}"#,
        );
        assert!(full.tls);
        assert_eq!(full.host.as_deref(), Some("h"));
        assert_eq!(full.path, "/x?y");
        assert_eq!(full.headers, [("A".to_owned(), "b".to_owned())]);
    }
}
