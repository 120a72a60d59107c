//! The receiving end of a socket: accepted connections with their peers.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use crate::limits::PORTION_BYTES;
use crate::peer::Peer;
use crate::permitted::Permitted;
use crate::places::{Place, Places};

/// Bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Where connections come from.
#[async_trait]
pub trait Accept: fmt::Debug + Send + Sync {
    /// The next connection, and its peer. Cancel-safe: it is taken or it is not.
    ///
    /// # Errors
    /// When the socket, or the peer, or what is left of the process's limits does not allow it.
    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)>;
}

/// Where calls come from that need no HTTP/2.
#[async_trait]
pub trait ServeCalls: fmt::Debug + Send + Sync {
    /// Answers calls until `shutdown` is cancelled and those that are under way have ended.
    async fn serve(&self, permitted: Permitted, shutdown: CancellationToken);
}

/// Where a process accepts its callers. The socket outlives the process: it
/// belongs to the supervisor, and callers queue in it meanwhile.
#[derive(Debug)]
pub struct Listener(pub(crate) Source);

#[derive(Debug)]
pub(crate) enum Source {
    Connections(Box<dyn Accept>),
    Calls(Box<dyn ServeCalls>),
}

impl Listener {
    /// Accepts from a Unix socket that listens already.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking or tokio refuses it.
    pub fn from_unix(listener: std::os::unix::net::UnixListener) -> io::Result<Listener> {
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        Ok(Listener::accepting(listener))
    }

    /// Accepts connections of another kind.
    #[must_use]
    pub fn accepting(connections: impl Accept + 'static) -> Listener {
        Listener(Source::Connections(Box::new(connections)))
    }

    /// Answers calls that need no HTTP/2.
    #[must_use]
    pub fn answering(calls: impl ServeCalls + 'static) -> Listener {
        Listener(Source::Calls(Box::new(calls)))
    }
}

#[async_trait]
impl Accept for UnixListener {
    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)> {
        let (stream, _) = UnixListener::accept(self).await?;
        let credentials = stream.peer_cred()?;
        let peer = Peer {
            uid: credentials.uid(),
            pid: credentials.pid(),
        };
        Ok((Box::new(stream), peer))
    }
}

/// The next connection of somebody who has a place. Others are hung up on.
///
/// # Errors
/// See [`Accept::accept`].
pub(crate) async fn next(connections: &dyn Accept, places: &Places) -> io::Result<Accepted> {
    loop {
        let (stream, peer) = connections.accept().await?;
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
