//! `grpc`: a call of `grpc.health.v1.Health/Check` without TLS at the pod's
//! address (1.26 `pkg/probe/grpc`). The two messages are written from the
//! protocol's description.

use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tonic::client::Grpc as GrpcClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::way::{self, Unmade, Way};
use crate::spec::Grpc;
use crate::worker::Outcome;

const CHECK: &str = "/grpc.health.v1.Health/Check";

/// An answer has one number in it.
const MAX_RESPONSE_BYTES: usize = 4 << 10;

/// What a server may send before it is read. The default is thirty times as much.
const WINDOW_BYTES: u32 = 64 << 10;

/// Header block of an answer.
const MAX_HEADER_LIST_BYTES: u32 = 64 << 10;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    pub(super) service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub(super) status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

/// The answer is read to its end, which is bounded as the connection is.
pub(super) async fn probe(
    way: &Way,
    grpc: &Grpc,
    pod_ip: &str,
    deadline: Instant,
) -> Result<Outcome, Unmade> {
    let to = way.destination(None, pod_ip, None).await?;
    let address = format!("{to}:{}", grpc.port);
    let stream = match way.connect(&to.addresses, grpc.port, deadline).await {
        Ok(stream) => stream,
        Err(error) if way::is_local_shortage(&error) => {
            return Err(Unmade::for_local_shortage(&error));
        }
        Err(error) => return Ok(Outcome::Failure(format!("{address}: {error}"))),
    };
    let endpoint = Endpoint::try_from(format!("http://{address}"))
        .and_then(|endpoint| endpoint.user_agent(way::USER_AGENT))
        .map_err(|error| Unmade::for_good(telemetry::chain(&error)))?
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .http2_max_header_list_size(MAX_HEADER_LIST_BYTES);
    let mut stream = Some(TokioIo::new(stream));
    let channel = endpoint
        .connect_with_connector(tower::service_fn(move |_| {
            let stream = stream.take();
            async move { stream.ok_or_else(|| std::io::Error::other("the connection was closed")) }
        }))
        .await;
    let channel = match channel {
        Ok(channel) => channel,
        Err(error) => {
            let reason = telemetry::chain(&error);
            return Ok(Outcome::Failure(format!("{address}: {reason}")));
        }
    };
    Ok(conclude(check(channel, &grpc.service).await))
}

async fn check(channel: Channel, service: &str) -> Result<HealthCheckResponse, Status> {
    let mut client = GrpcClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
    client
        .ready()
        .await
        .map_err(|error| Status::from_error(error.into()))?;
    let request = Request::new(HealthCheckRequest {
        service: service.to_owned(),
    });
    let path = http::uri::PathAndQuery::from_static(CHECK);
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    Ok(client.unary(request, path, codec).await?.into_inner())
}

fn conclude(checked: Result<HealthCheckResponse, Status>) -> Outcome {
    let status = match checked {
        Ok(response) if response.status() == ServingStatus::Serving => {
            return Outcome::Success(String::new());
        }
        Ok(response) => {
            let known = ServingStatus::try_from(response.status)
                .map(|status| format!("{status:?}"))
                .unwrap_or_else(|_| response.status.to_string());
            return Outcome::Failure(format!("the service answers that its status is {known}"));
        }
        Err(status) => status,
    };
    Outcome::Failure(match status.code() {
        Code::Unimplemented => {
            let message = status.message();
            format!("the server does not implement grpc.health.v1.Health: {message}")
        }
        code => format!("the health check failed: {code:?}: {}", status.message()),
    })
}
