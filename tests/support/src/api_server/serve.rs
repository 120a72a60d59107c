//! Connections: TLS, HTTP/2, requests, and watches that stand.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt as _};
use http::{Request as HttpRequest, Response, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::fault::Reply;
use super::request::Request;
use super::state::State;
use super::store::Refusal;
use super::watch::{Watch, error};

/// How long a watch lasts that lies. One that ends within a second is an error.
const SHORT_WATCH: Duration = Duration::from_secs(2);

/// A watch that has nothing to say says its version so often.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(5);

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Lines = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

/// The state, and a signal of changes of it.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changes: Sender<()>,
}

impl Shared {
    pub(super) fn new(state: State) -> Shared {
        Shared {
            state: Mutex::new(state),
            changes: Sender::new(()),
        }
    }

    /// Does something with the state; watches look at what changed.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut state);
        drop(state);
        self.changes.send_replace(());
        result
    }

    /// Looks at the state.
    fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Accepts connections for ever.
pub(super) async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    shared: Arc<Shared>,
) -> io::Error {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, tls.clone(), Arc::clone(&shared)));
            }
            Err(error) => return error,
        }
    }
}

/// A client that breaks off concerns nobody.
async fn connection(stream: TcpStream, tls: TlsAcceptor, shared: Arc<Shared>) {
    let Ok(stream) = tls.accept(stream).await else {
        return shared.with(State::has_no_client);
    };
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(request, &shared).await) }
    });
    let serving = http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    drop(serving);
}

async fn answer(request: HttpRequest<Incoming>, shared: &Arc<Shared>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes().into(),
        Err(_) => Vec::new(),
    };
    let content_type = head.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|it| it.to_str().ok());
    let uri = (head.uri.path(), head.uri.query().unwrap_or_default());
    let content_type = content_type.unwrap_or_default();
    let request = Request::new(head.method.as_str(), uri, content_type, body);
    match shared.with(|state| state.reply(&request)) {
        Reply::Usual => usual(&request, shared),
        Reply::Refused(refusal) => refused(&refusal),
        Reply::Text(text) => whole(200, text.to_owned()),
        Reply::Redirect(location) => {
            let mut response = whole(302, String::new());
            let location = header::HeaderValue::from_static(location);
            response.headers_mut().insert(header::LOCATION, location);
            response
        }
        Reply::Never => std::future::pending().await,
        Reply::With(pod) if request.is_watch() => {
            short_watch(json!({"type": "ADDED", "object": *pod}).to_string() + "\n")
        }
        Reply::Gone => short_watch(shared.look(|state| {
            let pods = state.store.list("pods").into_iter();
            let lines = pods.map(|pod| {
                let mut old = (*pod).clone();
                old["metadata"]["resourceVersion"] = json!("1");
                json!({"type": "DELETED", "object": old}).to_string() + "\n"
            });
            lines.collect()
        })),
        Reply::With(pod) => match shared.with(|state| state.answer(&request)) {
            Ok((code, mut list)) => {
                if let Some(items) = list["items"].as_array_mut() {
                    items.push(*pod);
                }
                whole(code, list.to_string())
            }
            Err(refusal) => refused(&refusal),
        },
    }
}

fn usual(request: &Request, shared: &Arc<Shared>) -> Response<Body> {
    if request.is_watch() {
        return match Watch::of(request) {
            Ok(watch) => standing(request, watch, shared),
            Err(refusal) => refused(&refusal),
        };
    }
    match shared.with(|state| state.answer(request)) {
        Ok((code, object)) => whole(code, object.to_string()),
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = whole(refusal.code, refusal.status().to_string());
    if refusal.code == 429 {
        let after = header::HeaderValue::from_static("1");
        response.headers_mut().insert(header::RETRY_AFTER, after);
    }
    response
}

fn whole(code: u16, text: String) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).boxed_unsync();
    response(code, body)
}

/// A watch of these lines, which ends a while later.
fn short_watch(lines: String) -> Response<Body> {
    let frames = stream::iter([Some(lines), None]).filter_map(|lines| async move {
        if lines.is_none() {
            tokio::time::sleep(SHORT_WATCH).await;
        }
        lines.map(|lines| Ok(Frame::data(lines.into())))
    });
    let frames: Lines = Box::pin(frames);
    response(200, StreamBody::new(frames).boxed_unsync())
}

fn standing(request: &Request, watch: Watch, shared: &Arc<Shared>) -> Response<Body> {
    let seconds = request.asked("timeoutSeconds").parse().unwrap_or(300);
    let following = Following {
        watch,
        epoch: shared.look(|state| state.epoch),
        until: Instant::now() + Duration::from_secs(seconds),
        changes: shared.changes.subscribe(),
        shared: Arc::clone(shared),
        is_over: false,
    };
    let lines: Lines = Box::pin(stream::unfold(following, |mut following| async move {
        let lines = following.next().await?;
        Some((Ok(Frame::data(lines.into())), following))
    }));
    response(200, StreamBody::new(lines).boxed_unsync())
}

fn response(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response
}

/// A watch with what it waits for.
struct Following {
    watch: Watch,
    epoch: u64,
    until: Instant,
    changes: Receiver<()>,
    shared: Arc<Shared>,
    is_over: bool,
}

impl Following {
    /// The next lines; none at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if self.is_over || Instant::now() >= self.until {
                return None;
            }
            let (lines, epoch) = {
                let watch = &mut self.watch;
                self.shared
                    .look(|state| (watch.lines(&state.store), state.epoch))
            };
            self.is_over = epoch != self.epoch || lines.is_err();
            match lines {
                Ok(lines) if lines.is_empty() && self.is_over => return None,
                Ok(lines) if lines.is_empty() => {}
                Ok(lines) => return Some(lines),
                Err(refusal) => return Some(error(&refusal)),
            }
            match tokio::time::timeout(BOOKMARK_PERIOD, self.changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => return Some(self.watch.bookmark()),
            }
        }
    }
}
