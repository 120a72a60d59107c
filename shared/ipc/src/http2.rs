//! Serving the connections of a socket by HTTP/2.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use nix::errno::Errno;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tower::ServiceExt as _;

use crate::limits::{
    MAX_HEADER_LIST_BYTES, MAX_PENDING_RESETS, MAX_STREAMS_PER_CONNECTION, MAX_UNREAD_BYTES,
};
use crate::listener::{self, Accept, Accepted};
use crate::places::Places;

/// Wait after a connection that could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Accepts connections and answers their calls, until `shutdown` is cancelled and those that
/// are under way have ended.
///
/// # Errors
/// When the socket is none that listens.
pub(crate) async fn serve<S>(
    connections: &dyn Accept,
    places: Places,
    service: S,
    shutdown: CancellationToken,
) -> io::Result<()>
where
    S: Service,
{
    let served = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            // Cancel-safe: only waits.
            () = shutdown.cancelled() => break,
            // Cancel-safe: who is not accepted waits in the socket.
            accepted = listener::next(connections, &places) => accepted,
        };
        match accepted {
            Ok(accepted) => {
                let serving = serve_connection(accepted, service.clone(), shutdown.clone());
                served.spawn(serving);
            }
            Err(error) if is_lasting(&error) => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    served.close();
    served.wait().await;
    Ok(())
}

/// What answers calls.
pub(crate) trait Service:
    tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S> Service for S where
    S: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .initial_connection_window_size(MAX_UNREAD_BYTES)
        .initial_stream_window_size(MAX_UNREAD_BYTES)
        // Both ends of a connection keep the last headers that differ (RFC 7541). Of
        // dates, which no caller reads, that would be sixty, each in a page of memory
        // that soon has nothing else.
        .auto_date_header(false);
    builder
}

async fn serve_connection(accepted: Accepted, service: impl Service, shutdown: CancellationToken) {
    let peer = accepted.peer();
    let builder = builder();
    let answer = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        service.clone().oneshot(request)
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(accepted), answer));
    let ended = tokio::select! {
        biased;
        // Cancel-safe: it is polled on below.
        ended = &mut connection => ended,
        // Cancel-safe: only waits.
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

/// Whether accepting will never work, as accept(2) has it of what is no socket that listens.
/// Whatever else it says is of one connection, or of a lack that passes.
fn is_lasting(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(Errno::EINVAL | Errno::EBADF | Errno::ENOTSOCK | Errno::EOPNOTSUPP)
    )
}
