//! The way to another process, for clients of its services.

use std::io;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper_util::rt::TokioIo;
use tonic::body::Body;
use tonic::transport::Endpoint;
use tower::util::BoxCloneSyncService;

use crate::listener::Stream;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Makes calls of another process. Cloning is cheap, and shares the connection.
#[derive(Clone, Debug)]
pub struct Channel(Way);

#[derive(Clone, Debug)]
enum Way {
    Http2(tonic::transport::Channel),
    Handed(BoxCloneSyncService<Request<Body>, Response<Body>, Error>),
}

impl Channel {
    /// Calls by HTTP/2. It connects when first used, and again when the connection broke.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn over<F>(connect: impl Fn() -> F + Send + Sync + 'static) -> Channel
    where
        F: Future<Output = io::Result<Box<dyn Stream>>> + Send + 'static,
    {
        // The authority is never looked up: the connector ignores it.
        let endpoint = Endpoint::from_static("http://bulkhead");
        let connect = tower::service_fn(move |_| {
            let connected = connect();
            async move { connected.await.map(TokioIo::new) }
        });
        Channel(Way::Http2(endpoint.connect_with_connector_lazy(connect)))
    }

    /// Calls that are handed to a service as they are. It is always ready.
    #[must_use]
    pub fn handed_to<F>(
        call: impl Fn(Request<Body>) -> F + Clone + Send + Sync + 'static,
    ) -> Channel
    where
        F: Future<Output = io::Result<Response<Body>>> + Send + 'static,
    {
        let service = tower::service_fn(move |request| {
            let answered = call(request);
            async move { answered.await.map_err(Error::from) }
        });
        Channel(Way::Handed(BoxCloneSyncService::new(service)))
    }
}

impl tower::Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Response<Body>, Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match &mut self.0 {
            Way::Http2(channel) => channel.poll_ready(context).map_err(Into::into),
            Way::Handed(service) => service.poll_ready(context),
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match &mut self.0 {
            Way::Http2(channel) => channel
                .call(request)
                .map(|answered| answered.map_err(Into::into))
                .boxed(),
            Way::Handed(service) => service.call(request),
        }
    }
}
