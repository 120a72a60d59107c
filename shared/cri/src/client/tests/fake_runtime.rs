//! A runtime that answers as a test tells it, on a real Unix socket.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt as _, stream};
use prost::Message as _;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::BoxStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::CriClient;
use crate::proto::containerd::events::{TaskExecStarted, TaskExit};
use crate::proto::containerd::runc::v1::ProcessDetails;
use crate::proto::containerd::services::events::v1::SubscribeRequest;
use crate::proto::containerd::services::events::v1::events_server::{Events, EventsServer};
use crate::proto::containerd::services::tasks::v1::tasks_server::{Tasks, TasksServer};
use crate::proto::containerd::services::tasks::v1::{
    DeleteResponse, DeleteTaskRequest, KillRequest, ListPidsRequest, ListPidsResponse, ProcessInfo,
};
use crate::proto::containerd::types::Envelope;
use crate::v1;
use crate::v1::image_service_server::{ImageService, ImageServiceServer};
use crate::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};

/// Answers as told; `stopped` records what StopContainer was asked.
#[derive(Clone, Default)]
pub(super) struct FakeRuntime {
    pub(super) sandbox_id: String,
    pub(super) container_ids: Vec<String>,
    pub(super) cri_events: bool,
    pub(super) hang: bool,
    pub(super) stopped: Arc<Mutex<Option<(String, i64, String)>>>,
    /// How long the other calls that may take long were to take at most.
    pub(super) deadlines: Arc<Mutex<Vec<String>>>,
    pub(super) hanging: Arc<AtomicBool>,
    /// Questions of usage that are open, and the most that ever were.
    pub(super) usage: Arc<(AtomicUsize, AtomicUsize)>,
    /// The same of lists of containers.
    pub(super) lists: Arc<(AtomicUsize, AtomicUsize)>,
}

impl FakeRuntime {
    fn note_deadline<Message>(&self, request: &Request<Message>) {
        self.deadlines.lock().unwrap().push(deadline(request));
    }

