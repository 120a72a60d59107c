//! One socket in memory: connections that wait in its queue, and their two ends. Which
//! process connects to which is at the top of the crate.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use ipc::{Accept, Peer, Stream};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A connection that nobody has accepted yet.
#[derive(Debug)]
pub(crate) struct Queued<E> {
    /// The server's end.
    pub(crate) end: E,
    /// Who connected.
    pub(crate) peer: Peer,
    /// To be cancelled when it is accepted.
    pub(crate) accepted: CancellationToken,
}

/// A queue of connections that outlives whoever accepts from it.
#[derive(Debug)]
pub(crate) struct MemoryListener<E> {
    queue: Arc<Mutex<VecDeque<Queued<E>>>>,
    arrived: Arc<Notify>,
}

impl<E> Default for MemoryListener<E> {
    fn default() -> MemoryListener<E> {
        MemoryListener {
            queue: Arc::default(),
            arrived: Arc::default(),
        }
    }
}

impl<E> Clone for MemoryListener<E> {
    fn clone(&self) -> MemoryListener<E> {
        MemoryListener {
            queue: Arc::clone(&self.queue),
            arrived: Arc::clone(&self.arrived),
        }
    }
}

impl<E> MemoryListener<E> {
    pub(crate) fn push(&self, queued: Queued<E>) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(queued);
        self.arrived.notify_one();
    }

    pub(crate) async fn accept(&self) -> (E, Peer) {
        loop {
            let next = self
                .queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            if let Some(queued) = next {
                queued.accepted.cancel();
                return (queued.end, queued.peer);
            }
            self.arrived.notified().await;
        }
    }
}

#[tonic::async_trait]
impl Accept for MemoryListener<Severable> {
    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)> {
        let (stream, peer) = MemoryListener::accept(self).await;
        Ok((Box::new(stream), peer))
    }
}

/// One end of a connection that can be broken from outside.
#[derive(Debug)]
pub(crate) struct Severable {
    stream: DuplexStream,
    broken: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Severable {
    pub(crate) fn new(stream: DuplexStream, token: &CancellationToken) -> Severable {
        let broken = Box::pin(token.clone().cancelled_owned());
        Severable { stream, broken }
    }
}

impl AsyncRead for Severable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.broken.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Severable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.broken.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.broken.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
