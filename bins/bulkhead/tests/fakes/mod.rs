//! A node whose processes answer with what a test says, on real sockets.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::pin::Pin;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::api_connection_server::ApiConnection;
use bulkhead_api::v1::container_logs_server::ContainerLogs;
use bulkhead_api::v1::list_events_response::Message as EventMessage;
use bulkhead_api::v1::list_pod_statuses_response::Message as StatusMessage;
use bulkhead_api::v1::statuses_server::{Statuses, StatusesServer};
use bulkhead_api::v1::supervisor_server::{Supervisor, SupervisorServer};
use bulkhead_api::v1::sync_loop_server::{SyncLoop, SyncLoopServer};
use bulkhead_api::v1::usage_server::Usage;
use futures_util::{Stream, stream};
use node_config::{ApiServer, DEFAULT_ROOT_DIR, DirectoryLayout, NODE_CONFIG_FILE, NodeConfig};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use topology::{Identities, Process};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A node whose processes answer with what the test says.
pub(crate) struct Node {
    directory: tempfile::TempDir,
    servers: Vec<Server>,
}

/// One run of a server: a thread with a runtime of its own, so that its end
/// breaks every connection, as the end of a process does.
pub(crate) struct Server {
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(process: Process, socket: &UnixListener, routes: Routes) -> Server {
        let socket = socket.try_clone().unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = ipc::Listener::from_unix(socket).unwrap();
                let identities = Arc::new(Identities::from_base(700_000).unwrap());
                let token = CancellationToken::new();
                let serving = ipc::serve(process, identities, listener, routes, token);
                tokio::select! {
                    result = serving => result.unwrap(),
                    () = stopped.cancelled() => {}
                }
            });
        });
        Server {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Node {
    pub(crate) fn empty() -> Node {
        let directory = tempfile::tempdir().unwrap();
        Node {
            directory,
            servers: Vec::new(),
        }
    }

    /// As a supervisor leaves it, with the node policy at this path.
    pub(crate) fn configured_with(&self, policy: &Path) {
        self.configured(policy, None);
    }

    /// The same with an API server, or with none.
    pub(crate) fn configured_for(&self, api_server: Option<ApiServer>) {
        self.configured(Path::new("/etc/bulkhead/policy.toml"), api_server);
    }

    fn configured(&self, policy: &Path, api_server: Option<ApiServer>) {
        let directories = DirectoryLayout {
            run_dir: self.run_dir().to_owned(),
            state_dir: "/var/lib/bulkhead".into(),
            root_dir: DEFAULT_ROOT_DIR.into(),
            log_dir: "/var/log".into(),
            bin_dir: "/usr/libexec/bulkhead".into(),
        };
        let config = NodeConfig {
            policy_path: policy.to_owned(),
            api_server,
            ..NodeConfig::with_defaults("n1".to_owned(), directories)
        };
        let config = serde_json::to_vec(&config).unwrap();
        std::fs::write(self.run_dir().join(NODE_CONFIG_FILE), config).unwrap();
    }

    pub(crate) fn run_dir(&self) -> &Path {
        self.directory.path()
    }

    /// The socket of a process, which outlives its servers.
    pub(crate) fn socket(&self, process: Process) -> UnixListener {
        UnixListener::bind(self.run_dir().join(process.socket_file_name())).unwrap()
    }

    pub(crate) fn serve(&mut self, process: Process, routes: Routes) {
        let socket = self.socket(process);
        self.servers.push(Server::start(process, &socket, routes));
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bulkhead"));
        command
            .arg("--run-dir")
            .arg(self.run_dir())
            .args(arguments)
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn bulkhead(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().await.unwrap()
    }

    /// A command that goes on until it is killed.
    pub(crate) fn watch(&self, arguments: &[&str]) -> Watch {
        let mut child = self
            .command(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Watch {
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }
}

/// Far longer than any line is waited for, so that a failure does not hang.
const A_LINE_COMES_WITHIN: Duration = Duration::from_secs(30);

/// A running command and what it prints.
pub(crate) struct Watch {
    lines: tokio::io::Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl Watch {
    pub(crate) async fn line(&mut self) -> String {
        let line = tokio::time::timeout(A_LINE_COMES_WITHIN, self.lines.next_line());
        line.await
            .expect("a line should have come")
            .unwrap()
            .expect("it should go on")
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn pod(name: &str) -> v1::Pod {
    let json = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    });
    v1::Pod {
        reference: Some(v1::PodReference {
            uid: format!("uid-{name}"),
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }),
        json: json.to_string().into_bytes(),
        ..v1::Pod::default()
    }
}

/// Has a Node.
pub(crate) struct FakeGateway;

#[tonic::async_trait]
impl ApiConnection for FakeGateway {
    async fn get_api_connection(
        &self,
        _: Request<v1::GetApiConnectionRequest>,
    ) -> Result<Response<v1::GetApiConnectionResponse>, Status> {
        Ok(Response::new(v1::GetApiConnectionResponse::default()))
    }

    async fn get_api_node(
        &self,
        _: Request<v1::GetApiNodeRequest>,
    ) -> Result<Response<v1::GetApiNodeResponse>, Status> {
        let node = json!({"metadata": {"name": "n1"}, "status": {}});
        Ok(Response::new(v1::GetApiNodeResponse {
            json: node.to_string().into_bytes(),
        }))
    }
}

/// Statuses and events; the first list of each is cut in its middle.
#[derive(Default)]
pub(crate) struct FakeStatuses {
    pub(crate) lists: AtomicUsize,
    pub(crate) cut: Arc<Notify>,
}

#[tonic::async_trait]
impl Statuses for FakeStatuses {
    type ListPodStatusesStream = Answers<v1::ListPodStatusesResponse>;

    async fn list_pod_statuses(
        &self,
        _: Request<v1::ListPodStatusesRequest>,
    ) -> Result<Response<Self::ListPodStatusesStream>, Status> {
        let entry = v1::PodStatusEntry {
            pod: Some(pod("web")),
            last_plan: "nothing to do".to_owned(),
            ..v1::PodStatusEntry::default()
        };
        let answer = |message| {
            Ok(v1::ListPodStatusesResponse {
                message: Some(message),
            })
        };
        let first = stream::iter([answer(StatusMessage::Entry(entry))]);
        if self.lists.fetch_add(1, Ordering::Relaxed) == 0 {
            self.cut.notify_one();
            return Ok(Response::new(Box::pin(futures_util::StreamExt::chain(
                first,
                stream::pending(),
            ))));
        }
        let end = stream::iter([answer(StatusMessage::SnapshotComplete(true))]);
        Ok(Response::new(Box::pin(futures_util::StreamExt::chain(
            first, end,
        ))))
    }

    type ListEventsStream = Answers<v1::ListEventsResponse>;

    async fn list_events(
        &self,
        _: Request<v1::ListEventsRequest>,
    ) -> Result<Response<Self::ListEventsStream>, Status> {
        let answers = [
            happened("web", "Started", 1),
            event_message(EventMessage::SnapshotComplete(true)),
        ];
        Ok(Response::new(Box::pin(stream::iter(answers))))
    }
}

fn event_message(message: EventMessage) -> Result<v1::ListEventsResponse, Status> {
    Ok(v1::ListEventsResponse {
        message: Some(message),
    })
}

fn happened(name: &str, reason: &str, at: i64) -> Result<v1::ListEventsResponse, Status> {
    event_message(EventMessage::Event(v1::Event {
        pod: pod(name).reference,
        reason: reason.to_owned(),
        container: "c".to_owned(),
        message: format!("Container {}", reason.to_lowercase()),
        unix_nanos: at,
        ..v1::Event::default()
    }))
}

/// The reason of what is no event: the reader is too slow, and the stream ends.
pub(crate) const LOST: &str = "(lost)";

/// One run of a server of events: those of before, then those that happen.
/// Nothing ends such a stream but the server's end, and [`LOST`].
pub(crate) struct FakeHappenings {
    pub(crate) before: &'static [(&'static str, &'static str, i64)],
    pub(crate) now: &'static [(&'static str, &'static str, i64)],
}

#[tonic::async_trait]
impl Statuses for FakeHappenings {
    type ListPodStatusesStream = Answers<v1::ListPodStatusesResponse>;

    async fn list_pod_statuses(
        &self,
        _: Request<v1::ListPodStatusesRequest>,
    ) -> Result<Response<Self::ListPodStatusesStream>, Status> {
        let complete = v1::ListPodStatusesResponse {
            message: Some(StatusMessage::SnapshotComplete(true)),
        };
        Ok(Response::new(Box::pin(stream::iter([Ok(complete)]))))
    }

    type ListEventsStream = Answers<v1::ListEventsResponse>;

    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Result<Response<Self::ListEventsStream>, Status> {
        assert!(request.into_inner().watch);
        let event = |&(name, reason, at): &(&str, &str, i64)| match reason {
            LOST => Err(Status::data_loss("7 events were dropped; call again")),
            _ => happened(name, reason, at),
        };
        let answers: Vec<_> = (self.before.iter().map(event))
            .chain([event_message(EventMessage::SnapshotComplete(true))])
            .chain(self.now.iter().map(event))
            .collect();
        let lasting = futures_util::StreamExt::chain(stream::iter(answers), stream::pending());
        Ok(Response::new(Box::pin(lasting)))
    }
}

pub(crate) struct FakeSyncLoop;

#[tonic::async_trait]
impl SyncLoop for FakeSyncLoop {
    type ListDesiredPodsStream = Answers<v1::DesiredPod>;

    async fn list_desired_pods(
        &self,
        _: Request<v1::ListDesiredPodsRequest>,
    ) -> Result<Response<Self::ListDesiredPodsStream>, Status> {
        let desired = ["web", "new"].map(|name| {
            Ok(v1::DesiredPod {
                pod: Some(pod(name)),
                admission: v1::Admission::Admitted.into(),
                last_decision: "CREATE because ADD".to_owned(),
                ..v1::DesiredPod::default()
            })
        });
        Ok(Response::new(Box::pin(stream::iter(desired))))
    }

    async fn get_loop_status(
        &self,
        _: Request<v1::GetLoopStatusRequest>,
    ) -> Result<Response<v1::LoopStatus>, Status> {
        Ok(Response::new(v1::LoopStatus::default()))
    }
}

/// A log of five lines; each run of the server gives two and then breaks.
pub(crate) struct FakeLogs(pub(crate) Arc<Notify>);

#[tonic::async_trait]
impl ContainerLogs for FakeLogs {
    type ReadLogsStream = Answers<v1::ReadLogsResponse>;

    async fn read_logs(
        &self,
        request: Request<v1::ReadLogsRequest>,
    ) -> Result<Response<Self::ReadLogsStream>, Status> {
        let request = request.into_inner();
        assert_eq!(
            (request.pod_uid.as_str(), request.container_name.as_str()),
            ("uid-web", "c")
        );
        let from = request.since_unix_nanos.max(1);
        let lines = (from..=5).take(2).map(|number| {
            Ok(v1::ReadLogsResponse {
                content: format!("line {number}\n").into_bytes(),
                unix_nanos: number,
                ..v1::ReadLogsResponse::default()
            })
        });
        let lines = stream::iter(lines.collect::<Vec<_>>());
        if from + 2 > 5 {
            return Ok(Response::new(Box::pin(lines)));
        }
        let broken = Arc::clone(&self.0);
        let breaks = stream::once(async move {
            broken.notify_one();
            std::future::pending().await
        });
        Ok(Response::new(Box::pin(futures_util::StreamExt::chain(
            lines, breaks,
        ))))
    }
}

/// A log that tells what was asked for.
pub(crate) struct FakeEcho;

#[tonic::async_trait]
impl ContainerLogs for FakeEcho {
    type ReadLogsStream = Answers<v1::ReadLogsResponse>;

    async fn read_logs(
        &self,
        request: Request<v1::ReadLogsRequest>,
    ) -> Result<Response<Self::ReadLogsStream>, Status> {
        let request = request.into_inner();
        let asked = json!({
            "since": request.since_unix_nanos, "tail": request.tail_lines,
            "follow": request.follow, "previous": request.previous,
            "timestamps": request.timestamps,
        });
        let line = v1::ReadLogsResponse {
            content: asked.to_string().into_bytes(),
            ..v1::ReadLogsResponse::default()
        };
        Ok(Response::new(Box::pin(stream::iter([Ok(line)]))))
    }
}

/// A log that wants to steer a terminal, for once and for all.
pub(crate) struct FakeHostileLog;

pub(crate) const HOSTILE_LINE: &str =
    "\x1b[32mgreen \x1b]52;c;cm0=\x07\x1b[2J\x1b[6n\u{9b}31m\u{202e}\n";

#[tonic::async_trait]
impl ContainerLogs for FakeHostileLog {
    type ReadLogsStream = Answers<v1::ReadLogsResponse>;

    async fn read_logs(
        &self,
        _: Request<v1::ReadLogsRequest>,
    ) -> Result<Response<Self::ReadLogsStream>, Status> {
        let line = v1::ReadLogsResponse {
            content: HOSTILE_LINE.as_bytes().to_vec(),
            ..v1::ReadLogsResponse::default()
        };
        Ok(Response::new(Box::pin(stream::iter([Ok(line)]))))
    }
}

/// A pod that uses one processor and a half, in the seconds between two calls.
#[derive(Default)]
pub(crate) struct FakeUsage(AtomicUsize);

#[tonic::async_trait]
impl Usage for FakeUsage {
    async fn get_usage(
        &self,
        _: Request<v1::GetUsageRequest>,
    ) -> Result<Response<v1::UsageReport>, Status> {
        let calls = i64::try_from(self.0.fetch_add(1, Ordering::Relaxed)).unwrap();
        let container = v1::ContainerUsage {
            id: "c1".to_owned(),
            name: "c".to_owned(),
            cpu_nanos: Some(u64::try_from(calls).unwrap() * 1_500_000_000),
            cpu_at_unix_nanos: calls * 1_000_000_000,
            memory_bytes: Some(3 << 20),
            layer_bytes: None,
        };
        let pod = v1::PodUsage {
            pod: pod("web").reference,
            containers: vec![container],
            network: None,
        };
        Ok(Response::new(v1::UsageReport {
            pods: vec![pod],
            node: None,
        }))
    }
}

/// The states of its one process, one after the other; the first counts where
/// one is asked for.
pub(crate) struct FakeSupervisor(pub(crate) Vec<v1::ProcessState>);

fn supervisor_status(state: v1::ProcessState) -> v1::SupervisorStatus {
    let process = v1::ProcessStatus {
        name: "pleg".to_owned(),
        state: state.into(),
        ..v1::ProcessStatus::default()
    };
    v1::SupervisorStatus {
        processes: vec![process],
        ..v1::SupervisorStatus::default()
    }
}

#[tonic::async_trait]
impl Supervisor for FakeSupervisor {
    async fn get_status(
        &self,
        _: Request<v1::GetSupervisorStatusRequest>,
    ) -> Result<Response<v1::SupervisorStatus>, Status> {
        Ok(Response::new(supervisor_status(self.0[0])))
    }

    type WatchStatusStream = Answers<v1::SupervisorStatus>;

    async fn watch_status(
        &self,
        _: Request<v1::GetSupervisorStatusRequest>,
    ) -> Result<Response<Self::WatchStatusStream>, Status> {
        let states: Vec<_> = self
            .0
            .iter()
            .copied()
            .map(supervisor_status)
            .map(Ok)
            .collect();
        let lasting = futures_util::StreamExt::chain(stream::iter(states), stream::pending());
        Ok(Response::new(Box::pin(lasting)))
    }

    async fn restart_process(
        &self,
        request: Request<v1::RestartProcessRequest>,
    ) -> Result<Response<v1::RestartProcessResponse>, Status> {
        match request.into_inner().name.as_str() {
            "pleg" => Ok(Response::new(v1::RestartProcessResponse { old_pid: 7 })),
            other => Err(Status::not_found(format!("there is no process {other}"))),
        }
    }

    async fn reload(
        &self,
        _: Request<v1::ReloadRequest>,
    ) -> Result<Response<v1::ReloadResponse>, Status> {
        match self.0[0] {
            v1::ProcessState::Ready => Ok(Response::new(v1::ReloadResponse {
                restarted: vec!["pleg".to_owned(), "prober".to_owned()],
            })),
            _ => Err(Status::failed_precondition("maxPods: -3 is negative")),
        }
    }

    async fn list_crashes(
        &self,
        _: Request<v1::ListCrashesRequest>,
    ) -> Result<Response<v1::ListCrashesResponse>, Status> {
        Ok(Response::new(v1::ListCrashesResponse::default()))
    }
}

/// A node with statuses (never cut), the loop and the supervisor.
pub(crate) fn node(state: v1::ProcessState) -> Node {
    let mut node = Node::empty();
    let statuses = FakeStatuses {
        lists: AtomicUsize::new(1),
        ..FakeStatuses::default()
    };
    node.serve(
        Process::StatusSyncer,
        Routes::new(StatusesServer::new(statuses)),
    );
    node.serve(
        Process::SyncLoop,
        Routes::new(SyncLoopServer::new(FakeSyncLoop)),
    );
    node.serve(
        Process::Supervisor,
        Routes::new(SupervisorServer::new(FakeSupervisor(vec![state]))),
    );
    node
}

/// Directories of manifests below it: `pods`, where one pod mounts all that is above it.
pub(crate) fn manifests() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let pods = directory.path().join("pods");
    std::fs::create_dir(&pods).unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {
            "containers": [{
                "name": "c", "image": "i",
                "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true}],
            }],
            "volumes": [{"name": "v", "hostPath": {"path": directory.path()}}],
        },
    });
    std::fs::write(pods.join("web.json"), pod.to_string()).unwrap();
    directory
}
