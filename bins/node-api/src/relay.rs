//! Bytes between a client and the runtime's one-time address: the request goes there without
//! anything of the client but what the upgrade needs, and after the upgrade each side's bytes
//! go to the other until one of them ends.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::header::{
    CONNECTION, HOST, HeaderName, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use crate::activity::Activity;
use crate::answer::{self, Body};
use crate::network::ServerNetwork;
use crate::user::protocols_without_token;

/// Time until the runtime answers; it looks up what was asked for before.
const TIME: Duration = Duration::from_secs(10);

/// Largest refusal that is passed on.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// Which protocol the streams of a session have.
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED_STREAM_PROTOCOLS: HeaderName =
    HeaderName::from_static("x-accepted-stream-protocol-versions");

/// What an upgrade needs of either side.
const OF_UPGRADE: [HeaderName; 8] = [
    CONNECTION,
    UPGRADE,
    STREAM_PROTOCOL,
    ACCEPTED_STREAM_PROTOCOLS,
    SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION,
    SEC_WEBSOCKET_EXTENSIONS,
    HeaderName::from_static("sec-websocket-accept"),
];

/// Why the runtime gave no answer.
#[derive(Debug, thiserror::Error)]
enum RuntimeError {
    #[error("the container runtime does not serve the session")]
    Connect(#[from] std::io::Error),
    #[error("the container runtime gave no proper answer")]
    Exchange(#[from] hyper::Error),
    #[error("the container runtime gave no answer within {} s", TIME.as_secs())]
    Timeout,
}

/// A session's address at the runtime.
pub(crate) struct Address {
    pub(crate) port: u16,
    /// With its token.
    pub(crate) path: String,
}

/// The client's side.
pub(crate) struct Client {
    pub(crate) upgrade: OnUpgrade,
    pub(crate) activity: Activity,
    /// After so long without a byte the session ends.
    pub(crate) idle_timeout: Duration,
}

/// Asks the runtime for the session; if it agrees, the bytes go to and fro from then on.
pub(crate) async fn relay(
    network: &dyn ServerNetwork,
    address: &Address,
    method: Method,
    headers: &HeaderMap,
    client: Client,
) -> Response<Body> {
    let asked = tokio::time::timeout(TIME, ask(network, address, method, headers)).await;
    let mut response = match asked.unwrap_or(Err(RuntimeError::Timeout)) {
        Ok(response) => response,
        Err(error) => {
            let text = telemetry::chain(&error);
            return answer::text(StatusCode::INTERNAL_SERVER_ERROR, text);
        }
    };
    let status = response.status();
    let mut answered = match status {
        StatusCode::SWITCHING_PROTOCOLS => {
            let runtime = hyper::upgrade::on(&mut response);
            tokio::spawn(carry(client, runtime));
            answer::text(status, "")
        }
        _ => refusal(status, &mut response).await,
    };
    let of_upgrade = upgrade_headers(response.headers());
    answered.headers_mut().extend(of_upgrade);
    if let Some(protocol) = response.headers().get(SEC_WEBSOCKET_PROTOCOL) {
        let protocol = protocol.clone();
        answered
            .headers_mut()
            .insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    answered
}

async fn ask(
    network: &dyn ServerNetwork,
    address: &Address,
    method: Method,
    headers: &HeaderMap,
) -> Result<Response<Incoming>, RuntimeError> {
    let stream = network.connect_to_runtime(address.port).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    let request = request(address, method, headers);
    Ok(sender.send_request(request).await?)
}

fn request(address: &Address, method: Method, headers: &HeaderMap) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.method_mut() = method;
    // The path has letters, digits and few signs.
    *request.uri_mut() = address.path.parse().unwrap_or_default();
    let own = request.headers_mut();
    own.extend(upgrade_headers(headers));
    let protocols = protocols_without_token(headers);
    if !protocols.is_empty()
        && let Ok(protocols) = HeaderValue::from_str(&protocols)
    {
        own.insert(SEC_WEBSOCKET_PROTOCOL, protocols);
    }
    let host = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port));
    if let Ok(host) = HeaderValue::from_str(&host.to_string()) {
        own.insert(HOST, host);
    }
    request
}

fn upgrade_headers(headers: &HeaderMap) -> HeaderMap {
    let of_upgrade = headers.iter().filter(|(name, _)| OF_UPGRADE.contains(name));
    of_upgrade
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

async fn refusal(status: StatusCode, response: &mut Response<Incoming>) -> Response<Body> {
    let body = Limited::new(response.body_mut(), MAX_REFUSAL_BYTES).collect();
    let text = match body.await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Err(error) => error.to_string(),
    };
    answer::text(status, text)
}

/// Carries bytes until one side ends or nothing goes over the connection any more.
async fn carry(client: Client, runtime: OnUpgrade) {
    let Client {
        upgrade,
        activity,
        idle_timeout,
    } = client;
    let carrying = async {
        let (client, runtime) = match tokio::try_join!(upgrade, runtime) {
            Ok(both) => both,
            Err(error) => {
                tracing::debug!(%error, "a session was not upgraded");
                return;
            }
        };
        both_ways(client, runtime).await;
    };
    tokio::select! {
        () = carrying => {}
        () = activity.until_idle(idle_timeout) => {
            tracing::info!(?idle_timeout, "a session ends: nothing went over it");
        }
    }
}

