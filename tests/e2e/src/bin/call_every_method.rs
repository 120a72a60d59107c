//! Calls every method of every service on one socket, with an empty message,
//! as the user that runs it, and prints `SERVICE/METHOD CODE` lines: `allowed`
//! when the caller check let the call through, else `denied`.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
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
        let channel = Endpoint::from_static("http://socket")
            .connect_with_connector(tower::service_fn(move |_| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            }))
            .await
            .context("cannot connect")?;
        for (service, methods) in bulkhead_api::SERVICES {
            for method in *methods {
                let path = format!("/{service}/{method}");
                let verdict = if denied(&channel, &path).await? {
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

async fn denied(channel: &Channel, path: &str) -> Result<bool> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client
        .ready()
        .await
        .map_err(|error| anyhow!("{path}: {error}"))?;
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let call = client.server_streaming(Request::new(()), PathAndQuery::try_from(path)?, codec);
    Ok(match tokio::time::timeout(ANSWER_TIME, call).await {
        Ok(Err(status)) => status.code() == Code::PermissionDenied,
        // An answer of another kind, a stream, or none within the time.
        Ok(Ok(_)) | Err(_) => false,
    })
}
