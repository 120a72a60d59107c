//! The receiving end of a socket: accepted connections with their peers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixListener;
use tonic::transport::server::Connected;

use crate::authorize::Peer;
use crate::memory_socket::MemoryListener;
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
    Memory(MemoryListener),
}

impl Listener {
    /// Accepts from a Unix socket that listens already.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking or tokio refuses it.
    pub fn from_unix(listener: std::os::unix::net::UnixListener) -> io::Result<Listener> {
        listener.set_nonblocking(true)?;
        Ok(Listener(Source::Unix(UnixListener::from_std(listener)?)))
    }

    pub(crate) fn from_memory(listener: MemoryListener) -> Listener {
        Listener(Source::Memory(listener))
    }

    /// Accepted connections of those who have a place.
    pub(crate) fn into_stream(
        self,
        places: Places,
    ) -> impl tokio_stream::Stream<Item = io::Result<Accepted>> + Send {
        futures_util::stream::unfold((self, places), |(listener, places)| async move {
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        if let Some(place) = places.take(peer) {
                            let accepted = Accepted {
                                stream,
                                peer,
                                place,
                            };
                            return Some((Ok(accepted), (listener, places)));
                        }
                        tracing::debug!(
                            uid = peer.uid,
                            pid = peer.pid,
                            "no place for a connection"
                        );
                    }
                    Err(error) => return Some((Err(error), (listener, places))),
                }
            }
        })
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
            Source::Memory(listener) => {
                let (stream, peer) = listener.accept().await;
                Ok((Box::new(stream), peer))
            }
        }
    }
}

/// A connection and who is at its other end.
pub(crate) struct Accepted {
    stream: Box<dyn Stream>,
    peer: Peer,
    place: Place,
}

impl Connected for Accepted {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.place.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
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