/// The session is over for both as soon as one of them has ended.
async fn both_ways(client: Upgraded, runtime: Upgraded) {
    let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(client));
    let (mut from_runtime, mut to_runtime) = tokio::io::split(TokioIo::new(runtime));
    let ended = tokio::select! {
        ended = tokio::io::copy(&mut from_client, &mut to_runtime) => ended,
        ended = tokio::io::copy(&mut from_runtime, &mut to_client) => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a session broke");
    }
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut to_client).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;
    use std::sync::{Arc, Mutex};

    use http::header::AUTHORIZATION;
    use hyper::server;
    use hyper::service::service_fn;
    use ipc::Stream;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::{Instant, timeout};
    use tonic::async_trait;

    use super::*;
    use crate::activity::Noted;
    use crate::network::Listen;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A runtime to which one connection can be made.
    #[derive(Debug)]
    struct Runtime(Mutex<Option<DuplexStream>>);

    #[async_trait]
    impl ServerNetwork for Runtime {
        fn listen(&self, _address: SocketAddr) -> io::Result<Box<dyn Listen>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        async fn connect_to_runtime(&self, _port: u16) -> io::Result<Box<dyn Stream>> {
            let near = self.0.lock().unwrap().take();
            Ok(Box::new(near.ok_or(io::ErrorKind::ConnectionRefused)?))
        }
    }

    /// Both ends of a session that ends when it is idle for an hour.
    async fn session() -> (DuplexStream, DuplexStream) {
        let (near, mut runtime) = duplex(4096);
        let network = Arc::new(Runtime(Mutex::new(Some(near))));
        let (near, mut client) = duplex(4096);
        let activity = Activity::new();
        let stream = TokioIo::new(Noted::new(near, activity.clone()));
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (network, activity) = (Arc::clone(&network), activity.clone());
            async move {
                let address = Address {
                    port: 1,
                    path: "/exec/token".to_owned(),
                };
                let client = Client {
                    upgrade: hyper::upgrade::on(&mut request),
                    activity,
                    idle_timeout: HOUR,
                };
                let (method, headers) = (request.method().clone(), request.headers());
                let answered = relay(&*network, &address, method, headers, client).await;
                Ok::<_, Infallible>(answered)
            }
        });
        let serving = server::conn::http1::Builder::new().serve_connection(stream, service);
        tokio::spawn(serving.with_upgrades());
        let request = b"POST / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n";
        client.write_all(request).await.unwrap();
        head(&mut runtime).await;
        let answer =
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n";
        runtime.write_all(answer).await.unwrap();
        let answered = head(&mut client).await;
        assert!(answered.starts_with("HTTP/1.1 101"), "{answered}");
        (client, runtime)
    }

    /// Reads the head of a message.
    async fn head(stream: &mut DuplexStream) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head.push(char::from(stream.read_u8().await.unwrap()));
        }
        head
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_for_both_once_nothing_went_over_it_for_long() {
        let (mut client, mut runtime) = session().await;
        tokio::time::sleep(HOUR / 2).await;
        runtime.write_all(b"x").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'x');
        let said = Instant::now();
        assert!(runtime.read_u8().await.is_err());
        assert!(client.read_u8().await.is_err());
        assert_eq!(said.elapsed(), HOUR);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_for_both_when_one_of_them_ends() {
        let begin = Instant::now();
        let (mut client, mut runtime) = session().await;
        client.shutdown().await.unwrap();
        assert!(runtime.read_u8().await.is_err());
        assert!(client.read_u8().await.is_err());
        let (mut client, runtime) = session().await;
        drop(runtime);
        assert!(client.read_u8().await.is_err());
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn little_is_kept_for_a_client_that_does_not_read() {
        let (_client, mut runtime) = session().await;
        let mut taken = 0;
        while let Ok(written) = timeout(TIME, runtime.write(&[0; 1024])).await {
            taken += written.unwrap();
            assert!(taken < 64 << 10, "{taken} bytes are kept");
        }
    }

    #[test]
    fn the_runtime_gets_nothing_of_the_client_but_what_the_upgrade_needs() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (CONNECTION, "Upgrade"),
            (UPGRADE, "websocket"),
            (AUTHORIZATION, "Bearer secret"),
            (HeaderName::from_static("cookie"), "secret"),
            (HeaderName::from_static("x-forwarded-for"), "10.0.0.1"),
            (HOST, "node:10250"),
            (SEC_WEBSOCKET_KEY, "key"),
            (
                SEC_WEBSOCKET_PROTOCOL,
                "base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io",
            ),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let address = Address {
            port: 1234,
            path: "/exec/token".to_owned(),
        };
        let request = request(&address, Method::GET, &headers);
        assert_eq!(request.uri(), "/exec/token");
        let mut sent: Vec<(&str, &str)> = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        sent.sort_unstable();
        let expected = [
            ("connection", "Upgrade"),
            ("host", "127.0.0.1:1234"),
            ("sec-websocket-key", "key"),
            ("sec-websocket-protocol", "v4.channel.k8s.io"),
            ("upgrade", "websocket"),
        ];
        assert_eq!(sent, expected);
    }
}
