//! A connection of which only so much is read: what comes from a target is hostile, and all
//! tries share one thread.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::network::ByteStream;

/// Most bytes that are read over one connection: several times what the largest head, with a
/// handshake of TLS before it and as much of a body as is looked at, takes.
pub(super) const MAX_BYTES: usize = 256 << 10;

pub(super) struct Bounded {
    inner: Box<dyn ByteStream>,
    left: usize,
}

impl Bounded {
    pub(super) fn new(inner: Box<dyn ByteStream>) -> Bounded {
        let left = MAX_BYTES;
        Bounded { inner, left }
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let read = buffer.filled().len().saturating_sub(before);
        Poll::Ready(match self.left.checked_sub(read) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(io::Error::other(format!(
                "it sends more than {MAX_BYTES} bytes"
            ))),
        })
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
