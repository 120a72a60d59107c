//! How a malicious stand-in for a process sends what it answers (`hostile_answers`,
//! `hostile_pool`, `hostile_to_people`), and what is no message at all.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_api::v1;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};

use crate::hostile_answers::{Manner, Orders, is_unary, message};
use crate::{hostile_pool, hostile_to_people};

/// What is sent at a time of bytes without a meaning.
const PIECE: usize = 16 << 10;

type Frames = BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>;

/// What it was told, and what came of it.
#[derive(Clone, Debug)]
pub struct Duty {
    /// How it answers.
    pub orders: Arc<Orders>,
    /// What it has answered so far.
    pub counts: Arc<Counts>,
}

impl Duty {
    /// Nothing was answered yet.
    #[must_use]
    pub fn new(orders: Orders) -> Duty {
        Duty {
            orders: Arc::new(orders),
            counts: Arc::default(),
        }
    }
}

/// How often it was called, and what it has sent.
#[derive(Debug, Default)]
pub struct Counts {
    calls: AtomicU64,
    messages: AtomicU64,
    /// Of each method that was called, what it has sent.
    of_methods: Mutex<BTreeMap<String, u64>>,
}

impl Counts {
    fn of_methods(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        let of_methods = self.of_methods.lock();
        of_methods.unwrap_or_else(PoisonError::into_inner)
    }

    /// What it has sent in answer to calls of this method.
    fn called(&self, path: &str) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed);
        *self.of_methods().entry(path.to_owned()).or_default()
    }

    fn sent(&self, path: &str) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        *self.of_methods().entry(path.to_owned()).or_default() += 1;
    }

    /// How often it was called.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// How many methods were called.
    #[must_use]
    pub fn methods(&self) -> usize {
        self.of_methods().len()
    }

    /// Messages that were sent, of those streams that it was asked for the one of which it
    /// has sent least.
    #[must_use]
    pub fn least(&self) -> u64 {
        let of_methods = self.of_methods();
        let streams = of_methods.iter().filter(|(path, _)| !is_unary(path));
        let least = streams.map(|(_, sent)| *sent).min();
        least.unwrap_or_else(|| self.messages.load(Ordering::Relaxed))
    }
}

/// Answers on one connection until it breaks.
pub async fn attend(mut stream: UnixStream, duty: Duty) {
    if duty.orders.manner == Manner::NoHttp {
        duty.counts.calls.fetch_add(1, Ordering::Relaxed);
        while stream.write_all(&[0x5a; PIECE]).await.is_ok() {
            duty.counts.messages.fetch_add(1, Ordering::Relaxed);
        }
        return;
    }
    serve(stream, move |path| {
        let duty = duty.clone();
        async move { answer(&path, &duty).await }
    })
    .await;
}

/// Answers on one connection as an honest process does that knows nothing but these pods.
pub async fn attend_honestly(stream: UnixStream, pods: Arc<Vec<v1::PodStatusEntry>>) {
    serve(stream, move |path| {
        let pods = Arc::clone(&pods);
        async move {
            let messages = match path.as_str() {
                "/bulkhead.v1.Statuses/ListPodStatuses" => pods.iter().map(status).collect(),
                _ if is_unary(&path) => vec![data(&framed(&[]))],
                _ => Vec::new(),
            };
            with_body(stream::iter(messages).chain(success()).boxed())
        }
    })
    .await;
}

fn status(pod: &v1::PodStatusEntry) -> Result<Frame<Bytes>, std::io::Error> {
    let response = v1::ListPodStatusesResponse {
        message: Some(v1::list_pod_statuses_response::Message::Entry(pod.clone())),
    };
    data(&framed(&response.encode_to_vec()))
}

/// Has each call answered by its path.
async fn serve<F>(stream: UnixStream, answer: impl Fn(String) -> F + Clone)
where
    F: Future<Output = Response<StreamBody<Frames>>> + Send + 'static,
{
    let answer = service_fn(move |request: Request<Incoming>| {
        let answered = answer(request.uri().path().to_owned());
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.max_send_buf_size(PIECE);
    // The caller has hung up, which is what it may do.
    drop(builder.serve_connection(TokioIo::new(stream), answer).await);
}

async fn answer(path: &str, duty: &Duty) -> Response<StreamBody<Frames>> {
    let sent = duty.counts.called(path);
    if duty.orders.manner == Manner::Silent {
        std::future::pending::<()>().await;
    }
    // Ids go on from one call to the next, and streams begin anew.
    let first = if is_unary(path) { sent } else { 0 };
    with_body(frames(path.to_owned(), duty.clone(), first))
}

fn with_body(frames: Frames) -> Response<StreamBody<Frames>> {
    let mut response = Response::new(StreamBody::new(frames));
    let content_type = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", content_type);
    response
}

fn frames(path: String, duty: Duty, first: u64) -> Frames {
    let (sent, of) = (Arc::clone(&duty.counts), path.clone());
    let frames = match duty.orders.manner {
        Manner::Malformed => repeat(framed(&[0xff; 9])),
        Manner::BeyondTheBound => {
            let head = data(&[0, 0xff, 0xff, 0xff, 0xff]);
            stream::iter([head]).chain(repeat(vec![0; PIECE])).boxed()
        }
        Manner::Resets => stream::iter([Err(std::io::ErrorKind::ConnectionReset.into())]).boxed(),
        // The call is answered, and the answer does not end.
        Manner::Endless | Manner::Unfinished => messages(path, duty, first),
        _ if is_unary(&path) => messages(path, duty, first).take(1).chain(success()).boxed(),
        _ => match hostile_to_people::length(&path) {
            Some(length) => messages(path, duty, first)
                .take(length)
                .chain(success())
                .boxed(),
            None => messages(path, duty, first),
        },
    };
    let frames = frames.then(move |frame| {
        if frame.as_ref().is_ok_and(Frame::is_data) {
            sent.sent(&of);
        }
        async move {
            // Whoever takes them as fast as they come keeps nobody else from running.
            tokio::task::consume_budget().await;
            frame
        }
    });
    frames.boxed()
}

fn messages(path: String, duty: Duty, first: u64) -> Frames {
    let numbers = stream::iter(first..);
    let frames = numbers.map(move |number| {
        let message = of_number(&path, &duty.orders, number);
        data(&framed(&message.map_err(std::io::Error::other)?))
    });
    frames.boxed()
}

fn of_number(path: &str, orders: &Orders, number: u64) -> anyhow::Result<Vec<u8>> {
    if let Some(message) = hostile_to_people::answer(path, orders, number) {
        return Ok(message);
    }
    match hostile_pool::answer(path, orders, number)? {
        Some(message) => Ok(message),
        None => message(path, orders, number),
    }
}

fn success() -> Frames {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream::iter([Ok(Frame::trailers(trailers))]).boxed()
}

fn repeat(bytes: Vec<u8>) -> Frames {
    let bytes = Bytes::from(bytes);
    stream::repeat_with(move || Ok(Frame::data(bytes.clone()))).boxed()
}

fn data(bytes: &[u8]) -> Result<Frame<Bytes>, std::io::Error> {
    Ok(Frame::data(Bytes::copy_from_slice(bytes)))
}

/// As gRPC has a message.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], message].concat()
}
