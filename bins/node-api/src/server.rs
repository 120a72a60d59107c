//! Connections, and who answers which request.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bulkhead_api::v1;
use clock::WallClock;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipc::Stream;
use node_config::NodeServer;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::access::Access;
use crate::activity::{Activity, Noted};
use crate::answer::{self, Body};
use crate::health::health;
use crate::logs::logs;
use crate::network::{Accepted, Listen, ServerNetwork};
use crate::newcomers::{Newcomer, Newcomers, TIME};
use crate::node::Node;
use crate::pods::{pods, running_pods};
use crate::query::Query;
use crate::route::{self, Route};
use crate::sessions::{self, Asked};
use crate::{metrics, summary, usage, user};

/// Most connections, sessions among them.
const MAX_CONNECTIONS: usize = 512;

/// Most connections for health, and time for each.
const MAX_HEALTH_CONNECTIONS: usize = 16;
const HEALTH_TIME: Duration = Duration::from_secs(10);

/// How long a connection may wait for its next request (kubelet: 90 s).
const REQUEST_TIME: Duration = Duration::from_secs(90);

/// Largest head of a request: a command is in its query.
const MAX_HEAD_BYTES: usize = 128 << 10;

/// Pause after a connection could not be accepted: descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all connections share.
pub(crate) struct Server {
    pub(crate) node: Arc<Node>,
    network: Arc<dyn ServerNetwork>,
    pub(crate) node_name: String,
    pub(crate) settings: NodeServer,
    pub(crate) access: Access,
    pub(crate) clock: WallClock,
    newcomers: Newcomers,
    places: Arc<Semaphore>,
}

/// What one connection has.
struct Connection {
    server: Arc<Server>,
    /// Whose certificate it has shown.
    certificate: Option<v1::ApiUser>,
    /// Until it has shown who it is.
    newcomer: Arc<Mutex<Option<Newcomer>>>,
    activity: Activity,
}

impl Server {
    pub(crate) fn new(
        node: Arc<Node>,
        network: Arc<dyn ServerNetwork>,
        node_name: String,
        settings: NodeServer,
        clock: WallClock,
    ) -> Server {
        Server {
            access: Access::new(&settings, Arc::clone(&node)),
            node,
            network,
            node_name,
            settings,
            clock,
            newcomers: Newcomers::default(),
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        }
    }

    /// Accepts connections and serves each.
    pub(crate) async fn serve(
        self: Arc<Self>,
        listener: Box<dyn Listen>,
        acceptor: TlsAcceptor,
    ) -> Infallible {
        loop {
            let Accepted { stream, from } = accept(&*listener).await;
            let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                continue;
            };
            let newcomer = self.newcomers.admit(from);
            let connection = Arc::clone(&self).connection(stream, newcomer, acceptor.clone());
            tokio::spawn(async move {
                connection.await;
                drop(place);
            });
        }
    }

    async fn connection(
        self: Arc<Self>,
        stream: Box<dyn Stream>,
        newcomer: Newcomer,
        acceptor: TlsAcceptor,
    ) {
        let has_to_go = newcomer.has_to_go.clone();
        let newcomer = Arc::new(Mutex::new(Some(newcomer)));
        let activity = Activity::new();
        let idle_timeout = self.settings.stream_idle_timeout;
        let serving = serve_connection(
            Arc::clone(&self),
            stream,
            Arc::clone(&newcomer),
            activity.clone(),
            acceptor,
        );
        let is_late = async {
            tokio::time::sleep(TIME).await;
            if lock(&newcomer).is_none() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = serving => {}
            () = has_to_go.cancelled() => {}
            () = is_late => {}
            () = activity.until_idle(idle_timeout) => {}
        }
    }
}

