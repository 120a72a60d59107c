//! `port-forward`: connections to this machine go to ports of a pod. Each has a session of its
//! own, so that none that is slow holds another up.

pub(crate) mod ports;

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
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
