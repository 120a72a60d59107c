//! `grpc.health.v1` from the server's side.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_stream::StreamExt;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
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

/// An answer with something beside it that a client skips: of one that is smaller the library
/// has enough by itself.
#[derive(Clone, PartialEq, prost::Message)]
struct Padded {
    #[prost(bytes = "vec", tag = "9")]
    padding: Vec<u8>,
}

/// Answers with messages without end, and counts them.
#[derive(Clone, Default)]
struct Endless(Arc<Mutex<usize>>);

impl NamedService for Endless {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl ServerStreamingService<HealthCheckRequest> for Endless {
    type Response = Padded;
    type ResponseStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<Padded, Status>> + Send>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, _: Request<HealthCheckRequest>) -> Self::Future {
        let sent = Arc::clone(&self.0);
        // As good as without an end.
        let messages = tokio_stream::iter(0..20_000).map(move |_| {
            *sent.lock().unwrap() += 1;
            let padding = vec![0; 1 << 10];
            Ok(Padded { padding })
        });
        std::future::ready(Ok(Response::new(Box::pin(messages))))
    }
}

impl tower::Service<http::Request<Body>> for Endless {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let codec = ProstCodec::<Padded, HealthCheckRequest>::default();
            Ok(Grpc::new(codec).server_streaming(service, request).await)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn messages_without_end_are_not_read_to_their_end() {
    let endless = Endless::default();
    let bench = serving(tonic::service::Routes::new(endless.clone()));
    let outcome = bench
        .attempt(r#"{"grpc":{"port":5000},"timeoutSeconds":3600}"#)
        .await;
    failure(outcome);
    let sent = *endless.0.lock().unwrap();
    assert!((1..2_000).contains(&sent), "{sent} messages");
}

/// Type, stream and payload of the next HTTP/2 frame.
async fn frame(stream: &mut DuplexStream) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await.unwrap();
    (head[3], payload)
}

#[tokio::test(start_paused = true)]
async fn a_server_may_send_little_before_it_is_read() {
    let (windows, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let bench = Bench::new(move |_, mut stream| {
        let windows = windows.clone();
        tokio::spawn(async move {
            stream.read_exact(&mut [0; 24]).await.unwrap();
            let (kind, settings) = frame(&mut stream).await;
            assert_eq!(kind, 4, "SETTINGS come first");
            for setting in settings.chunks_exact(6) {
                if setting[..2] == [0, 4] {
                    let window = u32::from_be_bytes(setting[2..].try_into().unwrap());
                    windows.send(window).unwrap();
                }
            }
            let (kind, increment) = frame(&mut stream).await;
            if kind == 8 {
                let increment = u32::from_be_bytes(increment.try_into().unwrap());
                windows.send(65_535 + increment).unwrap();
            }
        });
    });
    failure(bench.attempt(r#"{"grpc":{"port":5000}}"#).await);
    drop(bench);
    let mut told = Vec::new();
    while let Some(window) = seen.recv().await {
        told.push(window);
    }
    // That of the connection is about its default, so that no frame may say so.
    assert_eq!(told.first(), Some(&(64 << 10)));
    assert!(told.iter().all(|window| *window <= 64 << 10), "{told:?}");
}
