//! Calls every method of every service on one socket, with an empty message,
//! as the user that runs it, and prints `SERVICE/METHOD CODE` lines: `allowed`
//! when the caller check let the call through, else `denied`: the server said so or
//! hung up, or the socket cannot be connected to.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::error::Error;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request};

/// A denial comes at once; what takes longer was let through.
const ANSWER_TIME: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let socket = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .context("which socket?")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        for (service, methods) in bulkhead_api::SERVICES {
            for method in *methods {
                let path = format!("/{service}/{method}");
                let verdict = if denied(socket.clone(), &path).await? {
                    "denied"
                } else {
                    "allowed"
                };
                println!("{service}/{method} {verdict}");
            }
        }
        Ok(())
    })
}

/// Calls on a connection of its own: one that has asked for what it may not is cut off.
async fn denied(socket: PathBuf, path: &str) -> Result<bool> {
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://socket");
    let channel = match endpoint.connect_with_connector(connector).await {
        Ok(channel) => channel,
        Err(error) if is_denied(&error) => return Ok(true),
        Err(error) => return Err(error).context("cannot connect"),
    };
    let mut client = tonic::client::Grpc::new(channel);
    client
        .ready()
        .await
        .map_err(|error| anyhow!("{path}: {error}"))?;
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let call = client.server_streaming(Request::new(()), PathAndQuery::try_from(path)?, codec);
    Ok(match tokio::time::timeout(ANSWER_TIME, call).await {
        Ok(Err(status)) => {
            status.code() == Code::PermissionDenied
                // The connection broke: the server hung up.
                || status.source().is_some()
        }
        // An answer of another kind, a stream, or none within the time.
        Ok(Ok(_)) | Err(_) => false,
    })
}

/// The kernel does not let this user connect, or the server hangs up.
fn is_denied(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return [
                ErrorKind::PermissionDenied,
                ErrorKind::BrokenPipe,
                ErrorKind::ConnectionReset,
            ]
            .contains(&error.kind());
        }
        cause = error.source();
    }
    false
}
