//! From HTTP to SPDY.

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

use crate::error::Error;

/// Most that is kept of a refusal.
const MAX_REFUSAL_BYTES: usize = 4 << 10;

/// Where the versions of what streams mean are agreed upon.
const PROTOCOL_HEADER: &str = "x-stream-protocol-version";

/// A connection that speaks SPDY/3.1, its streams meaning what `protocol` says.
pub(crate) async fn upgrade<Io>(
    io: Io,
    path: &str,
    protocol: &'static str,
) -> Result<TokioIo<Upgraded>, Error>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(io))
        .await
        .map_err(Error::Http)?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection.with_upgrades()));
    let request = Request::post(path)
        .header(HOST, "localhost")
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "SPDY/3.1")
        .header(PROTOCOL_HEADER, protocol)
        .body(Empty::<Bytes>::new())
        .map_err(|_| Error::Protocol("has an address that is no path"))?;
    let response = sender.send_request(request).await.map_err(Error::Http)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(Error::Refused {
            status: response.status().as_u16(),
            message: text(response.into_body()).await,
        });
    }
    let agreed = response.headers().get(PROTOCOL_HEADER);
    if agreed.is_none_or(|agreed| agreed != protocol) {
        return Err(Error::Protocol("speaks another version of the protocol"));
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(Error::Http)?;
    Ok(TokioIo::new(upgraded))
}

/// What a refusal says, as far as it is text.
async fn text<B>(body: B) -> String
where
    B: Body<Data = Bytes, Error = hyper::Error>,
{
    let body = Limited::new(body, MAX_REFUSAL_BYTES).collect().await;
    let bytes = body.map(|body| body.to_bytes()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}
