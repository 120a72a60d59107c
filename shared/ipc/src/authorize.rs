//! The one check of who calls: the uid of the socket's peer against the table.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use topology::{Identities, Process};

use crate::peer::Peer;
use crate::refusals::Refusals;

/// Refuses every call that the topology does not permit.
#[derive(Clone, Debug)]
pub(crate) struct AuthorizeLayer {
    pub(crate) server: Process,
    pub(crate) identities: Arc<Identities>,
    pub(crate) refusals: Refusals,
}

impl<S> tower::Layer<S> for AuthorizeLayer {
    type Service = Authorize<S>;

    fn layer(&self, inner: S) -> Authorize<S> {
        Authorize {
            inner,
            layer: self.clone(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Authorize<S> {
    inner: S,
    layer: AuthorizeLayer,
}

impl<S> tower::Service<Request<Body>> for Authorize<S>
where
    S: tower::Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = futures_util::future::Either<
        S::Future,
        std::future::Ready<Result<Response<Body>, S::Error>>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self.layer.verdict(&request) {
            Ok(()) => futures_util::future::Either::Left(self.inner.call(request)),
            Err(status) => {
                futures_util::future::Either::Right(std::future::ready(Ok(status.into_http())))
            }
        }
    }
}

/// The service that a call is for: the first part of its path.
pub(crate) fn service_of(request: &Request<Body>) -> &str {
    let path = request.uri().path().trim_start_matches('/');
    path.split('/').next().unwrap_or_default()
}

impl AuthorizeLayer {
    fn verdict(&self, request: &Request<Body>) -> Result<(), Status> {
        let path = request.uri().path();
        let service = service_of(request);
        let Some(peer) = request.extensions().get::<Peer>() else {
            return Err(Status::permission_denied(
                "the connection has no peer credentials",
            ));
        };
        if self.identities.permits(peer.uid, self.server, service) {
            return Ok(());
        }
        self.refusals.note(*peer, path);
        Err(Status::permission_denied(format!(
            "{} may not call {service} of {}",
            self.identities.name_of(peer.uid),
            self.server
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use topology::edges;
    use tower::{Layer as _, ServiceExt as _};

    use super::*;

    /// Whether the handler runs for a call of `uid`.
    async fn outcome(uid: u32, server: Process, path: &str) -> bool {
        let identities = Arc::new(Identities::from_base(64_000).unwrap());
        let layer = AuthorizeLayer {
            server,
            refusals: Refusals::new(server, Arc::clone(&identities)),
            identities,
        };
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = path.parse().unwrap();
        request.extensions_mut().insert(Peer { uid, pid: None });
        ran(&layer, request).await
    }

    async fn ran(layer: &AuthorizeLayer, request: Request<Body>) -> bool {
        let handler = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::empty()))
        });
        let answer = layer.layer(handler).oneshot(request).await.unwrap();
        match answer.headers().get("grpc-status") {
            None => true,
            Some(code) => {
                assert_eq!(code, "7", "PERMISSION_DENIED");
                false
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn exactly_the_edges_of_the_topology_come_through() {
        let identities = Identities::from_base(64_000).unwrap();
        let allowed: BTreeSet<(u32, Process, &str)> = edges()
            .map(|edge| {
                let uid = match edge.caller {
                    topology::Caller::Operator => 0,
                    topology::Caller::Process(process) => identities.uid(process),
                };
                (uid, edge.server, edge.service)
            })
            .collect();
        let users = Process::ALL.map(|process| identities.uid(process));
        let users: BTreeSet<u32> = users.into_iter().chain([1, 65_534, u32::MAX]).collect();
        let mut came_through = BTreeSet::new();
        for server in Process::ALL {
            for (service, _) in bulkhead_api::SERVICES {
                for &uid in &users {
                    if outcome(uid, server, &format!("/{service}/Any")).await {
                        came_through.insert((uid, server, *service));
                    }
                }
            }
        }
        assert_eq!(came_through, allowed);
    }

    #[tokio::test(start_paused = true)]
    async fn root_may_not_do_what_is_for_another_process() {
        for (server, service) in [
            (Process::PodWorkerPool, "PodWorkers"),
            (Process::PodWorkerPool, "ProbeTargets"),
            (Process::StatusSyncer, "StatusReports"),
            (Process::ConfigSourcer, "ConfigSourcer"),
        ] {
            let path = format!("/bulkhead.v1.{service}/Any");
            assert!(!outcome(0, server, &path).await, "{service}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_path_that_names_no_service_is_refused() {
        for path in [
            "/",
            "//",
            "/bulkhead.v1",
            "/x/bulkhead.v1.Supervisor/GetStatus",
            "/bulkhead.v1.Supervisor%2fGetStatus",
            "/BULKHEAD.V1.SUPERVISOR/GetStatus",
        ] {
            assert!(!outcome(0, Process::Supervisor, path).await, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_credentials_is_refused() {
        let identities = Arc::new(Identities::from_base(64_000).unwrap());
        let server = Process::Supervisor;
        let layer = AuthorizeLayer {
            server,
            refusals: Refusals::new(server, Arc::clone(&identities)),
            identities,
        };
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = "/bulkhead.v1.Supervisor/GetStatus".parse().unwrap();
        assert!(!ran(&layer, request).await);
    }
}
