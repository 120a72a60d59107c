//! The address of a session, as the runtime gives it. Whoever gets it connects to it, so it
//! may lead nowhere but to a session of the kind that was asked for, on this machine. Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bulkhead_api::v1;

/// Longest token: those of runtimes have 8 characters.
const MAX_TOKEN_BYTES: usize = 64;

/// What a session is with, as the paths of addresses name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Exec,
    Attach,
    PortForward,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Kind::Exec => "exec",
            Kind::Attach => "attach",
            Kind::PortForward => "portforward",
        }
    }
}

/// Why an address is not used. It says nothing of the token, which is a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddressError {
    #[error("the runtime's address of the session is neither http nor https")]
    Scheme,
    #[error("the runtime's address of the session has no host and port as numbers")]
    Host,
    #[error(
        "the runtime serves the session at {host}: set stream_server_address of containerd, or \
         what another runtime calls it, to 127.0.0.1"
    )]
    Elsewhere { host: IpAddr },
    #[error("the runtime's address of the session is not /{}/TOKEN", kind.as_str())]
    Path { kind: Kind },
}

/// What of an address is passed on. Whoever gets it connects to 127.0.0.1, so a runtime that
/// listens elsewhere would have its token sent to the process that listens there.
pub(super) fn parse(kind: Kind, url: &str) -> Result<v1::OpenSessionResponse, AddressError> {
    let (tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => (false, rest),
        (None, Some(rest)) => (true, rest),
        (None, None) => return Err(AddressError::Scheme),
    };
    let (host, path) = rest.split_once('/').ok_or(AddressError::Path { kind })?;
    let host: SocketAddr = host.parse().map_err(|_| AddressError::Host)?;
    if host.port() == 0 {
        return Err(AddressError::Host);
    }
    let ip = host.ip().to_canonical();
    if !(ip == IpAddr::V4(Ipv4Addr::LOCALHOST) || ip.is_unspecified()) {
        return Err(AddressError::Elsewhere { host: ip });
    }
    let token = path
        .strip_prefix(kind.as_str())
        .and_then(|path| path.strip_prefix('/'))
        .filter(|token| is_token(token))
        .ok_or(AddressError::Path { kind })?;
    Ok(v1::OpenSessionResponse {
        tls,
        port: host.port().into(),
        token: token.to_owned(),
    })
}

fn is_token(token: &str) -> bool {
    let is_of_it = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=MAX_TOKEN_BYTES).contains(&token.len()) && token.bytes().all(is_of_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_session_of_the_kind_on_this_machine_is_passed_on() {
        let long = format!("http://127.0.0.1:1/exec/{}", "a".repeat(MAX_TOKEN_BYTES));
        let too_long = format!("{long}a");
        let of_session = |tls, port| Ok((tls, port));
        let path = Err(AddressError::Path { kind: Kind::Exec });
        let elsewhere = |host: &str| {
            let host = host.parse().unwrap();
            Err(AddressError::Elsewhere { host })
        };
        for (url, expected) in [
            (
                "http://127.0.0.1:40123/exec/aB3-_x9z",
                of_session(false, 40123),
            ),
            ("https://127.0.0.1:1/exec/t", of_session(true, 1)),
            ("http://[::1]:10010/exec/t", elsewhere("::1")),
            ("http://127.0.0.2:10010/exec/t", elsewhere("127.0.0.2")),
            ("http://0.0.0.0:10010/exec/t", of_session(false, 10010)),
            ("http://[::]:10010/exec/t", of_session(false, 10010)),
            (
                "http://[::ffff:127.0.0.1]:10010/exec/t",
                of_session(false, 10010),
            ),
            (&long, of_session(false, 1)),
            (&too_long, path.clone()),
            ("http://192.0.2.2:10010/exec/t", elsewhere("192.0.2.2")),
            (
                "http://[2001:db8::1]:10010/exec/t",
                elsewhere("2001:db8::1"),
            ),
            ("", Err(AddressError::Scheme)),
            ("ftp://127.0.0.1:1/exec/t", Err(AddressError::Scheme)),
            ("HTTP://127.0.0.1:1/exec/t", Err(AddressError::Scheme)),
            ("http://localhost:1/exec/t", Err(AddressError::Host)),
            ("http://127.0.0.1/exec/t", Err(AddressError::Host)),
            ("http://127.0.0.1:0/exec/t", Err(AddressError::Host)),
            ("http://127.0.0.1:65536/exec/t", Err(AddressError::Host)),
            ("http://user@127.0.0.1:1/exec/t", Err(AddressError::Host)),
            ("http:///exec/t", Err(AddressError::Host)),
            ("http://127.0.0.1:1", path.clone()),
            ("http://127.0.0.1:1/", path.clone()),
            ("http://127.0.0.1:1/exec", path.clone()),
            ("http://127.0.0.1:1/exec/", path.clone()),
            ("http://127.0.0.1:1//exec/t", path.clone()),
            ("http://127.0.0.1:1/attach/t", path.clone()),
            ("http://127.0.0.1:1/exec/t/u", path.clone()),
            ("http://127.0.0.1:1/exec/t?a=b", path.clone()),
            ("http://127.0.0.1:1/exec/t#a", path.clone()),
            ("http://127.0.0.1:1/exec/t\r\nHost: a", path.clone()),
            ("http://127.0.0.1:1/exec/../t", path.clone()),
            ("http://127.0.0.1:1/exec/%74", path.clone()),
        ] {
            let found = parse(Kind::Exec, url);
            let found = found.map(|address| (address.tls, address.port));
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn each_kind_has_its_own_path() {
        for kind in [Kind::Exec, Kind::Attach, Kind::PortForward] {
            let url = format!("http://127.0.0.1:1/{}/t", kind.as_str());
            for asked in [Kind::Exec, Kind::Attach, Kind::PortForward] {
                let found = parse(asked, &url);
                assert_eq!(found.is_ok(), asked == kind, "{asked:?} {url}");
            }
        }
    }
}
