//! When bytes last went over a connection, in either direction.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// A connection's last activity. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Activity {
    begin: Instant,
    last_millis: Arc<AtomicU64>,
}

impl Activity {
    pub(crate) fn new() -> Activity {
        Activity {
            begin: Instant::now(),
            last_millis: Arc::default(),
        }
    }

    fn note(&self) {
        let millis = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_millis.store(millis, Ordering::Relaxed);
    }

    /// Waits until nothing has gone over the connection for so long.
    pub(crate) async fn until_idle(&self, limit: Duration) {
        loop {
            let last = Duration::from_millis(self.last_millis.load(Ordering::Relaxed));
            let end = self.begin + last + limit;
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

/// A connection whose activity is noted.
pub(crate) struct Noted<T> {
    inner: T,
    activity: Activity,
}

impl<T> Noted<T> {
    pub(crate) fn new(inner: T, activity: Activity) -> Noted<T> {
        Noted { inner, activity }
    }

    fn note<R>(&self, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if let Poll::Ready(Ok(_)) = &polled {
            self.activity.note();
        }
        polled
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Noted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.note(polled)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Noted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.note(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_once_nothing_went_over_it_for_the_limit() {
        let activity = Activity::new();
        let begin = Instant::now();
        let (near, _far) = tokio::io::duplex(64);
        let mut noted = Noted::new(near, activity.clone());
        let writing = async {
            tokio::time::sleep(Duration::from_secs(8)).await;
            noted.write_all(b"x").await.unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = writing => {}
            () = activity.until_idle(Duration::from_secs(10)) => {}
        }
        assert_eq!(begin.elapsed(), Duration::from_secs(18));
    }
}
