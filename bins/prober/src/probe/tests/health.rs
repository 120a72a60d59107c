//! `grpc.health.v1` from the server's side.

use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::super::grpc::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
use super::*;

#[derive(Clone)]
struct Check;

impl UnaryService<HealthCheckRequest> for Check {
    type Response = HealthCheckResponse;
    type Future =
        Pin<Box<dyn Future<Output = Result<Response<HealthCheckResponse>, Status>> + Send>>;

    fn call(&mut self, request: Request<HealthCheckRequest>) -> Self::Future {
        let agent = request.metadata().get("user-agent").cloned();
        let agent = agent.unwrap().to_str().unwrap().to_owned();
        Box::pin(async move {
            assert!(agent.starts_with("kube-probe/"), "{agent}");
            let status = match request.into_inner().service.as_str() {
                "" | "good" => ServingStatus::Serving as i32,
                "bad" => ServingStatus::NotServing as i32,
                "odd" => 77,
                "slow" => std::future::pending().await,
                _ => return Err(Status::not_found("unknown service")),
            };
            Ok(Response::new(HealthCheckResponse { status }))
        })
    }
}

#[derive(Clone)]
struct Server;

impl NamedService for Server {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl tower::Service<http::Request<Body>> for Server {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let codec = ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default();
            Ok(Grpc::new(codec).unary(Check, request).await)
        })
    }
}

#[derive(Clone)]
struct Other;

impl NamedService for Other {
    const NAME: &'static str = "some.other.Service";
}

impl tower::Service<http::Request<Body>> for Other {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        std::future::ready(Ok(Status::unimplemented("no").into_http()))
    }
}

fn serving(routes: tonic::service::Routes) -> Bench {
    Bench::new(move |_, stream| {
        let server = tonic::transport::Server::builder().add_routes(routes.clone());
        let incoming = tokio_stream::once(Ok::<_, io::Error>(stream));
        tokio::spawn(async move { server.serve_with_incoming(incoming).await });
    })
}

#[tokio::test(start_paused = true)]
async fn only_serving_is_a_success() {
    let bench = serving(tonic::service::Routes::new(Server));
    let probe = |service: &str| {
        format!(r#"{{"grpc":{{"port":5000,"service":"{service}"}},"timeoutSeconds":2}}"#)
    };
    for service in ["", "good"] {
        let outcome = bench.attempt(&probe(service)).await;
        assert!(is_success(&outcome), "{service}: {outcome:?}");
    }
    for (service, reason) in [
        ("bad", "NotServing"),
        ("odd", "77"),
        ("unknown", "NotFound"),
        ("slow", "no answer within 2s"),
    ] {
        let message = failure(bench.attempt(&probe(service)).await);
        assert!(message.contains(reason), "{service}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_the_health_service_is_a_failure() {
    let bench = serving(tonic::service::Routes::new(Other));
    let message = failure(bench.attempt(r#"{"grpc":{"port":5000}}"#).await);
    assert!(message.contains("does not implement"), "{message}");
    let refused = failure(bench.attempt(r#"{"grpc":{"port":1}}"#).await);
    assert!(refused.contains("10.0.0.1:1"), "{refused}");
    let http = Bench::answering(answer("200 OK"));
    failure(http.attempt(r#"{"grpc":{"port":5000}}"#).await);
}
