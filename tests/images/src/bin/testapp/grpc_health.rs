//! The server half of `grpc.health.v1.Health`, method Check, written from the
//! wire facts: what a gRPC probe asks.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic_prost::ProstCodec;

use crate::http_server::Health;

/// Asks about one service; empty means the whole server.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
/// Names that the server knows; any other is answered with NOT_FOUND.
const KNOWN_SERVICES: [&str; 3] = ["", "testapp", "liveness"];

#[derive(Clone)]
struct Check(Arc<Health>);

impl UnaryService<HealthCheckRequest> for Check {
    type Response = HealthCheckResponse;
    type Future = Pin<
        Box<dyn Future<Output = Result<tonic::Response<Self::Response>, Status>> + Send + 'static>,
    >;

    fn call(&mut self, request: tonic::Request<HealthCheckRequest>) -> Self::Future {
        let health = Arc::clone(&self.0);
        Box::pin(async move {
            let service = request.into_inner().service;
            if !KNOWN_SERVICES.contains(&service.as_str()) {
                return Err(Status::not_found(format!("unknown service {service}")));
            }
            let status = if health.status() == 200 {
                SERVING
            } else {
                NOT_SERVING
            };
            Ok(tonic::Response::new(HealthCheckResponse { status }))
        })
    }
}

#[derive(Clone)]
struct HealthServer(Arc<Health>);

impl NamedService for HealthServer {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl tower::Service<Request<Body>> for HealthServer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let check = Check(Arc::clone(&self.0));
        Box::pin(async move {
            if request.uri().path() != "/grpc.health.v1.Health/Check" {
                return Ok(Status::unimplemented("only Check is served").into_http());
            }
            let mut grpc = Grpc::new(ProstCodec::default());
            Ok(grpc.unary(check, request).await)
        })
    }
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, health: Arc<Health>) -> std::io::Result<()> {
    tonic::transport::Server::builder()
        .add_service(HealthServer(health))
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await
        .map_err(std::io::Error::other)
}
