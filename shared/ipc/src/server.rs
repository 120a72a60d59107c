//! Serving: bounds and the caller check around a process's services.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use topology::{Identities, Process};
use tower::Layer as _;
use tower::util::BoxCloneSyncService;

use crate::authorize::AuthorizeLayer;
use crate::budget::BudgetLayer;
use crate::http2;
use crate::limits::DRAIN;
use crate::listener::{Listener, Source};
use crate::permitted::Permitted;
use crate::places::Places;
use crate::refusals::Refusals;

/// The server ended, which it does only when its socket does not listen.
#[derive(Debug, thiserror::Error)]
#[error("{server} cannot serve its socket")]
pub struct ServeError {
    server: Process,
    source: io::Error,
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
    let refusals = Refusals::new(server, Arc::clone(&identities));
    let places = Places::new(server, Arc::clone(&identities), refusals.clone());
    let authorize = AuthorizeLayer {
        server,
        identities,
        refusals: refusals.clone(),
    };
    let budget = BudgetLayer::new(server, refusals);
    let service = authorize.layer(budget.layer(routes));
    async move {
        let drained = {
            let shutdown = shutdown.clone();
            async move {
                shutdown.cancelled().await;
                tokio::time::sleep(DRAIN).await;
            }
        };
        let serving = async {
            match listener.0 {
                Source::Connections(connections) => {
                    http2::serve(&*connections, places, service, shutdown).await
                }
                Source::Calls(calls) => {
                    let service = BoxCloneSyncService::new(service);
                    calls.serve(Permitted { places, service }, shutdown).await;
                    Ok(())
                }
            }
        };
        tokio::select! {
            // Streams never end by themselves; after the drain they are cut.
            () = drained => Ok(()),
            result = serving => result.map_err(|source| ServeError { server, source }),
        }
    }
}
