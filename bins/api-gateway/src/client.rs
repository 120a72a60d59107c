//! Requests of the API server over one connection that is made when it is needed, and again
//! after it broke.

use std::sync::Mutex as SyncMutex;
use std::sync::PoisonError;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::connection::{Address, ConnectError};
use crate::health::Health;
use crate::pace::{Lane, Pace, Paces};

/// Names us in the audit log, and, up to the slash, in `managedFields`: it never changes.
const PRODUCT: &str = concat!("bulkhead/", env!("CARGO_PKG_VERSION"));

/// Time for a request that is no watch, a wait for its turn not counted.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Time until a watch begins to be answered.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest answer: a list of all pods of the node.
pub(crate) const MAX_ANSWER_BYTES: usize = 32 << 20;

/// Longest pause that the API server can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection broke.
    #[error("the API server gave no proper answer")]
    Exchange(#[from] hyper::Error),
    /// The body broke off or is too large.
    #[error("cannot read the API server's answer")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It took too long.
    #[error("no answer of the API server within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The path cannot be asked for.
    #[error("the request cannot be made")]
    Request(#[from] http::Error),
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// With its query.
    pub(crate) path: String,
    /// Empty without a body.
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

impl ApiRequest {
    pub(crate) fn get(path: String) -> ApiRequest {
        ApiRequest {
            method: Method::GET,
            path,
            content_type: "",
            body: Vec::new(),
        }
    }
}

/// What the API server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// One connection, and the requests over it.
pub(crate) struct Client {
    address: Address,
    health: Health,
    sender: Mutex<Option<SendRequest<Full<Bytes>>>>,
    paces: SyncMutex<Paces>,
    begin: Instant,
}

impl Client {
    pub(crate) fn new(address: Address, health: Health) -> Client {
        Client {
            address,
            health,
            sender: Mutex::new(None),
            paces: SyncMutex::default(),
            begin: Instant::now(),
        }
    }

    /// Makes a request and reads the whole answer. It waits for its turn in its lane; where the
    /// API server asks for a pause, the lane makes one, and the request is made again.
    pub(crate) async fn send(
        &self,
        lane: Lane,
        request: &ApiRequest,
    ) -> Result<Answer, ClientError> {
        let begin = self.begin.elapsed();
        loop {
            let wait = self.with_pace(lane, Pace::admit).unwrap_or_default();
            tokio::time::sleep(wait).await;
            let exchange = self.exchange_whole(request);
            let answered = tokio::time::timeout(REQUEST_TIMEOUT, exchange).await;
            let answered = answered.unwrap_or(Err(ClientError::Timeout(REQUEST_TIMEOUT)));
            let (answer, pause) = self.note(answered).await?;
            if let Some(pause) = pause {
                self.with_pace(lane, |pace, now| pace.pause(now, pause));
                let is_late = self.begin.elapsed() + pause > begin + REQUEST_TIMEOUT;
                if !is_late && lane != Lane::Lease {
                    continue;
                }
            }
            return Ok(answer);
        }
    }

    /// The answer, and the pause that the API server asks for.
    async fn exchange_whole(
        &self,
        request: &ApiRequest,
    ) -> Result<(Answer, Option<Duration>), ClientError> {
        let response = self.exchange(request).await?;
        let status = response.status();
        let is_too_much = status == StatusCode::TOO_MANY_REQUESTS;
        let pause = is_too_much.then(|| retry_after(&response));
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect();
        let body = body.await.map_err(ClientError::Body)?.to_bytes();
        Ok((Answer { status, body }, pause))
    }

    /// Begins a watch: its answer comes line by line, without end.
    pub(crate) async fn watch(&self, path: String) -> Result<Response<Incoming>, ClientError> {
        let request = ApiRequest::get(path);
        let answered = tokio::time::timeout(WATCH_TIMEOUT, self.exchange(&request)).await;
        self.note(answered.unwrap_or(Err(ClientError::Timeout(WATCH_TIMEOUT))))
            .await
    }

    async fn exchange(&self, request: &ApiRequest) -> Result<Response<Incoming>, ClientError> {
        let outgoing = self.outgoing(request)?;
        let mut sender = self.connected().await?;
        Ok(sender.send_request(outgoing).await?)
    }

    async fn connected(&self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let mut sender = self.sender.lock().await;
        if let Some(open) = sender.as_ref().filter(|it| !it.is_closed()) {
            return Ok(open.clone());
        }
        let connected = self.address.connect().await;
        self.health.connects(connected.is_ok());
        let new = connected?;
        *sender = Some(new.clone());
        Ok(new)
    }

    /// Notes whether there was an answer. After one that never came the next request has a
    /// new connection.
    async fn note<T>(&self, answered: Result<T, ClientError>) -> Result<T, ClientError> {
        match &answered {
            Ok(_) => self.health.answered(),
            Err(error) => {
                self.health.failed(&telemetry::chain(error));
                if matches!(error, ClientError::Timeout(_)) {
                    *self.sender.lock().await = None;
                }
            }
        }
        answered
    }

    fn outgoing(&self, request: &ApiRequest) -> Result<Request<Full<Bytes>>, http::Error> {
        let Address {
            authority, prefix, ..
        } = &self.address;
        let uri = format!("https://{authority}{prefix}{}", request.path);
        let mut built = Request::builder()
            .method(request.method.clone())
            .uri(uri)
            .header(USER_AGENT, HeaderValue::from_static(PRODUCT))
            .header(ACCEPT, HeaderValue::from_static("application/json"));
        if !request.content_type.is_empty() {
            built = built.header(CONTENT_TYPE, request.content_type);
        }
        built.body(Full::new(request.body.clone().into()))
    }

    fn with_pace<T>(&self, lane: Lane, act: impl FnOnce(&mut Pace, Duration) -> T) -> Option<T> {
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        paces.of(lane).map(|pace| act(pace, self.begin.elapsed()))
    }
}

/// The pause that the API server asks for, 1 s where it does not say.
fn retry_after(response: &Response<Incoming>) -> Duration {
    let header = response.headers().get(RETRY_AFTER);
    let seconds = header.and_then(|it| it.to_str().ok()?.parse().ok());
    Duration::from_secs(seconds.unwrap_or(1)).min(MAX_RETRY_AFTER)
}

#[cfg(test)]
mod tests;
