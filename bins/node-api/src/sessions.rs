//! Sessions: exec, attach and port-forward, and commands without one.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::open_session_request::Session;
use http::header::UPGRADE;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tonic::Code;

use crate::activity::Activity;
use crate::answer::{self, Body};
use crate::network::ServerNetwork;
use crate::node::Node;
use crate::query::Query;
use crate::relay::{Address, Client, relay};
use crate::route::Target;
use crate::session_query::{self, NoStream};

/// What a session is asked for with.
pub(crate) struct Asked {
    pub(crate) target: Target,
    pub(crate) query: Query,
    /// The user's name.
    pub(crate) requester: String,
    pub(crate) request: Request<Incoming>,
    /// By which the runtime is reached.
    pub(crate) network: Arc<dyn ServerNetwork>,
    pub(crate) activity: Activity,
    pub(crate) idle_timeout: Duration,
}

/// Answers `/exec`.
pub(crate) async fn exec(node: &Arc<Node>, asked: Asked) -> Response<Body> {
    let session = session_query::exec(&asked.target, &asked.query);
    open(node, asked, session, "exec").await
}

/// Answers `/attach`.
pub(crate) async fn attach(node: &Arc<Node>, asked: Asked) -> Response<Body> {
    let session = session_query::attach(&asked.target, &asked.query);
    open(node, asked, session, "attach").await
}

/// Answers `/portForward`.
pub(crate) async fn port_forward(node: &Arc<Node>, asked: Asked) -> Response<Body> {
    let session = session_query::port_forward(&asked.query);
    open(node, asked, Ok(session), "portforward").await
}

async fn open(
    node: &Arc<Node>,
    asked: Asked,
    session: Result<Session, NoStream>,
    kind: &str,
) -> Response<Body> {
    let session = match session {
        Ok(session) => session,
        Err(error) => return answer::text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let Asked {
        target,
        mut request,
        network,
        requester,
        activity,
        idle_timeout,
        ..
    } = asked;
    if !request.headers().contains_key(UPGRADE) {
        return answer::text(StatusCode::BAD_REQUEST, "Upgrade request required");
    }
    let wanted = v1::OpenSessionRequest {
        pod: Some(pod(node, &target).await),
        requester,
        session: Some(session),
    };
    let opened = match node.open_session(&wanted).await {
        Ok(opened) => opened,
        Err(error) => return refusal(&error, &target),
    };
    let port = u16::try_from(opened.port);
    let (Ok(port), false) = (port, opened.tls) else {
        let text = "the container runtime serves sessions with TLS, which is not supported";
        return answer::text(StatusCode::INTERNAL_SERVER_ERROR, text);
    };
    let address = Address {
        port,
        path: format!("/{kind}/{}", opened.token),
    };
    let client = Client {
        upgrade: hyper::upgrade::on(&mut request),
        activity,
        idle_timeout,
    };
    let (head, _body) = request.into_parts();
    relay(&*network, &address, head.method, &head.headers, client).await
}

/// Answers `/run`.
pub(crate) async fn run(
    node: &Arc<Node>,
    target: Target,
    query: &Query,
    requester: String,
) -> Response<Body> {
    let command = query.first("cmd").unwrap_or_default().split(' ');
    let request = v1::RunCommandRequest {
        pod: Some(pod(node, &target).await),
        requester,
        container_name: target.container.clone(),
        command: command.map(str::to_owned).collect(),
    };
    match node.run_command(&request).await {
        Ok(done) if done.exit_code == 0 => answer::json(done.output),
        Ok(done) => {
            let output = String::from_utf8_lossy(&done.output).into_owned();
            let text = format!("command exited with {}: {output}", done.exit_code);
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
        Err(error) => refusal(&error, &target),
    }
}

/// The pod of a path. Where that has a UID, it may be that of a mirror, by which the API
/// server knows a static pod.
async fn pod(node: &Arc<Node>, target: &Target) -> v1::PodReference {
    let mut uid = target.uid.clone();
    if !uid.is_empty()
        && let Ok(pods) = node.desired_pods().await
        && let Some(mirrored) = pods.iter().find(|pod| pod.mirror_uid == uid)
        && let Some(reference) = mirrored.pod.as_ref().and_then(|pod| pod.reference.as_ref())
    {
        uid.clone_from(&reference.uid);
    }
    v1::PodReference {
        uid,
        namespace: target.namespace.clone(),
        name: target.pod.clone(),
    }
}

fn refusal(error: &ipc::CallError, target: &Target) -> Response<Body> {
    match error.code() {
        Some(Code::NotFound) => answer::text(StatusCode::NOT_FOUND, "pod does not exist"),
        Some(Code::FailedPrecondition) if !target.container.is_empty() => {
            let text = format!("container not found ({:?})", target.container);
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
        _ => answer::refusal(error),
    }
}