/// Shakes hands and answers requests until the connection ends, or is a session's.
async fn serve_connection(
    server: Arc<Server>,
    stream: Box<dyn Stream>,
    newcomer: Arc<Mutex<Option<Newcomer>>>,
    activity: Activity,
    acceptor: TlsAcceptor,
) {
    let stream = match acceptor.accept(Noted::new(stream, activity.clone())).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a TLS handshake failed");
            return;
        }
    };
    let shown = stream.get_ref().1.peer_certificates();
    let certificate = shown.and_then(|chain| user::of_certificate(chain.first()?));
    if certificate.is_some() {
        drop(lock(&newcomer).take());
    }
    let connection = Arc::new(Connection {
        server,
        certificate,
        newcomer,
        activity,
    });
    let service = service_fn(|request| {
        let connection = Arc::clone(&connection);
        async move { Ok::<_, Infallible>(connection.answer(request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection broke");
    }
}

impl Connection {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let server = &self.server;
        let access = &server.access;
        let certificate = self.certificate.as_ref();
        let authenticated = access.authenticate(certificate, request.headers()).await;
        let user = match authenticated {
            Ok(user) => user,
            Err(error) => return answer::text(error.status(), error.to_string()),
        };
        drop(lock(&self.newcomer).take());
        let Some(verb) = route::verb(request.method()) else {
            return not_allowed();
        };
        let subresources = route::subresources(request.uri().path());
        if let Err(error) = access.authorize(&user, verb, subresources).await {
            return answer::text(error.status(), error.to_string());
        }
        let route = Route::of(request.method(), request.uri().path());
        if route.is_for_debugging() && !server.settings.debugging_handlers {
            let text = "Debug endpoints are disabled.\n";
            return answer::text(StatusCode::METHOD_NOT_ALLOWED, text);
        }
        self.route(route, user.name, request).await
    }

    async fn route(
        &self,
        route: Route,
        requester: String,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let server = &self.server;
        let node = &server.node;
        let query = Query::parse(request.uri().query());
        let asked = |target, query| Asked {
            target,
            query,
            requester: requester.clone(),
            request,
            network: Arc::clone(&server.network),
            activity: self.activity.clone(),
            idle_timeout: server.settings.stream_idle_timeout,
        };
        match route {
            Route::Health(check) => health(node, &check, &query).await,
            Route::Pods => pods(node).await,
            Route::RunningPods => running_pods(node).await,
            Route::Configuration => {
                let configuration = &server.settings.configuration;
                answer::json(json!({"kubeletconfig": configuration}).to_string())
            }
            Route::Summary => {
                let only = query.first("only_cpu_and_memory") == Some("true");
                match usage::look(node).await {
                    Ok(look) => {
                        let summary = summary::summary(&look, &server.node_name, only);
                        answer::json(summary.to_string())
                    }
                    Err(error) => answer::refusal(&error),
                }
            }
            Route::ResourceMetrics => match usage::look(node).await {
                Ok(look) => answer::text(StatusCode::OK, metrics::resource(&look)),
                Err(error) => answer::refusal(&error),
            },
            Route::Logs(target) => logs(node, &server.clock, target, &query).await,
            Route::Exec(target) => sessions::exec(node, asked(target, query)).await,
            Route::Attach(target) => sessions::attach(node, asked(target, query)).await,
            Route::PortForward(target) => sessions::port_forward(node, asked(target, query)).await,
            Route::Run(target) => sessions::run(node, target, &query, requester).await,
            Route::Nothing => answer::text(StatusCode::NOT_FOUND, "404 page not found\n"),
            Route::OtherMethod => not_allowed(),
        }
    }
}

/// Answers `/healthz` to whoever asks, without TLS.
pub(crate) async fn serve_health(node: Arc<Node>, listener: Box<dyn Listen>) -> Infallible {
    let places = Arc::new(Semaphore::new(MAX_HEALTH_CONNECTIONS));
    loop {
        let stream = accept(&*listener).await.stream;
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            continue;
        };
        let node = Arc::clone(&node);
        let service = service_fn(move |request: Request<Incoming>| {
            let node = Arc::clone(&node);
            async move { Ok::<_, Infallible>(answer_health(&node, &request).await) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            let _ = tokio::time::timeout(HEALTH_TIME, served).await;
            drop(place);
        });
    }
}

async fn answer_health(node: &Arc<Node>, request: &Request<Incoming>) -> Response<Body> {
    let query = Query::parse(request.uri().query());
    match Route::of(request.method(), request.uri().path()) {
        Route::Health(check) => health(node, &check, &query).await,
        _ => answer::text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

async fn accept(listener: &dyn Listen) -> Accepted {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn not_allowed() -> Response<Body> {
    answer::text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
