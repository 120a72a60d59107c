//! Serving: bounds and the caller check around a process's services.

use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::Either;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use topology::{Identities, Process};
use tower::Layer as _;

use crate::authorize::AuthorizeLayer;
use crate::budget::BudgetLayer;
use crate::limits::{
    DRAIN, MAX_HEADER_LIST_BYTES, MAX_PENDING_RESETS, MAX_STREAMS_PER_CONNECTION, MAX_UNREAD_BYTES,
};
use crate::listener::Listener;
use crate::places::Places;
use crate::refusals::Refusals;

/// The server ended, which it does only when its socket is gone.
#[derive(Debug, thiserror::Error)]
#[error("{server} cannot serve its socket")]
pub struct ServeError {
    server: Process,
    source: tonic::transport::Error,
}

/// Serves `routes` until `shutdown` is cancelled, then lets calls in flight end
/// for [`DRAIN`]. Who may call nothing here is hung up on, every call of the others is
/// checked against the topology first, and waits where its caller has many already.
///
/// # Errors
/// When the listening socket fails.
pub fn serve(
    server: Process,
    identities: Arc<Identities>,
    listener: Listener,
    routes: Routes,
    shutdown: CancellationToken,
) -> impl Future<Output = Result<(), ServeError>> + Send {
    let refusals = Refusals::new(server, Arc::clone(&identities), listener.reports());
    let places = Places::new(server, Arc::clone(&identities), refusals.clone());
    let authorize = AuthorizeLayer {
        server,
        identities,
        refusals: refusals.clone(),
    };
    let budget = BudgetLayer::new(server, refusals.clone());
    let calls = listener.calls();
    let in_memory = calls.map(|calls| {
        let service = authorize.layer(budget.layer(routes.clone()));
        crate::calls::serve(calls, places.clone(), service, shutdown.clone())
    });
    let router = Server::builder()
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
        .http2_max_header_list_size(MAX_HEADER_LIST_BYTES)
        .http2_max_pending_accept_reset_streams(Some(MAX_PENDING_RESETS))
        .initial_connection_window_size(MAX_UNREAD_BYTES)
        .initial_stream_window_size(MAX_UNREAD_BYTES)
        .layer(authorize)
        .layer(budget)
        .add_routes(routes);
    async move {
        let drained = {
            let shutdown = shutdown.clone();
            async move {
                shutdown.cancelled().await;
                tokio::time::sleep(DRAIN).await;
            }
        };
        let stop = shutdown.cancelled_owned();
        let serving = match in_memory {
            Some(in_memory) => Either::Left(in_memory.map(Ok)),
            None => {
                let incoming = listener.into_stream(places, refusals);
                Either::Right(router.serve_with_incoming_shutdown(incoming, stop))
            }
        };
        tokio::select! {
            // Streams never end by themselves; after the drain they are cut.
            () = drained => Ok(()),
            result = serving => result.map_err(|source| ServeError { server, source }),
        }
    }
}
