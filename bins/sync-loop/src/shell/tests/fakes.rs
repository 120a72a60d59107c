//! Fake peers: each keeps what it was told and says what the test wants.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bulkhead_api::v1;
use clock::{UnixNanos, WallClock};
use memory_network::MemoryHub;
use node_config::{DirectoryLayout, NodeConfig};
use pod::{PodDocument, PodSource};
use process::{Context, Lifecycle};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use topology::{Identities, Process};
use v1::config_sourcer_server::{ConfigSourcer, ConfigSourcerServer};
use v1::pleg_server::{Pleg, PlegServer};
use v1::pod_workers_server::{PodWorkers, PodWorkersServer};
use v1::prober_server::{Prober, ProberServer};
use v1::status_reports_server::{StatusReports, StatusReportsServer};
use v1::sync_loop_client::SyncLoopClient;
use v1::{ProbeKind, ProbeResult, UpdateType, WorkerPhase};

use crate::shell::{open, serve};

pub(super) const BEGIN: UnixNanos = UnixNanos(1_767_225_600_000_000_000);

/// Simulated time within which everything that a test waits for happens.
const PATIENCE: Duration = Duration::from_secs(200);

type Messages<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

pub(super) fn reference(uid: &str) -> v1::PodReference {
    v1::PodReference {
        uid: uid.into(),
        namespace: "default".into(),
        name: uid.into(),
    }
}

pub(super) fn plain(uid: &str) -> v1::Pod {
    with_cpu(uid, 0)
}

pub(super) fn with_cpu(uid: &str, millis: u32) -> v1::Pod {
    let requests = json!({"cpu": format!("{millis}m")});
    let pod = json!({
        "metadata": {"uid": uid, "namespace": "default", "name": uid},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
    });
    let json = serde_json::to_vec(&pod).unwrap();
    PodDocument::from_json(json, PodSource::File)
        .unwrap()
        .0
        .to_message()
}

pub(super) fn verdict(uid: &str, kind: ProbeKind, result: ProbeResult) -> v1::ProbeVerdict {
    v1::ProbeVerdict {
        pod_uid: uid.into(),
        container_name: "c".into(),
        container_id: "id".into(),
        kind: kind.into(),
        result: result.into(),
        message: String::new(),
    }
}

/// A stream server: what it says first, and who listens.
pub(super) struct FakeStream<M, R> {
    listeners: Mutex<Vec<mpsc::UnboundedSender<Result<R, Status>>>>,
    first: Mutex<Vec<M>>,
    wrap: fn(M) -> R,
}

impl<M: Clone + Send + 'static, R: Send + 'static> FakeStream<M, R> {
    fn new(first: Vec<M>, wrap: fn(M) -> R) -> Arc<Self> {
        Arc::new(FakeStream {
            listeners: Mutex::default(),
            first: Mutex::new(first),
            wrap,
        })
    }

    /// Says something to all listeners.
    pub(super) fn send(&self, message: M) {
        self.listeners
            .lock()
            .unwrap()
            .retain(|listener| listener.send(Ok((self.wrap)(message.clone()))).is_ok());
    }

    /// Says something again and again, as fast as it is heard.
    pub(super) fn flood(self: &Arc<Self>, message: M) -> AbortOnDropHandle<()> {
        let stream = Arc::clone(self);
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                for _ in 0..8 {
                    stream.send(message.clone());
                }
                // A flood, and not an avalanche that no memory holds.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }))
    }

    fn listen(&self) -> Messages<R> {
        let (listener, messages) = mpsc::unbounded_channel();
        for message in self.first.lock().unwrap().clone() {
            listener.send(Ok((self.wrap)(message))).unwrap();
        }
        self.listeners.lock().unwrap().push(listener);
        Box::pin(UnboundedReceiverStream::new(messages))
    }
}

pub(super) type Configuration = FakeStream<v1::watch_pods_response::Message, v1::WatchPodsResponse>;
type Lifecycles = FakeStream<
    v1::watch_pod_lifecycle_events_response::Message,
    v1::WatchPodLifecycleEventsResponse,
>;
type Results = FakeStream<v1::watch_results_response::Message, v1::WatchResultsResponse>;

impl Configuration {
    /// A stream that is opened from now on begins with this.
    pub(super) fn begins_with(&self, messages: Vec<v1::watch_pods_response::Message>) {
        *self.first.lock().unwrap() = messages;
    }
}

