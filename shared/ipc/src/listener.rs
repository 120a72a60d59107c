//! The receiving end of a socket: accepted connections with their peers.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::Connected;

use crate::authorize::Peer;
use crate::limits::MAX_CONNECTIONS;
use crate::memory::MemoryListener;

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

    /// Accepted connections, one after the other, at most
    /// [`MAX_CONNECTIONS`] open at once; further ones wait in the socket.
    pub(crate) fn into_stream(
        self,
    ) -> impl tokio_stream::Stream<Item = io::Result<Accepted>> + Send {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        futures_util::stream::unfold((self, permits), |(listener, permits)| async move {
            // The semaphore is never closed.
            let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
            let accepted = listener.accept(permit).await;
            Some((accepted, (listener, permits)))
        })
    }

    async fn accept(&self, permit: OwnedSemaphorePermit) -> io::Result<Accepted> {
        match &self.0 {
            Source::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let credentials = stream.peer_cred()?;
                let peer = Peer {
                    uid: credentials.uid(),
                    pid: credentials.pid(),
                };
                Ok(Accepted {
                    stream: Box::new(stream),
                    peer,
                    _permit: permit,
                })
            }
            Source::Memory(listener) => {
                let (stream, peer) = listener.accept().await;
                Ok(Accepted {
                    stream: Box::new(stream),
                    peer,
                    _permit: permit,
                })
            }
        }
    }
}

/// A connection and who is at its other end.
pub(crate) struct Accepted {
    stream: Box<dyn Stream>,
    peer: Peer,
    _permit: OwnedSemaphorePermit,
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
