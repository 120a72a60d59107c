//! The one check of who calls: the uid of the socket's peer against the table.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use topology::{Identities, Process};

/// Who is at the other end of a connection, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user that connected; decides what it may call.
    pub uid: u32,
    /// The process that connected; for logs only, pids are reused.
    pub pid: Option<i32>,
}

/// Refuses every call that the topology does not permit.
#[derive(Clone, Debug)]
pub(crate) struct AuthorizeLayer {
    pub(crate) server: Process,
    pub(crate) identities: Arc<Identities>,
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

impl AuthorizeLayer {
    fn verdict(&self, request: &Request<Body>) -> Result<(), Status> {
        let path = request.uri().path();
        let service = path
            .trim_start_matches('/')
            .split('/')
            .next()
            .unwrap_or_default();
        let Some(peer) = request.extensions().get::<Peer>() else {
            return Err(Status::permission_denied(
                "the connection has no peer credentials",
            ));
        };
        if self.identities.permits(peer.uid, self.server, service) {
            return Ok(());
        }
        tracing::warn!(
            uid = peer.uid,
            pid = peer.pid,
            process = self.identities.process_of(peer.uid).map(Process::name),
            path,
            "refused a call that the topology does not permit"
        );
        Err(Status::permission_denied(format!(
            "uid {} may not call {service} of {}",
            peer.uid, self.server
        )))
    }
}