fn snapshot(pods: Vec<v1::Pod>, ready: bool) -> Vec<v1::watch_pods_response::Message> {
    use v1::watch_pods_response::Message;
    let source = || "file".to_owned();
    let names = vec![source()];
    let mut messages = vec![
        Message::Sources(v1::ConfiguredSources { names }),
        Message::SnapshotBegin(v1::SourceSnapshotBegin {
            source: source(),
            ready,
        }),
    ];
    let pods = pods.into_iter().map(|pod| v1::SourcePod {
        source: source(),
        pod: Some(pod),
    });
    messages.extend(pods.map(Message::Pod));
    messages.push(Message::SnapshotEnd(v1::SourceSnapshotEnd {
        source: source(),
    }));
    messages
}

struct Stream<T>(Arc<T>);

#[tonic::async_trait]
impl ConfigSourcer for Stream<Configuration> {
    type WatchPodsStream = Messages<v1::WatchPodsResponse>;
    async fn watch_pods(
        &self,
        _: Request<v1::WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        Ok(Response::new(self.0.listen()))
    }
}

#[tonic::async_trait]
impl Pleg for Stream<Lifecycles> {
    type WatchEventsStream = Messages<v1::WatchPodLifecycleEventsResponse>;
    async fn watch_events(
        &self,
        _: Request<v1::WatchPodLifecycleEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        Ok(Response::new(self.0.listen()))
    }
}

#[tonic::async_trait]
impl Prober for Stream<Results> {
    type WatchResultsStream = Messages<v1::WatchResultsResponse>;
    async fn watch_results(
        &self,
        _: Request<v1::WatchResultsRequest>,
    ) -> Result<Response<Self::WatchResultsStream>, Status> {
        Ok(Response::new(self.0.listen()))
    }
}

#[derive(Default)]
struct PoolState {
    boot_id: String,
    updates: Vec<v1::UpdatePodRequest>,
    /// Pods with a worker, and whether it terminates.
    workers: BTreeMap<String, bool>,
    cpu_millis: u64,
    runtime_error: String,
    questions: u64,
    health_questions: u64,
}

/// A pool that starts what it is told to.
#[derive(Clone)]
pub(super) struct FakePool {
    state: Arc<Mutex<PoolState>>,
    hanging: watch::Sender<bool>,
}

impl FakePool {
    fn new() -> FakePool {
        let state = PoolState {
            cpu_millis: 4000,
            ..PoolState::default()
        };
        FakePool {
            state: Arc::new(Mutex::new(state)),
            hanging: watch::Sender::new(false),
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut PoolState) -> T) -> T {
        look(&mut self.state.lock().unwrap())
    }

