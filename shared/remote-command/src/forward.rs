//! A session with a port: one connection to it.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::error::Error;
use crate::frame::{Frame, MAX_SENT_BYTES};
use crate::spdy::{self, Reader, Writer};
use crate::upgrade::upgrade;

const PROTOCOL: &str = "portforward.k8s.io";

/// Most that is kept of why a port cannot be reached.
const MAX_REASON_BYTES: usize = 4 << 10;

/// The streams, in the order in which they are opened.
const ERROR: u32 = 1;
const DATA: u32 = 3;

/// Carries a local connection to a port of a pod, over the session that is served at `path`
/// of this connection. Returns once the pod's side has ended.
///
/// # Errors
/// When the session is refused or breaks, or the port cannot be reached.
pub async fn forward<Io, Local>(io: Io, path: &str, port: u16, local: Local) -> Result<(), Error>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Local: AsyncRead + AsyncWrite + Unpin,
{
    let io = upgrade(io, path, PROTOCOL).await?;
    let port = &*port.to_string();
    let of = |kind| [("streamtype", kind), ("port", port), ("requestid", "0")];
    let (mut reader, writer) = spdy::start(io, &[&of("error"), &of("data")]).await?;
    // Nothing is ever said on it from this side.
    writer.end(ERROR).await;
    let (read, write) = tokio::io::split(local);
    let to_pod = async {
        send(read, &writer).await;
        // The pod may go on: it ends the session.
        std::future::pending().await
    };
    tokio::select! {
        biased;
        // Not cancelled but by the other's end, which never comes.
        ended = receive(&mut reader, write) => ended,
        never = to_pod => never,
    }
}

/// Sends what is read, and its end.
async fn send(mut local: impl AsyncRead + Unpin, writer: &Writer) {
    let mut buffer = vec![0; MAX_SENT_BYTES];
    loop {
        match local.read(&mut buffer).await {
            Ok(0) | Err(_) => return writer.end(DATA).await,
            Ok(read) => {
                if !writer.send(DATA, &buffer[..read]).await {
                    return;
                }
            }
        }
    }
}

/// Writes what comes, to its end.
async fn receive(reader: &mut Reader, mut local: impl AsyncWrite + Unpin) -> Result<(), Error> {
    let mut reason = Vec::new();
    let (mut data_ended, mut error_ended) = (false, false);
    // Some servers end the data before they say why there is none.
    while !(data_ended && error_ended) {
        match reader.next().await? {
            None => break,
            Some(Frame::Data {
                stream: ERROR,
                bytes,
                is_last,
            }) => {
                let room = MAX_REASON_BYTES.saturating_sub(reason.len());
                reason.extend(bytes.into_iter().take(room));
                error_ended |= is_last;
            }
            Some(Frame::Data {
                stream: DATA,
                bytes,
                is_last,
            }) => {
                local.write_all(&bytes).await.map_err(Error::Local)?;
                local.flush().await.map_err(Error::Local)?;
                if is_last {
                    data_ended = true;
                    local.shutdown().await.map_err(Error::Local)?;
                }
            }
            Some(Frame::Reset { stream: DATA }) => data_ended = true,
            Some(Frame::Reset { stream: ERROR }) => error_ended = true,
            Some(_) => {}
        }
    }
    match reason.is_empty() {
        true => Ok(()),
        false => Err(Error::Port(
            String::from_utf8_lossy(&reason).trim().to_owned(),
        )),
    }
}
