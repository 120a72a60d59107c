//! Calls every method of every service on one socket, with a message that is a good one,
//! as the user that runs it, and prints `SERVICE/METHOD VERDICT` lines: `allowed CODE`
//! when the caller check let the call through (`None` for no answer
//! within the time), else `denied`: the server said so or hung up, or the socket cannot be
//! connected to.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::error::Error;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use e2e::valid_messages;
use hyper_util::rt::TokioIo;
use prost::bytes::{Buf as _, BufMut as _};
use tokio::net::UnixStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};

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
                let message = valid_messages::message(&path[1..])?;
                let verdict = verdict(socket.clone(), &path, message).await?;
                println!("{service}/{method} {verdict}");
            }
        }
        Ok(())
    })
}

/// Calls on a connection of its own: one that has asked for what it may not is cut off.
async fn verdict(socket: PathBuf, path: &str, message: Vec<u8>) -> Result<String> {
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let denied = || Ok("denied".to_owned());
    let endpoint = Endpoint::from_static("http://socket");
    let channel = match endpoint.connect_with_connector(connector).await {
        Ok(channel) => channel,
        Err(error) if is_denied(&error) => return denied(),
        Err(error) => return Err(error).context("cannot connect"),
    };
    let mut client = tonic::client::Grpc::new(channel);
    client
        .ready()
        .await
        .map_err(|error| anyhow!("{path}: {error}"))?;
    let path = PathAndQuery::try_from(path)?;
    let call = client.server_streaming(Request::new(message), path, Encoded);
    Ok(match tokio::time::timeout(ANSWER_TIME, call).await {
        // Also when the connection broke: the server hung up.
        Ok(Err(status)) if status.code() == Code::PermissionDenied || status.source().is_some() => {
            "denied".to_owned()
        }
        Ok(Err(status)) => format!("allowed {:?}", status.code()),
        Ok(Ok(_)) => "allowed Ok".to_owned(),
        Err(_) => "allowed None".to_owned(),
    })
}

/// Messages that are encoded already, and answers that nobody decodes.
struct Encoded;

impl Codec for Encoded {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Encoded;
    type Decoder = Encoded;

    fn encoder(&mut self) -> Encoded {
        Encoded
    }

    fn decoder(&mut self) -> Encoded {
        Encoded
    }
}

impl Encoder for Encoded {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        buffer.advance(buffer.remaining());
        Ok(Some(()))
    }
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