    /// Takes its time, and counts who is answered meanwhile.
    async fn take_time((open, most): &(AtomicUsize, AtomicUsize)) {
        let now = open.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How long a call may take, as the runtime is told.
fn deadline<Message>(request: &Request<Message>) -> String {
    let told = request.metadata().get("grpc-timeout").unwrap();
    told.to_str().unwrap().to_owned()
}

#[tonic::async_trait]
impl RuntimeService for FakeRuntime {
    async fn version(
        &self,
        request: Request<v1::VersionRequest>,
    ) -> Result<Response<v1::VersionResponse>, Status> {
        if self.hang {
            self.hanging.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        let version = request.into_inner().version;
        Ok(Response::new(v1::VersionResponse {
            version,
            ..Default::default()
        }))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> Result<Response<v1::RunPodSandboxResponse>, Status> {
        self.note_deadline(&request);
        let pod_sandbox_id = self.sandbox_id.clone();
        Ok(Response::new(v1::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> Result<Response<v1::StopContainerResponse>, Status> {
        let deadline = deadline(&request);
        let message = request.into_inner();
        *self.stopped.lock().unwrap() = Some((message.container_id, message.timeout, deadline));
        Err(Status::not_found("no such container"))
    }

    async fn exec_sync(
        &self,
        _request: Request<v1::ExecSyncRequest>,
    ) -> Result<Response<v1::ExecSyncResponse>, Status> {
        Ok(Response::new(v1::ExecSyncResponse {
            stdout: vec![b'o'; 16 << 20],
            stderr: vec![b'e'; 16 << 20],
            exit_code: 3,
        }))
    }

    async fn list_containers(
        &self,
        _request: Request<v1::ListContainersRequest>,
    ) -> Result<Response<v1::ListContainersResponse>, Status> {
        FakeRuntime::take_time(&self.lists).await;
        if self.hang {
            std::future::pending::<()>().await;
        }
        let container = |id: &String| v1::Container {
            id: id.clone(),
            ..Default::default()
        };
        let containers = self.container_ids.iter().map(container).collect();
        Ok(Response::new(v1::ListContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        _request: Request<v1::ContainerStatusRequest>,
    ) -> Result<Response<v1::ContainerStatusResponse>, Status> {
        Ok(Response::new(v1::ContainerStatusResponse::default()))
    }

    async fn list_container_stats(
        &self,
        _request: Request<v1::ListContainerStatsRequest>,
    ) -> Result<Response<v1::ListContainerStatsResponse>, Status> {
        FakeRuntime::take_time(&self.usage).await;
        if self.hang {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(v1::ListContainerStatsResponse::default()))
    }

    async fn container_stats(
        &self,
        _request: Request<v1::ContainerStatsRequest>,
    ) -> Result<Response<v1::ContainerStatsResponse>, Status> {
        FakeRuntime::take_time(&self.usage).await;
        let stats = Some(v1::ContainerStats::default());
        Ok(Response::new(v1::ContainerStatsResponse { stats }))
    }

    async fn pod_sandbox_stats(
        &self,
        _request: Request<v1::PodSandboxStatsRequest>,
    ) -> Result<Response<v1::PodSandboxStatsResponse>, Status> {
        FakeRuntime::take_time(&self.usage).await;
        let stats = Some(v1::PodSandboxStats::default());
        Ok(Response::new(v1::PodSandboxStatsResponse { stats }))
    }

    async fn get_container_events(
        &self,
        _request: Request<v1::GetEventsRequest>,
    ) -> Result<Response<BoxStream<v1::ContainerEventResponse>>, Status> {
        if !self.cri_events {
            return Err(Status::unimplemented("unknown method"));
        }
        let sandbox = v1::PodSandboxMetadata {
            uid: "uid-1".into(),
            ..Default::default()
        };
        let event = v1::ContainerEventResponse {
            container_id: "c1".into(),
            container_event_type: v1::ContainerEventType::ContainerStoppedEvent.into(),
            pod_sandbox_status: Some(v1::PodSandboxStatus {
                metadata: Some(sandbox),
                ..Default::default()
            }),
            ..Default::default()
        };
        Ok(Response::new(
            tokio_stream::iter([Ok(event), Err(Status::aborted("bye"))]).boxed(),
        ))
    }
}

#[tonic::async_trait]
impl ImageService for FakeRuntime {
    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> Result<Response<v1::ImageStatusResponse>, Status> {
        let wanted = request.into_inner().image.unwrap_or_default().image;
        let image = match wanted.as_str() {
            "known" => Some(v1::Image {
                id: "sha256:1".into(),
                ..Default::default()
            }),
            "nameless" => Some(v1::Image::default()),
            _ => None,
        };
        Ok(Response::new(v1::ImageStatusResponse {
            image,
            ..Default::default()
        }))
    }

    async fn pull_image(
        &self,
        request: Request<v1::PullImageRequest>,
    ) -> Result<Response<v1::PullImageResponse>, Status> {
        self.note_deadline(&request);
        let image_ref = request.into_inner().image.unwrap_or_default().image;
        Ok(Response::new(v1::PullImageResponse { image_ref }))
    }
}

/// containerd's event service: sends one exit and one start of a command, then stays silent.
struct FakeEvents {
    filters: Arc<Mutex<Vec<String>>>,
}

#[tonic::async_trait]
impl Events for FakeEvents {
    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<BoxStream<Envelope>>, Status> {
        *self.filters.lock().unwrap() = request.into_inner().filters;
        let exit = TaskExit {
            container_id: "c1".into(),
            id: "c1".into(),
        };
        let started = TaskExecStarted {
            container_id: "c1".into(),
            exec_id: "e1".into(),
        };
        let envelope = |name: &str, value| Envelope {
            namespace: "k8s.io".into(),
            event: Some(prost_types::Any {
                type_url: format!("containerd.events.{name}"),
                value,
            }),
            ..Default::default()
        };
        let events = [
            Ok(envelope("TaskExit", prost::Message::encode_to_vec(&exit))),
            Ok(envelope(
                "TaskExecStarted",
                prost::Message::encode_to_vec(&started),
            )),
        ];
        let stream = tokio_stream::iter(events).chain(stream::pending());
        Ok(Response::new(stream.boxed()))
    }
}

/// A served socket in a directory of its own; the server stops when this is dropped.
pub(super) struct Served {
    pub(super) directory: tempfile::TempDir,
    pub(super) server: JoinHandle<()>,
    pub(super) filters: Arc<Mutex<Vec<String>>>,
    /// What the task service was asked.
    pub(super) asked: Arc<Mutex<Vec<String>>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Served {
    pub(super) fn client(&self) -> CriClient {
        CriClient::new(&format!(
            "unix://{}",
            self.directory.path().join("s").display()
        ))
        .unwrap()
    }
}

/// containerd's task service: notes what it is asked, in which namespace, and answers
/// by the container's name.
#[derive(Clone, Default)]
struct FakeTasks {
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeTasks {
    /// How often the same was asked before.
    fn note<Message>(&self, what: &str, id: &str, request: &Request<Message>) -> usize {
        let namespace = request.metadata().get("containerd-namespace");
        let namespace = namespace.and_then(|value| value.to_str().ok());
        let asked = format!("{what} {id} in {}", namespace.unwrap_or_default());
        let mut all = self.asked.lock().unwrap();
        let before = all.iter().filter(|it| **it == asked).count();
        all.push(asked);
        before
    }
}

#[tonic::async_trait]
impl Tasks for FakeTasks {
    async fn kill(&self, request: Request<KillRequest>) -> Result<Response<()>, Status> {
        let KillRequest {
            container_id,
            signal,
            all,
        } = request.get_ref();
        self.note(
            &format!("signal {signal} all {all}"),
            container_id,
            &request,
        );
        match &**container_id {
            "runs" => Ok(Response::new(())),
            "created" => Err(Status::failed_precondition("it has not started")),
            _ => Err(Status::not_found("process already finished")),
        }
    }

    async fn delete(
        &self,
        request: Request<DeleteTaskRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        let id = &request.get_ref().container_id;
        let before = self.note("delete", id, &request);
        match &**id {
            "runs" if before == 0 => Err(Status::unknown("cannot delete a running process")),
            "gone" => Err(Status::not_found("no such task")),
            "stuck" => Err(Status::unknown("it is stuck")),
            _ => Ok(Response::new(DeleteResponse {})),
        }
    }

    /// Of the container's own process, of what that forked, and of two commands.
    async fn list_pids(
        &self,
        request: Request<ListPidsRequest>,
    ) -> Result<Response<ListPidsResponse>, Status> {
        let id = &request.get_ref().container_id;
        self.note("list", id, &request);
        if id == "gone" {
            return Err(Status::not_found("no such task"));
        }
        let command = |exec_id: &str| ProcessDetails {
            exec_id: exec_id.to_owned(),
        };
        let infos = [None, Some(command("one")), None, Some(command("two"))];
        let processes = infos
            .into_iter()
            .zip(1..)
            .map(|(details, pid)| ProcessInfo {
                pid,
                info: details.map(|details| prost_types::Any {
                    type_url: "containerd.runc.v1.ProcessDetails".to_owned(),
                    value: details.encode_to_vec(),
                }),
            });
        Ok(Response::new(ListPidsResponse {
            processes: processes.collect(),
        }))
    }
}

/// Serves it, with or without containerd's own services beside it.
pub(super) fn serve(runtime: FakeRuntime, with_containerd_events: bool) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(directory.path().join("s")).unwrap();
    let filters = Arc::new(Mutex::new(Vec::new()));
    let events = FakeEvents {
        filters: Arc::clone(&filters),
    };
    let tasks = FakeTasks::default();
    let asked = Arc::clone(&tasks.asked);
    let server = Server::builder()
        .add_service(RuntimeServiceServer::new(runtime.clone()))
        .add_service(ImageServiceServer::new(runtime))
        .add_optional_service(with_containerd_events.then(|| EventsServer::new(events)))
        .add_optional_service(with_containerd_events.then(|| TasksServer::new(tasks.clone())));
    let incoming = UnixListenerStream::new(listener);
    let server = tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });
    Served {
        directory,
        server,
        filters,
        asked,
    }
}
