//! The services.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use bulkhead_api::v1;
use bulkhead_api::v1::api_connection_server::ApiConnection;
use bulkhead_api::v1::api_objects_server::ApiObjects;
use bulkhead_api::v1::api_reports_server::ApiReports;
use bulkhead_api::v1::service_change::Change as ServiceEvent;
use bulkhead_api::v1::watch_api_pods_response::Message as PodMessage;
use bulkhead_api::v1::watch_api_reports_response::Message as ReportMessage;
use futures_util::stream::{self, Stream, StreamExt as _};
use ipc::limits::truncate;
use ipc::{StateEvent, StateWatch};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::client::Client;
use crate::health::Health;
use crate::node;
use crate::object::{Object, Refusal};
use crate::objects::{NotKnown, Objects};
use crate::report::{self, Node, ReportError};
use crate::service;

/// Longest resource version that a caller may name; those of an API server are numbers.
const MAX_VERSION_BYTES: usize = 64;

/// Longest refusal that is passed on.
const MAX_REFUSAL_BYTES: usize = 1 << 10;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// All services.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) node_name: Arc<str>,
    pub(crate) pods: Objects,
    pub(crate) nodes: Objects,
    pub(crate) services: Objects,
    pub(crate) requests: Arc<Client>,
    pub(crate) health: Health,
    /// From which version on pods are listed: config-sourcer says so first.
    pub(crate) pods_from: watch::Sender<Option<String>>,
}

#[tonic::async_trait]
impl ApiObjects for Server {
    type WatchApiPodsStream = Answers<v1::WatchApiPodsResponse>;
    type WatchApiServicesStream = Answers<v1::ServiceChange>;

    async fn watch_api_services(
        &self,
        _request: Request<v1::WatchApiServicesRequest>,
    ) -> Result<Response<Self::WatchApiServicesStream>, Status> {
        let changes = watched(&self.services, |change| match change {
            Change::Begin => ServiceEvent::SnapshotBegin(v1::SnapshotBegin {}),
            Change::End(_) => ServiceEvent::SnapshotEnd(v1::SnapshotEnd {}),
            Change::Gone(uid) => ServiceEvent::RemovedUid(uid),
            Change::Object(object) => match service::service(&object) {
                Some(service) => ServiceEvent::Service(service),
                // It had an address, perhaps.
                None => ServiceEvent::RemovedUid(object.uid.clone()),
            },
        });
        Ok(answers(changes.map(|change| v1::ServiceChange {
            change: Some(change),
        })))
    }

    async fn watch_api_pods(
        &self,
        request: Request<v1::WatchApiPodsRequest>,
    ) -> Result<Response<Self::WatchApiPodsStream>, Status> {
        let version = request.into_inner().resource_version;
        let is_number = version.bytes().all(|byte| byte.is_ascii_digit());
        if version.len() > MAX_VERSION_BYTES || !is_number {
            return Err(Status::invalid_argument("resource_version is none"));
        }
        self.pods_from.send_if_modified(|from| {
            let is_first = from.is_none();
            from.get_or_insert(version);
            is_first
        });
        let of_pods = watched(&self.pods, |change| match change {
            Change::Begin => PodMessage::SnapshotBegin(v1::ApiSnapshotBegin {}),
            Change::Object(object) => PodMessage::Pod(api_pod(&object, object.json())),
            Change::End(version) => PodMessage::SnapshotEnd(v1::ApiSnapshotEnd {
                resource_version: version,
            }),
            Change::Gone(uid) => PodMessage::RemovedPodUid(uid),
        });
        let message = |node: Option<&Object>| PodMessage::Node(node::of(node));
        let nodes = self.nodes.clone();
        // Pods are judged by the Node, so it comes first.
        let first = stream::once(async move {
            nodes.are_listed().await;
            let node = nodes.hub.keys().first().and_then(|uid| nodes.get(uid));
            message(node.as_deref())
        });
        let of_node = node_changes(&self.nodes).map(move |node| message(node.as_deref()));
        let messages = first.chain(stream::select(of_pods, of_node));
        Ok(answers(messages.map(|message| v1::WatchApiPodsResponse {
            message: Some(message),
        })))
    }
}

#[tonic::async_trait]
impl ApiReports for Server {
    type WatchApiReportsStream = Answers<v1::WatchApiReportsResponse>;

    async fn watch_api_reports(
        &self,
        _request: Request<v1::WatchApiReportsRequest>,
    ) -> Result<Response<Self::WatchApiReportsStream>, Status> {
        let of_pods = watched(&self.pods, |change| match change {
            Change::Begin => ReportMessage::SnapshotBegin(v1::ApiSnapshotBegin {}),
            Change::Object(object) => {
                ReportMessage::Pod(api_pod(&object, object.json_without_spec()))
            }
            Change::End(version) => ReportMessage::SnapshotEnd(v1::ApiSnapshotEnd {
                resource_version: version,
            }),
            Change::Gone(uid) => ReportMessage::RemovedPodUid(uid),
        });
        let of_node = node_changes(&self.nodes)
            .map(|node| ReportMessage::Node(node.map_or_else(Vec::new, |node| node.json())));
        let messages = stream::select(of_pods, of_node);
        Ok(answers(messages.map(|message| {
            v1::WatchApiReportsResponse {
                message: Some(message),
            }
        })))
    }

