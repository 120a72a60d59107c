//! The receiving end of a socket: accepted connections with their peers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixListener;

use crate::calls::ServerEnd;
use crate::limits::PORTION_BYTES;
use crate::memory_socket::{MemoryListener, Severable};
use crate::peer::Peer;
use crate::places::{Place, Places};

/// Bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Where a process accepts its callers. The socket outlives the process: it
/// belongs to the supervisor, and callers queue in it meanwhile.
#[derive(Debug)]
pub struct Listener(Source);

#[derive(Debug)]
enum Source {
    Unix(UnixListener),
    Pipes(MemoryListener<Severable>),
    Calls(MemoryListener<ServerEnd>),
}

impl Listener {
    /// Accepts from a Unix socket that listens already.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking or tokio refuses it.
    pub fn from_unix(listener: std::os::unix::net::UnixListener) -> io::Result<Listener> {
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        Ok(Listener(Source::Unix(listener)))
    }

    pub(crate) fn from_pipes(listener: MemoryListener<Severable>) -> Listener {
        Listener(Source::Pipes(listener))
    }

    pub(crate) fn from_calls(listener: MemoryListener<ServerEnd>) -> Listener {
        Listener(Source::Calls(listener))
    }

    /// Where calls come from whose callers speak no HTTP/2.
    pub(crate) fn calls(&self) -> Option<MemoryListener<ServerEnd>> {
        match &self.0 {
            Source::Calls(listener) => Some(listener.clone()),
            Source::Unix(_) | Source::Pipes(_) => None,
        }
    }

    /// The next connection of somebody who has a place. Others are hung up on.
    ///
    /// # Errors
    /// When the socket, or the caller, or what is left of the process's limits does not
    /// allow it.
    pub(crate) async fn next(&self, places: &Places) -> io::Result<Accepted> {
        loop {
            let (stream, peer) = self.accept().await?;
            if let Some(place) = places.take(peer) {
                return Ok(Accepted {
                    stream,
                    peer,
                    yields: false,
                    _place: place,
                });
            }
            // Those who have a place have a turn.
            tokio::task::yield_now().await;
        }
    }

    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)> {
        match &self.0 {
            Source::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let credentials = stream.peer_cred()?;
                let peer = Peer {
                    uid: credentials.uid(),
                    pid: credentials.pid(),
                };
                Ok((Box::new(stream), peer))
            }
            Source::Pipes(listener) => {
                let (stream, peer) = listener.accept().await;
                Ok((Box::new(stream), peer))
            }
            // Nobody connects to it by a stream of bytes.
            Source::Calls(_) => std::future::pending().await,
        }
    }
}

/// A connection and who is at its other end.
pub(crate) struct Accepted {
    stream: Box<dyn Stream>,
    peer: Peer,
    /// Whether other connections are served before more is read of this one.
    yields: bool,
    _place: Place,
}

impl Accepted {
    /// Who calls by it.
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.yields) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let room = buffer.remaining().min(PORTION_BYTES);
        let mut portion = ReadBuf::new(buffer.initialize_unfilled_to(room));
        let read = Pin::new(&mut self.stream).poll_read(context, &mut portion);
        let count = portion.filled().len();
        buffer.advance(count);
        self.yields = count == PORTION_BYTES;
        read
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