    /// How often this run was sent this kind of update for a pod.
    pub(super) fn count(&self, uid: &str, kind: UpdateType) -> usize {
        self.with(|state| {
            let updates = state.updates.iter();
            updates
                .filter(|update| uid_of(update) == uid && update.r#type() == kind)
                .count()
        })
    }

    /// How many pods this run was told to create.
    pub(super) fn created(&self) -> usize {
        self.with(|state| {
            let creations = state
                .updates
                .iter()
                .filter(|update| update.r#type() == UpdateType::Create);
            creations.map(uid_of).collect::<BTreeSet<_>>().len()
        })
    }

    /// The last update of a pod; an empty one when there was none.
    pub(super) fn last(&self, uid: &str) -> v1::UpdatePodRequest {
        self.with(|state| {
            let update = state
                .updates
                .iter()
                .rev()
                .find(|update| uid_of(update) == uid);
            update.cloned().unwrap_or_default()
        })
    }

    pub(super) fn hang(&self, hanging: bool) {
        self.hanging.send_replace(hanging);
    }

    pub(super) fn set_runtime_error(&self, error: &str) {
        self.with(|state| error.clone_into(&mut state.runtime_error));
    }

    pub(super) fn questions(&self) -> u64 {
        self.with(|state| state.questions)
    }

    pub(super) fn health_questions(&self) -> u64 {
        self.with(|state| state.health_questions)
    }

    async fn not_hanging(&self) {
        let mut hanging = self.hanging.subscribe();
        hanging.wait_for(|hanging| !hanging).await.unwrap();
    }
}

fn uid_of(update: &v1::UpdatePodRequest) -> String {
    update.pod.as_ref().unwrap().uid.clone()
}

#[tonic::async_trait]
impl PodWorkers for FakePool {
    async fn update_pod(
        &self,
        request: Request<v1::UpdatePodRequest>,
    ) -> Result<Response<v1::UpdatePodResponse>, Status> {
        self.not_hanging().await;
        let update = request.into_inner();
        Ok(Response::new(self.with(|state| {
            let kill = update.r#type() == UpdateType::Kill;
            let terminating = state.workers.entry(uid_of(&update)).or_default();
            *terminating |= kill;
            let phase = if *terminating {
                WorkerPhase::Terminating
            } else {
                WorkerPhase::Syncing
            };
            state.updates.push(update);
            v1::UpdatePodResponse {
                boot_id: state.boot_id.clone(),
                phase: phase.into(),
            }
        })))
    }

    async fn sync_known_pods(
        &self,
        _: Request<v1::SyncKnownPodsRequest>,
    ) -> Result<Response<v1::SyncKnownPodsResponse>, Status> {
        self.not_hanging().await;
        Ok(Response::new(self.with(|state| {
            state.questions += 1;
            let workers = state
                .workers
                .iter()
                .map(|(uid, terminating)| v1::WorkerState {
                    pod: Some(reference(uid)),
                    phase: if *terminating {
                        WorkerPhase::Terminating
                    } else {
                        WorkerPhase::Syncing
                    }
                    .into(),
                    ..v1::WorkerState::default()
                });
            v1::SyncKnownPodsResponse {
                boot_id: state.boot_id.clone(),
                workers: workers.collect(),
                runtime_pods: Vec::new(),
                runtime_error: state.runtime_error.clone(),
            }
        })))
    }

    async fn clean_up_containers(
        &self,
        _: Request<v1::CleanUpContainersRequest>,
    ) -> Result<Response<v1::CleanUpContainersResponse>, Status> {
        Ok(Response::new(v1::CleanUpContainersResponse::default()))
    }

    async fn collect_garbage(
        &self,
        _: Request<v1::CollectGarbageRequest>,
    ) -> Result<Response<v1::CollectGarbageResponse>, Status> {
        Ok(Response::new(v1::CollectGarbageResponse::default()))
    }

    async fn get_node_capacity(
        &self,
        _: Request<v1::GetNodeCapacityRequest>,
    ) -> Result<Response<v1::NodeCapacity>, Status> {
        Ok(Response::new(self.with(|state| {
            state.health_questions += 1;
            v1::NodeCapacity {
                boot_id: state.boot_id.clone(),
                cpu_millis: state.cpu_millis,
                memory_bytes: 1 << 32,
                ephemeral_storage_bytes: 1 << 32,
                runtime_error: state.runtime_error.clone(),
                ..v1::NodeCapacity::default()
            }
        })))
    }
}

#[derive(Default)]
struct StatusState {
    boot_id: String,
    verdicts: Vec<v1::ProbeVerdict>,
    rejections: BTreeMap<String, String>,
    has_no_room: bool,
    events: Vec<v1::Event>,
    retained: u64,
}

/// A status-syncer that remembers.
#[derive(Clone, Default)]
pub(super) struct FakeStatusSyncer(Arc<Mutex<StatusState>>);

impl FakeStatusSyncer {
    fn with<T>(&self, look: impl FnOnce(&mut StatusState) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    pub(super) fn knows_verdict(&self, kind: ProbeKind, result: ProbeResult) -> bool {
        self.with(|state| {
            let mut verdicts = state.verdicts.iter();
            verdicts.any(|verdict| verdict.kind() == kind && verdict.result() == result)
        })
    }

    pub(super) fn rejections(&self) -> Vec<String> {
        self.with(|state| {
            state
                .rejections
                .iter()
                .map(|(uid, reason)| format!("{uid} {reason}"))
                .collect()
        })
    }

    /// Whether there is room for the pods that are rejected.
    pub(super) fn set_room(&self, has_room: bool) {
        self.with(|state| state.has_no_room = !has_room);
    }

    pub(super) fn has_event(&self, reason: &str) -> bool {
        self.events(reason) > 0
    }

    pub(super) fn events(&self, reason: &str) -> usize {
        self.with(|state| {
            state
                .events
                .iter()
                .filter(|event| event.reason == reason)
                .count()
        })
    }

    pub(super) fn retained(&self) -> u64 {
        self.with(|state| state.retained)
    }
}

#[tonic::async_trait]
impl StatusReports for FakeStatusSyncer {
    async fn set_probe_verdicts(
        &self,
        request: Request<v1::SetProbeVerdictsRequest>,
    ) -> Result<Response<v1::SetProbeVerdictsResponse>, Status> {
        Ok(Response::new(self.with(|state| {
            state.verdicts.extend(request.into_inner().verdicts);
            v1::SetProbeVerdictsResponse {
                boot_id: state.boot_id.clone(),
            }
        })))
    }

    async fn set_node_health(
        &self,
        _: Request<v1::SetNodeHealthRequest>,
    ) -> Result<Response<v1::SetNodeHealthResponse>, Status> {
        Ok(Response::new(self.with(|state| {
            v1::SetNodeHealthResponse {
                boot_id: state.boot_id.clone(),
            }
        })))
    }

    async fn reject_pod(
        &self,
        request: Request<v1::RejectPodRequest>,
    ) -> Result<Response<v1::RejectPodResponse>, Status> {
        let request = request.into_inner();
        let uid = request.pod.unwrap().reference.unwrap().uid;
        if self.with(|state| state.has_no_room) {
            return Err(Status::resource_exhausted("no more pods are taken"));
        }
        Ok(Response::new(self.with(|state| {
            state.rejections.insert(uid, request.reason);
            v1::RejectPodResponse {
                boot_id: state.boot_id.clone(),
            }
        })))
    }

    async fn report_events(
        &self,
        request: Request<v1::ReportEventsRequest>,
    ) -> Result<Response<v1::ReportEventsResponse>, Status> {
        let request = request.into_inner();
        Ok(Response::new(self.with(|state| {
            for event in request.events {
                if !state.events.contains(&event) {
                    state.events.push(event);
                }
            }
            v1::ReportEventsResponse {
                boot_id: state.boot_id.clone(),
            }
        })))
    }

    async fn remove_orphaned_statuses(
        &self,
        _: Request<v1::RemoveOrphanedStatusesRequest>,
    ) -> Result<Response<v1::RemoveOrphanedStatusesResponse>, Status> {
        Ok(Response::new(self.with(|state| {
            state.retained += 1;
            v1::RemoveOrphanedStatusesResponse {
                boot_id: state.boot_id.clone(),
            }
        })))
    }
}

/// sync-loop among fake peers.
pub(super) struct FakeNode {
    pub(super) configuration: Arc<Configuration>,
    pub(super) lifecycle: Arc<Lifecycles>,
    pub(super) results: Arc<Results>,
    pub(super) pool: FakePool,
    pub(super) status: FakeStatusSyncer,
    hub: MemoryHub,
    identities: Arc<Identities>,
    clock: WallClock,
    begin: Instant,
    runs: u64,
    disk: tempfile::TempDir,
    running: BTreeMap<Process, AbortOnDropHandle<()>>,
}

impl FakeNode {
    /// A node whose source is ready with these pods.
    pub(super) async fn start(pods: Vec<v1::Pod>) -> FakeNode {
        let health = v1::PlegHealth {
            healthy: true,
            ..v1::PlegHealth::default()
        };
        let pleg = v1::PlegSnapshot {
            health: Some(health),
            pod_uids: Vec::new(),
        };
        let mut node = FakeNode {
            configuration: FakeStream::new(snapshot(pods, true), |message| v1::WatchPodsResponse {
                boot_id: "config".into(),
                message: Some(message),
            }),
            lifecycle: FakeStream::new(
                vec![v1::watch_pod_lifecycle_events_response::Message::Snapshot(
                    pleg,
                )],
                |message| v1::WatchPodLifecycleEventsResponse {
                    boot_id: "pleg".into(),
                    message: Some(message),
                },
            ),
            results: FakeStream::new(Vec::new(), |message| v1::WatchResultsResponse {
                boot_id: "prober".into(),
                message: Some(message),
            }),
            pool: FakePool::new(),
            status: FakeStatusSyncer::default(),
            hub: MemoryHub::new(),
            identities: Arc::new(Identities::from_base(200_000).unwrap()),
            clock: WallClock::simulated(BEGIN),
            begin: Instant::now(),
            runs: 0,
            disk: tempfile::tempdir().unwrap(),
            running: BTreeMap::new(),
        };
        let directory = node.disk.path().join("state").join("sync-loop");
        std::fs::create_dir_all(directory).unwrap();
        let configuration = ConfigSourcerServer::new(Stream(Arc::clone(&node.configuration)));
        node.serve(Process::ConfigSourcer, Routes::new(configuration));
        let lifecycle = PlegServer::new(Stream(Arc::clone(&node.lifecycle)));
        node.serve(Process::Pleg, Routes::new(lifecycle));
        let results = ProberServer::new(Stream(Arc::clone(&node.results)));
        node.serve(Process::Prober, Routes::new(results));
        node.start_pool("pool-1");
        node.restart_status_syncer("status-1");
        node.start_loop();
        node.until_async("the streams are open", async |node| {
            let status = node.loop_status().await;
            status.peers.iter().filter(|peer| peer.connected).count() >= 4
        })
        .await;
        node
    }

    fn serve(&mut self, process: Process, routes: Routes) {
        let serving = ipc::serve(
            process,
            Arc::clone(&self.identities),
            self.hub.listener(process),
            routes,
            CancellationToken::new(),
        );
        let task = tokio::spawn(async move { serving.await.unwrap() });
        self.running.insert(process, AbortOnDropHandle::new(task));
    }

    pub(super) fn start_pool(&mut self, boot_id: &str) {
        self.pool
            .with(|state| boot_id.clone_into(&mut state.boot_id));
        let pool = PodWorkersServer::new(self.pool.clone());
        self.serve(Process::PodWorkerPool, Routes::new(pool));
    }

    pub(super) fn restart_status_syncer(&mut self, boot_id: &str) {
        self.running.remove(&Process::StatusSyncer);
        self.hub.kill(Process::StatusSyncer);
        let boot_id = boot_id.to_owned();
        self.status.with(|state| {
            *state = StatusState {
                boot_id,
                ..StatusState::default()
            }
        });
        let status = StatusReportsServer::new(self.status.clone());
        self.serve(Process::StatusSyncer, Routes::new(status));
    }

    pub(super) fn start_loop(&mut self) {
        self.runs += 1;
        let directories = DirectoryLayout::below(self.disk.path());
        let context = Context {
            process: Process::SyncLoop,
            config: Arc::new(NodeConfig::with_defaults("node-1", directories)),
            clock: self.clock.clone(),
            network: self.hub.network(Process::SyncLoop, &self.identities),
            listener: self.hub.listener(Process::SyncLoop),
            identities: Arc::clone(&self.identities),
            boot_id: format!("loop-{}", self.runs),
            seed: self.runs,
            lifecycle: Lifecycle::unsupervised(CancellationToken::new()),
        };
        let opened = open(&context.config);
        let task = tokio::spawn(async move { serve(context, opened).await.unwrap() });
        self.running
            .insert(Process::SyncLoop, AbortOnDropHandle::new(task));
    }

    pub(super) fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    pub(super) async fn loop_status(&self) -> v1::LoopStatus {
        let mut client = self.client();
        client
            .get_loop_status(v1::GetLoopStatusRequest {})
            .await
            .unwrap()
            .into_inner()
    }

    pub(super) async fn desired_pods(&self) -> Vec<v1::DesiredPod> {
        let mut client = self.client();
        let request = v1::ListDesiredPodsRequest::default();
        let mut stream = client
            .list_desired_pods(request)
            .await
            .unwrap()
            .into_inner();
        let mut pods = Vec::new();
        while let Some(pod) = stream.message().await.unwrap() {
            pods.push(pod);
        }
        pods
    }

    fn client(&self) -> SyncLoopClient<ipc::Channel> {
        let network = self.hub.network_of_operator();
        SyncLoopClient::new(network.channel(Process::SyncLoop))
    }

    /// Waits, in simulated time, until something is so.
    pub(super) async fn until(&self, what: &str, so: impl Fn(&FakeNode) -> bool) {
        self.until_async(what, async |node| so(node)).await;
    }

    pub(super) async fn until_async(&self, what: &str, so: impl AsyncFn(&FakeNode) -> bool) {
        let waiting = async {
            while !so(self).await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "not within {PATIENCE:?}: {what}");
    }
}
