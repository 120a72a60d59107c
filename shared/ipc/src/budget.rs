//! What one caller may ask of one service at a time: the budget of its edge in the topology.
//! A call beyond it waits, behind calls of the same caller only, and is refused where too
//! many wait already.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use topology::{Budget, Process, row};

use crate::authorize::service_of;
use crate::limits::MAX_WAITING_CALLS;
use crate::peer::Peer;
use crate::refusals::Refusals;

/// Makes calls wait that exceed their edge's budget. Stands behind the caller check.
#[derive(Clone, Debug)]
pub(crate) struct BudgetLayer {
    server: Process,
    refusals: Refusals,
    /// Only of who may call, so there are as many as the topology has edges.
    edges: Arc<Mutex<Edges>>,
}

/// By user and service.
type Edges = BTreeMap<(u32, &'static str), Arc<Edge>>;

/// One caller of one service.
#[derive(Debug)]
struct Edge {
    places: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Edge {
    fn new(budget: Budget) -> Edge {
        Edge {
            places: Arc::new(Semaphore::new(usize::from(budget.at_once))),
            waiting: Arc::new(Semaphore::new(MAX_WAITING_CALLS)),
        }
    }

    /// A place among the calls that are served; `None` where too many wait for one.
    async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        let _waits = self.waiting.try_acquire().ok()?;
        Arc::clone(&self.places).acquire_owned().await.ok()
    }
}

impl BudgetLayer {
    pub(crate) fn new(server: Process, refusals: Refusals) -> BudgetLayer {
        BudgetLayer {
            server,
            refusals,
            edges: Arc::default(),
        }
    }

    /// The edge of a call that was permitted.
    fn edge(&self, request: &Request<Body>) -> Option<(Peer, Arc<Edge>)> {
        let peer = *request.extensions().get::<Peer>()?;
        let service = service_of(request);
        let mut services = row(self.server).services.iter();
        let service = services.find(|known| known.service == service)?;
        let mut edges = self.edges.lock().unwrap_or_else(PoisonError::into_inner);
        let edge = edges
            .entry((peer.uid, service.service))
            .or_insert_with(|| Arc::new(Edge::new(service.budget)));
        Some((peer, Arc::clone(edge)))
    }
}

impl<S> tower::Layer<S> for BudgetLayer {
    type Service = Budgeted<S>;

    fn layer(&self, inner: S) -> Budgeted<S> {
        Budgeted {
            inner,
            layer: self.clone(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Budgeted<S> {
    inner: S,
    layer: BudgetLayer,
}

impl<S> tower::Service<Request<Body>> for Budgeted<S>
where
    S: tower::Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The clone waits its turn; the one that is ready is used.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let found = self.layer.edge(&request);
        let refusals = self.layer.refusals.clone();
        Box::pin(async move {
            let Some((peer, edge)) = found else {
                let status = Status::permission_denied("no such edge");
                return Ok(status.into_http());
            };
            let Some(place) = edge.enter().await else {
                refusals.note(peer, "one call more than may wait");
                let status = Status::resource_exhausted("too many of your calls wait");
                return Ok(status.into_http());
            };
            let response = inner.call(request).await?;
            // A call is under way until its answer has left, or its stream ends.
            Ok(response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _held = &place;
                    frame
                }))
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn so_many_are_served_so_many_wait_and_the_rest_is_refused() {
        let budget = Budget {
            at_once: 2,
            reason: "",
        };
        let edge = Arc::new(Edge::new(budget));
        let first = edge.enter().await.unwrap();
        let second = edge.enter().await.unwrap();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..MAX_WAITING_CALLS {
            let edge = Arc::clone(&edge);
            waiting.spawn(async move { edge.enter().await.is_some() });
        }
        while edge.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(edge.enter().await.is_none(), "too many wait");
        assert!(waiting.try_join_next().is_none(), "all of them wait");
        drop((first, second));
        // Each gives its place to the next.
        let served = waiting.join_all().await;
        assert_eq!(served.len(), MAX_WAITING_CALLS);
        assert!(served.into_iter().all(|served| served));
    }
}
