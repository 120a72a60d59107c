//! Takes the place of any process: says that it is ready and alive, and answers whoever
//! calls it as the file beside it says (`NAME.orders`), which it reads again and again. Its
//! status is `MANNER CALLS MESSAGES METHODS`: how often it was called in this manner, what it
//! has sent, of those streams that it was asked for the one that has sent least, and how many
//! methods were called. For tests of what its callers and the supervisor do.
//!
//! ```text
//! NAME --node-config RUN-DIR/node.json
//! ```

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::hostile_answers::{Manner, Orders, is_unary, message};
use e2e::hostile_pool;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};

/// Between two signs of life; the supervisor waits longer for one.
const REST: Duration = Duration::from_millis(50);

/// What is sent at a time of bytes without a meaning.
const PIECE: usize = 16 << 10;

type Frames = BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>;

/// What it was told, and what came of it.
#[derive(Clone)]
struct Duty {
    orders: Arc<Orders>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
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

    fn least(&self) -> u64 {
        let of_methods = self.of_methods();
        let streams = of_methods.iter().filter(|(path, _)| !is_unary(path));
        let least = streams.map(|(_, sent)| *sent).min();
        least.unwrap_or_else(|| self.messages.load(Ordering::Relaxed))
    }
}

fn main() -> Result<()> {
    let path = std::env::current_exe()?.with_extension("orders");
    let (sender, duty) = watch::channel(read(&path)?);
    notify("READY=1")?;
    thread::spawn(move || {
        while report_and_read(&sender, &path).is_ok() {
            thread::park_timeout(REST);
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let socket = listenfd::ListenFd::from_env().take_unix_listener(0)?;
        let socket = socket.context("no socket")?;
        socket.set_nonblocking(true)?;
        let socket = UnixListener::from_std(socket)?;
        loop {
            let (stream, _) = socket.accept().await?;
            let mut duty = duty.clone();
            let now = duty.borrow_and_update().clone();
            tokio::spawn(async move {
                tokio::select! {
                    // In another manner with a connection of its own.
                    _ = duty.changed() => {}
                    () = attend(stream, now) => {}
                }
            });
        }
    })
}

fn read(path: &Path) -> Result<Duty> {
    Ok(Duty {
        orders: Arc::new(Orders::of_text(&fs::read_to_string(path)?)?),
        counts: Arc::default(),
    })
}

fn report_and_read(duty: &watch::Sender<Duty>, path: &Path) -> Result<()> {
    let now = duty.borrow().clone();
    let calls = now.counts.calls.load(Ordering::Relaxed);
    let (messages, methods) = (now.counts.least(), now.counts.of_methods().len());
    let manner = now.orders.manner.name();
    notify(&format!(
        "WATCHDOG=1\nSTATUS={manner} {calls} {messages} {methods}"
    ))?;
    let read = read(path)?;
    if read.orders.manner != now.orders.manner {
        duty.send_replace(read);
    }
    Ok(())
}

fn notify(text: &str) -> Result<()> {
    let path = std::env::var_os("NOTIFY_SOCKET").context("nobody to notify")?;
    UnixDatagram::unbound()?.send_to(text.as_bytes(), path)?;
    Ok(())
}

/// Answers on one connection until it breaks.
async fn attend(mut stream: UnixStream, duty: Duty) {
    if duty.orders.manner == Manner::NoHttp {
        duty.counts.calls.fetch_add(1, Ordering::Relaxed);
        while stream.write_all(&[0x5a; PIECE]).await.is_ok() {
            duty.counts.messages.fetch_add(1, Ordering::Relaxed);
        }
        return;
    }
    let answer = service_fn(move |request: Request<Incoming>| {
        let duty = duty.clone();
        async move { Ok::<_, Infallible>(answer(request.uri().path(), &duty).await) }
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
    let frames = frames(path.to_owned(), duty.clone(), first);
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
        _ => messages(path, duty, first),
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
        let message = match hostile_pool::answer(&path, &duty.orders, number) {
            Ok(None) => message(&path, &duty.orders, number),
            Ok(Some(message)) => Ok(message),
            Err(error) => Err(error),
        };
        data(&framed(&message.map_err(std::io::Error::other)?))
    });
    frames.boxed()
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