    async fn report(
        &self,
        request: Request<v1::ReportRequest>,
    ) -> Result<Response<v1::ReportResponse>, Status> {
        let report = request.into_inner().report;
        let lane = report::lane(report.as_ref());
        let node = Node {
            name: &self.node_name,
            find: |uid: &str| self.pods.get(uid),
        };
        let request = node.request(report)?;
        let answered = self.requests.send(lane, &request).await;
        let answer = answered.map_err(|error| Status::unavailable(telemetry::chain(&error)))?;
        let code = answer.status.as_u16();
        let body = match answer.status.is_success() {
            true => Object::parse(&String::from_utf8_lossy(&answer.body))
                .map(|object| object.json_without_spec())
                .unwrap_or_default(),
            false => {
                let mut message = Refusal::of(code, &answer.body).message;
                truncate(&mut message, MAX_REFUSAL_BYTES);
                message.into_bytes()
            }
        };
        Ok(Response::new(v1::ReportResponse {
            code: code.into(),
            body,
        }))
    }
}

#[tonic::async_trait]
impl ApiConnection for Server {
    async fn get_api_connection(
        &self,
        _request: Request<v1::GetApiConnectionRequest>,
    ) -> Result<Response<v1::GetApiConnectionResponse>, Status> {
        Ok(Response::new(self.health.get()))
    }

    async fn get_api_node(
        &self,
        _request: Request<v1::GetApiNodeRequest>,
    ) -> Result<Response<v1::GetApiNodeResponse>, Status> {
        let node = self.nodes.known()?;
        Ok(Response::new(v1::GetApiNodeResponse { json: node.json() }))
    }
}

/// The one place where errors become statuses of calls.
impl From<ReportError> for Status {
    fn from(error: ReportError) -> Status {
        let text = error.to_string();
        match error {
            ReportError::UnknownPod { .. } => Status::not_found(text),
            ReportError::Empty | ReportError::Body { .. } => Status::failed_precondition(text),
        }
    }
}

impl From<NotKnown> for Status {
    fn from(error: NotKnown) -> Status {
        let text = error.to_string();
        match error {
            NotKnown::NotListed => Status::unavailable(text),
            NotKnown::Absent => Status::not_found(text),
        }
    }
}

/// What a watcher receives.
enum Change {
    Begin,
    Object(Arc<Object>),
    End(String),
    Gone(String),
}

fn answers<T: 'static>(messages: impl Stream<Item = T> + Send + 'static) -> Response<Answers<T>> {
    Response::new(Box::pin(messages.map(Ok)))
}

/// Once all objects are listed, a snapshot of them, then what changes, each as `message` says.
fn watched<T, F>(objects: &Objects, message: F) -> impl Stream<Item = T> + Send + use<T, F>
where
    F: FnMut(Change) -> T + Send,
{
    let hub = objects.hub.clone();
    let objects = objects.clone();
    stream::once(async move { objects.are_listed().await })
        .flat_map(move |version| changes(hub.subscribe(), version))
        .map(message)
}

/// The objects that are known, which were listed at `version`, and what changes.
fn changes(
    watch: StateWatch<String, Arc<Object>>,
    version: String,
) -> impl Stream<Item = Change> + Send {
    stream::unfold(
        (watch, VecDeque::from([version])),
        |(mut watch, mut version)| async move {
            let change = match watch.next().await {
                StateEvent::SnapshotBegin => Change::Begin,
                StateEvent::Item(_, object) => Change::Object(object),
                StateEvent::SnapshotEnd => Change::End(version.pop_front().unwrap_or_default()),
                StateEvent::Removed(uid) => Change::Gone(uid),
            };
            Some((change, (watch, version)))
        },
    )
}

/// The Node, once that is known, and whenever it changes; none where there is none.
fn node_changes(nodes: &Objects) -> impl Stream<Item = Option<Arc<Object>>> + Send + use<> {
    let changes = watched(nodes, |change| change);
    changes
        .scan(false, |has_node, change| {
            let node = match change {
                Change::Object(object) => {
                    *has_node = true;
                    Some(Some(object))
                }
                Change::Gone(_) => Some(None),
                Change::End(_) if !*has_node => Some(None),
                Change::Begin | Change::End(_) => None,
            };
            std::future::ready(Some(node))
        })
        .filter_map(std::future::ready)
}

fn api_pod(object: &Object, json: Vec<u8>) -> v1::ApiPod {
    v1::ApiPod {
        pod: Some(v1::PodReference {
            uid: object.uid.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        }),
        resource_version: object.version.clone(),
        json,
    }
}
