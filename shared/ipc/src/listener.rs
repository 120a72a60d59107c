//! The receiving end of a socket: accepted connections with their peers.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::calls::ServerEnd;
use crate::goaway::GoAwayWatch;
use crate::greeting::Greeting;
use crate::intake::Turns;
use crate::limits::{HANG_UP_DELAY, MAX_DELAYED_HANG_UPS, PORTION_BYTES};
use crate::memory_socket::{MemoryListener, Severable};
use crate::peer::{Caller, Peer};
use crate::places::{Place, Places};
use crate::refusal::{Refusal, RefusalKind};
use crate::refusals::Refusals;
use crate::reports::Reports;

/// Bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Where a process accepts its callers. The socket outlives the process: it
/// belongs to the supervisor, and callers queue in it meanwhile.
#[derive(Debug)]
pub struct Listener {
    source: Source,
    reports: Option<Reports>,
    /// For those that are hung up on a little later.
    delayed: Arc<Semaphore>,
}

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
        Ok(Listener::new(Source::Unix(listener)))
    }

    pub(crate) fn from_pipes(listener: MemoryListener<Severable>) -> Listener {
        Listener::new(Source::Pipes(listener))
    }

    pub(crate) fn from_calls(listener: MemoryListener<ServerEnd>) -> Listener {
        Listener::new(Source::Calls(listener))
    }

    fn new(source: Source) -> Listener {
        Listener {
            source,
            reports: None,
            delayed: Arc::new(Semaphore::new(MAX_DELAYED_HANG_UPS)),
        }
    }

    /// Where calls come from whose callers speak no HTTP/2.
    pub(crate) fn calls(&self) -> Option<MemoryListener<ServerEnd>> {
        match &self.source {
            Source::Calls(listener) => Some(listener.clone()),
            Source::Unix(_) | Source::Pipes(_) => None,
        }
    }

    /// Has `tell` called for what is refused to callers of this socket: for the first
    /// refusal at once, and once a second for what follows.
    #[must_use]
    pub fn reporting_to(self, tell: impl Fn(&Refusal) + Send + Sync + 'static) -> Listener {
        Listener {
            reports: Some(Reports::new(Arc::new(tell))),
            ..self
        }
    }

    pub(crate) fn reports(&self) -> Option<Reports> {
        self.reports.clone()
    }

    /// The next connection of somebody who has a place. Others are hung up on.
    ///
    /// # Errors
    /// When the socket, or the caller, or what is left of the process's limits does not
    /// allow it.
    pub(crate) async fn next(&self, places: &Places, refusals: &Refusals) -> io::Result<Accepted> {
        loop {
            let (stream, peer) = self.accept().await?;
            match places.take(peer) {
                Ok(place) => return Ok(Accepted::new(stream, peer, place, refusals.clone())),
                Err(kind) => {
                    hang_up(stream, kind, &self.delayed);
                    // Those who have a place have a turn.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)> {
        match &self.source {
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

/// Hangs up, before anything is read. On who has connections enough a little later: it
/// mostly tries again at once, and each time costs those who wait to be accepted.
fn hang_up(stream: Box<dyn Stream>, kind: RefusalKind, waiting: &Arc<Semaphore>) {
    if kind != RefusalKind::TooManyConnections {
        return;
    }
    if let Ok(held) = Arc::clone(waiting).try_acquire_owned() {
        tokio::spawn(async move {
            tokio::time::sleep(HANG_UP_DELAY).await;
            drop((stream, held));
        });
    }
}

/// A connection and who is at its other end.
pub(crate) struct Accepted {
    stream: Box<dyn Stream>,
    caller: Caller,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Until it has sent its first bytes.
    greeting: Option<Greeting>,
    sent: GoAwayWatch,
    turns: Turns,
    refusals: Refusals,
    _place: Place,
}

impl Accepted {
    fn new(stream: Box<dyn Stream>, peer: Peer, place: Place, refusals: Refusals) -> Accepted {
        let caller = Caller::new(peer, place.intake.clone());
        Accepted {
            stream,
            cut: Box::pin(caller.cut.clone().cancelled_owned()),
            caller,
            greeting: Some(Greeting::new()),
            sent: GoAwayWatch::default(),
            turns: Turns::new(place.intake.clone()),
            refusals,
            _place: place,
        }
    }

    /// Who calls by it.
    pub(crate) fn caller(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        ready!(self.turns.poll_next(context));
        let room = buffer.remaining().min(PORTION_BYTES);
        let mut portion = ReadBuf::new(buffer.initialize_unfilled_to(room));
        let read = Pin::new(&mut self.stream).poll_read(context, &mut portion);
        let count = portion.filled().len();
        buffer.advance(count);
        self.turns.read(count);
        let greeting = self.greeting.as_mut();
        match greeting.map(|greeting| greeting.poll_late(context, count)) {
            // Nobody is accused: it may have been stopped in that moment.
            Some(Poll::Ready(true)) => return Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Some(Poll::Ready(false)) => self.greeting = None,
            Some(Poll::Pending) | None => {}
        }
        read
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &written
            && let Some(error) = self.sent.sent(bytes.get(..*count).unwrap_or_default())
        {
            let what = format!("HTTP/2 error {error}");
            self.refusals
                .note_call(&self.caller, RefusalKind::ProtocolError, &what);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
