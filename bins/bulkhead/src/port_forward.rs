//! `port-forward`: connections to this machine go to ports of a pod. Each has a session of its
//! own, so that none that is slow holds another up.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use bulkhead_api::v1::PortForwardSession;
use bulkhead_api::v1::open_session_request::Session;
use futures_util::future::select_all;
use remote_command::Error;
use tokio::net::{TcpListener, TcpStream};

use crate::arguments::PortForwardOptions;
use crate::connection::Connection;
use crate::escape::plain;
use crate::failure::Failure;
use crate::output::{Output, note};
use crate::sessions::{Sessions, Target};

/// Pause after a connection that could not be taken, for want of descriptors as a rule.
const PAUSE: Duration = Duration::from_millis(100);

/// From which port to which; 0 is any that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    local: u16,
    remote: u16,
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Ports, String> {
        let port = |text: &str| text.parse().ok().filter(|&port: &u16| port != 0);
        let ports = match text.split_once(':') {
            None => port(text).map(|port| (port, port)),
            Some(("" | "0", remote)) => port(remote).map(|remote| (0, remote)),
            Some((local, remote)) => port(local).zip(port(remote)),
        };
        let (local, remote) =
            ports.ok_or_else(|| format!("{text:?} is not a port like 80, 8080:80 or :80"))?;
        Ok(Ports { local, remote })
    }
}

/// Forwards until it is interrupted.
pub(crate) async fn port_forward(
    connection: &Connection,
    options: &PortForwardOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let target = Target::find(connection, &options.pod, None).await?;
    let sessions = Sessions::new(connection, &target.pod_uid)?;
    // What is refused is said before anybody connects.
    drop(sessions.open(session()).await?);
    let mut listening = Vec::new();
    for ports in &options.ports {
        let listener = listen(SocketAddr::new(options.address, ports.local)).await?;
        let address = listener.local_addr().map_err(|source| Failure::Local {
            action: "listen".to_owned(),
            source,
        })?;
        output.text(&format!("Forwarding from {address} -> {}\n", ports.remote))?;
        listening.push(Box::pin(serve(sessions.clone(), listener, ports.remote)));
    }
    let (never, ..) = select_all(listening).await;
    match never {}
}

fn session() -> Session {
    Session::PortForward(PortForwardSession::default())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| Failure::Local {
        action: format!("listen at {address}"),
        source,
    })
}

async fn serve(sessions: Sessions, listener: TcpListener, port: u16) -> std::convert::Infallible {
    loop {
        match listener.accept().await {
            Ok((local, _)) => drop(tokio::spawn(carry(sessions.clone(), local, port))),
            Err(error) => {
                note(&format!("cannot take a connection: {error}"));
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// One connection, to its end.
async fn carry(sessions: Sessions, local: TcpStream, port: u16) {
    let carried = async {
        let (stream, path) = sessions.open(session()).await?;
        let forwarded = remote_command::forward(stream, &path, port, local).await;
        forwarded.map_err(|source| Failure::Session { source })
    };
    match carried.await {
        Ok(()) => {}
        // A client that goes away is no failure of ours.
        Err(Failure::Session {
            source: Error::Local(source),
        }) if source.kind() != io::ErrorKind::Other => {}
        Err(failure) => note(&plain(&telemetry::chain(&failure))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_as_kubectl_has_them() {
        for (text, expected) in [
            ("80", Some((80, 80))),
            ("8080:80", Some((8080, 80))),
            (":80", Some((0, 80))),
            ("0:80", Some((0, 80))),
            ("80:", None),
            ("0", None),
            ("80:0", None),
            ("65536", None),
            ("a:80", None),
            ("1:2:3", None),
            ("", None),
        ] {
            let ports = text.parse::<Ports>().ok();
            let ports = ports.map(|Ports { local, remote }| (local, remote));
            assert_eq!(ports, expected, "{text}");
        }
    }
}
