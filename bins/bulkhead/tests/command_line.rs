//! The real program against servers on real sockets: what it prints, how it
//! ends, and that a restart of a server in between is not noticed. Runs as root,
//! the only user that the topology lets ask.
#![expect(clippy::unwrap_used, reason = "a test: what is missing fails it")]

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::pin::Pin;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bulkhead_api::v1;
use bulkhead_api::v1::container_logs_server::{ContainerLogs, ContainerLogsServer};
use bulkhead_api::v1::list_events_response::Message as EventMessage;
use bulkhead_api::v1::list_pod_statuses_response::Message as StatusMessage;
use bulkhead_api::v1::statuses_server::{Statuses, StatusesServer};
use bulkhead_api::v1::supervisor_server::{Supervisor, SupervisorServer};
use bulkhead_api::v1::sync_loop_server::{SyncLoop, SyncLoopServer};
use futures_util::{Stream, stream};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use topology::{Identities, Process};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A node whose processes answer with what the test says.
struct Node {
    directory: tempfile::TempDir,
    servers: Vec<Server>,
}

/// One life of a server: a thread with a runtime of its own, so that its end
/// breaks every connection, as the end of a process does.
struct Server {
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    fn start(process: Process, socket: &UnixListener, routes: Routes) -> Server {
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
    fn empty() -> Node {
        let directory = tempfile::tempdir().unwrap();
        Node {
            directory,
            servers: Vec::new(),
        }
    }

    fn run_dir(&self) -> &Path {
        self.directory.path()
    }

    /// The socket of a process, which outlives its servers.
    fn socket(&self, process: Process) -> UnixListener {
        UnixListener::bind(self.run_dir().join(process.socket_file_name())).unwrap()
    }

    fn serve(&mut self, process: Process, routes: Routes) {
        let socket = self.socket(process);
        self.servers.push(Server::start(process, &socket, routes));
    }

    async fn bulkhead(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_bulkhead"))
            .arg("--run-dir")
            .arg(self.run_dir())
            .args(arguments)
            .kill_on_drop(true)
            .output()
            .await
            .unwrap()
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
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

/// Statuses and events; the first list of each is cut in its middle.
#[derive(Default)]
struct FakeStatuses {
    lists: AtomicUsize,
    cut: Arc<Notify>,
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
                boot_id: "b".to_owned(),
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
        let event = v1::Event {
            pod: pod("web").reference,
            reason: "Started".to_owned(),
            message: "Started container c".to_owned(),
            ..v1::Event::default()
        };
        let messages = [
            EventMessage::Event(event),
            EventMessage::SnapshotComplete(true),
        ];
        let answers = messages.map(|message| {
            Ok(v1::ListEventsResponse {
                boot_id: "b".to_owned(),
                message: Some(message),
            })
        });
        Ok(Response::new(Box::pin(stream::iter(answers))))
    }
}

struct FakeSyncLoop;

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

/// A log of five lines; each life of the server gives two and then breaks.
struct FakeLogs(Arc<Notify>);

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
                stream: "stdout".to_owned(),
                unix_nanos: number,
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

struct FakeSupervisor(v1::ProcessState);

#[tonic::async_trait]
impl Supervisor for FakeSupervisor {
    async fn get_status(
        &self,
        _: Request<v1::GetSupervisorStatusRequest>,
    ) -> Result<Response<v1::SupervisorStatus>, Status> {
        let process = v1::ProcessStatus {
            name: "pleg".to_owned(),
            state: self.0.into(),
            ..v1::ProcessStatus::default()
        };
        Ok(Response::new(v1::SupervisorStatus {
            processes: vec![process],
            ..v1::SupervisorStatus::default()
        }))
    }

    type WatchStatusStream = Answers<v1::SupervisorStatus>;

    async fn watch_status(
        &self,
        _: Request<v1::GetSupervisorStatusRequest>,
    ) -> Result<Response<Self::WatchStatusStream>, Status> {
        Ok(Response::new(Box::pin(stream::pending())))
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
        Ok(Response::new(v1::ReloadResponse::default()))
    }

    async fn list_crashes(
        &self,
        _: Request<v1::ListCrashesRequest>,
    ) -> Result<Response<v1::ListCrashesResponse>, Status> {
        Ok(Response::new(v1::ListCrashesResponse::default()))
    }
}

/// A node with statuses (never cut), the loop and the supervisor.
fn node(state: v1::ProcessState) -> Node {
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
        Routes::new(SupervisorServer::new(FakeSupervisor(state))),
    );
    node
}

#[tokio::test]
async fn exit_codes_tell_what_is_wrong() {
    let nowhere = Node::empty();
    let ready = node(v1::ProcessState::Ready);
    let looping = node(v1::ProcessState::CrashLooping);
    for (node, arguments, expected) in [
        (&ready, &["status"][..], 0),
        (&looping, &["status"], 1),
        (&looping, &["status", "-o", "json"], 1),
        (&ready, &["status", "--nonsense"], 2),
        (&ready, &["nonsense"], 2),
        (&nowhere, &["status"], 3),
        (&nowhere, &["pods"], 3),
        (&ready, &["describe", "web"], 0),
        (&ready, &["describe", "absent"], 5),
        (&ready, &["logs", "web", "-c", "absent"], 5),
        (&ready, &["restart", "pleg"], 0),
        (&ready, &["restart", "absent"], 5),
        (&ready, &["events", "absent"], 5),
        (&ready, &["check", "/absent"], 1),
        (&ready, &["completion", "bash"], 0),
        (&ready, &["--help"], 0),
    ] {
        let output = node.bulkhead(arguments).await;
        assert_eq!(
            code(&output),
            expected,
            "{arguments:?}: {}",
            stderr(&output)
        );
        if expected >= 3 {
            assert!(
                stderr(&output).starts_with("bulkhead: "),
                "{}",
                stderr(&output)
            );
        }
    }
}

#[tokio::test]
async fn whoever_is_not_root_is_told_so() {
    let node = node(v1::ProcessState::Ready);
    std::fs::set_permissions(
        node.run_dir(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bulkhead"))
        .args([
            "--run-dir".as_ref(),
            node.run_dir().as_os_str(),
            "status".as_ref(),
        ])
        .uid(700_099)
        .output()
        .await;
    // Where the build directory itself is closed to others, nobody can ask.
    let Ok(output) = output else { return };
    assert_eq!(code(&output), 4, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("run it as root"),
        "{}",
        stderr(&output)
    );
}

#[tokio::test]
async fn pods_are_listed_in_every_format() {
    let node = node(v1::ProcessState::Ready);
    let json: Value =
        serde_json::from_str(&stdout(&node.bulkhead(&["pods", "-o", "json"]).await)).unwrap();
    let names: Vec<_> = json["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["new", "web"],
        "one that is only desired is listed too"
    );
    let yaml: Value =
        serde_saphyr::from_str(&stdout(&node.bulkhead(&["pods", "-o", "yaml"]).await)).unwrap();
    assert_eq!(yaml, json);
    let names = stdout(&node.bulkhead(&["pods", "-o", "name"]).await);
    assert_eq!(names, "default/new\ndefault/web\n");
    let table = stdout(&node.bulkhead(&["pods", "web"]).await);
    assert!(
        table
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("default     web    0/1     Running")
    );
    assert!(
        !table.contains('\x1b'),
        "no colours where there is no terminal"
    );
}

#[tokio::test]
async fn a_described_pod_tells_its_decision_and_events() {
    let node = node(v1::ProcessState::Ready);
    let text = stdout(&node.bulkhead(&["describe", "web"]).await);
    for expected in ["CREATE because ADD", "nothing to do", "Started container c"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[tokio::test]
async fn a_list_outlives_a_restart_of_its_server() {
    let mut node = Node::empty();
    let process = Process::StatusSyncer;
    let socket = node.socket(process);
    let cut = Arc::new(Notify::new());
    let first = FakeStatuses {
        lists: AtomicUsize::new(0),
        cut: Arc::clone(&cut),
    };
    let second = FakeStatuses {
        lists: AtomicUsize::new(1),
        ..FakeStatuses::default()
    };
    node.serve(
        Process::SyncLoop,
        Routes::new(SyncLoopServer::new(FakeSyncLoop)),
    );
    let life = Server::start(process, &socket, Routes::new(StatusesServer::new(first)));
    let restart = async {
        cut.notified().await;
        drop(life);
        Server::start(process, &socket, Routes::new(StatusesServer::new(second)))
    };
    let (output, _life) = tokio::join!(node.bulkhead(&["pods", "-o", "name"]), restart);
    assert_eq!(
        stdout(&output),
        "default/new\ndefault/web\n",
        "{}",
        stderr(&output)
    );
}

#[tokio::test]
async fn a_log_goes_on_after_restarts_without_a_line_lost_or_twice() {
    let node = node(v1::ProcessState::Ready);
    let process = Process::PodWorkerPool;
    let socket = node.socket(process);
    let broken = Arc::new(Notify::new());
    let lives = async {
        loop {
            let logs = ContainerLogsServer::new(FakeLogs(Arc::clone(&broken)));
            let life = Server::start(process, &socket, Routes::new(logs));
            broken.notified().await;
            drop(life);
        }
    };
    let output = tokio::select! {
        output = node.bulkhead(&["logs", "-f", "web"]) => output,
        () = lives => unreachable!("it goes on for ever"),
    };
    let expected: String = (1..=5).map(|number| format!("line {number}\n")).collect();
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
    assert_eq!(code(&output), 0);
}
