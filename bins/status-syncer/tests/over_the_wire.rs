//! The whole process over in-memory sockets: a pool that streams observations,
//! sync-loop's calls, a reader, and kills in between.
#![expect(clippy::unwrap_used, reason = "a test: what is missing fails it")]

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::list_events_response::Message as EventMessage;
use bulkhead_api::v1::list_pod_statuses_response::Message as StatusMessage;
use bulkhead_api::v1::observations_server::{Observations, ObservationsServer};
use bulkhead_api::v1::status_reports_client::StatusReportsClient;
use bulkhead_api::v1::statuses_client::StatusesClient;
use bulkhead_api::v1::watch_observations_response::Message;
use clock::{UnixNanos, WallClock};
use futures_util::{Stream, StreamExt, stream};
use memory_network::MemoryHub;
use node_config::{DirectoryLayout, NodeConfig};
use pod::{PodDocument, PodSource};
use process::{Context, Lifecycle};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status};
use topology::{Identities, Process};

/// How long a condition is waited for, in paused time.
const PATIENCE: Duration = Duration::from_secs(30);

/// What must happen soon; a paused clock would wait for it for ever.
async fn patiently<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, event).await.unwrap()
}

/// A pool that streams one list of observations, again whenever it changes.
#[derive(Clone)]
struct FakePool {
    observations: watch::Receiver<Vec<v1::PodObservation>>,
    /// What it answers to who asks for a pod, one after the other; then with the pod.
    refusals: Arc<Mutex<Vec<Code>>>,
}

#[tonic::async_trait]
impl Observations for FakePool {
    type WatchObservationsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchObservationsResponse, Status>> + Send>>;

    async fn watch_observations(
        &self,
        _: Request<v1::WatchObservationsRequest>,
    ) -> Result<Response<Self::WatchObservationsStream>, Status> {
        let lists = stream::unfold(self.observations.clone(), |mut receiver| async move {
            receiver.changed().await.ok()?;
            let list = receiver.borrow_and_update().clone();
            Some((list, receiver))
        });
        let first = self.observations.borrow().clone();
        let messages = stream::iter([first]).chain(lists).flat_map(|list| {
            let begin = Message::SnapshotBegin(v1::SnapshotBegin {});
            let end = Message::SnapshotEnd(v1::SnapshotEnd {});
            let event = v1::Event {
                reason: "Started".to_owned(),
                unix_nanos: 7,
                ..Default::default()
            };
            let pods = list.into_iter().map(Message::Observation);
            stream::iter(
                std::iter::once(begin)
                    .chain(pods)
                    .chain([end, Message::Event(event)]),
            )
        });
        let answer = |message| {
            Ok(v1::WatchObservationsResponse {
                boot_id: "pool".to_owned(),
                message: Some(message),
            })
        };
        Ok(Response::new(Box::pin(messages.map(answer))))
    }

    async fn get_node_facts(
        &self,
        _: Request<v1::GetNodeFactsRequest>,
    ) -> Result<Response<v1::NodeFacts>, Status> {
        Ok(Response::new(v1::NodeFacts::default()))
    }

    async fn get_observed_pod(
        &self,
        request: Request<v1::GetPodRequest>,
    ) -> Result<Response<v1::GetPodResponse>, Status> {
        if let Some(code) = self.refusals.lock().unwrap().pop() {
            return Err(Status::new(code, "not now"));
        }
        let pod = document();
        assert_eq!(request.into_inner().hash, pod.hash);
        Ok(Response::new(v1::GetPodResponse { pod: Some(pod) }))
    }
}

/// A node with the pool and one status-syncer, which can be killed.
struct Node {
    hub: MemoryHub,
    identities: Arc<Identities>,
    directory: tempfile::TempDir,
    clock: WallClock,
    observations: watch::Sender<Vec<v1::PodObservation>>,
    refusals: Arc<Mutex<Vec<Code>>>,
    runs: u32,
    syncer: JoinHandle<()>,
    _pool: JoinHandle<()>,
}

impl Node {
    async fn start() -> Node {
        let hub = MemoryHub::new();
        let identities = Arc::new(Identities::from_base(700_000).unwrap());
        let (observations, receiver) = watch::channel(vec![]);
        let refusals = Arc::default();
        let fake = FakePool {
            observations: receiver,
            refusals: Arc::clone(&refusals),
        };
        let pool = ipc::serve(
            Process::PodWorkerPool,
            Arc::clone(&identities),
            hub.listener(Process::PodWorkerPool),
            tonic::service::Routes::new(ObservationsServer::new(fake)),
            CancellationToken::new(),
        );
        let mut node = Node {
            hub,
            identities,
            directory: tempfile::tempdir().unwrap(),
            clock: WallClock::simulated(UnixNanos(1_700_000_000_000_000_000)),
            observations,
            refusals,
            runs: 0,
            syncer: tokio::spawn(async {}),
            _pool: tokio::spawn(async { pool.await.unwrap() }),
        };
        std::fs::create_dir_all(node.directories().state(Process::StatusSyncer)).unwrap();
        node.restart().await;
        node
    }

    /// Calls as sync-loop, which knew no pod at this time since the boot.
    async fn drop_all_but_what_came_since(
        &self,
        listed_at: Option<Duration>,
    ) -> Result<(), Status> {
        let none = v1::RemoveOrphanedStatusesRequest {
            known_pod_uids: vec![],
            delivered_sources: vec!["file".into(), "http".into(), "api".into()],
            listed_at_nanos_since_boot: listed_at
                .map(|listed_at| u64::try_from(listed_at.as_nanos()).unwrap()),
        };
        let answer = self.sync_loop().remove_orphaned_statuses(none).await;
        answer.map(drop)
    }

    fn directories(&self) -> DirectoryLayout {
        DirectoryLayout::below(self.directory.path())
    }

    /// Kills status-syncer at this instant and starts it again.
    async fn restart(&mut self) {
        self.syncer.abort();
        self.hub.kill(Process::StatusSyncer);
        self.runs += 1;
        let lifecycle = Lifecycle::unsupervised(CancellationToken::new());
        let context = Context {
            process: Process::StatusSyncer,
            config: Arc::new(NodeConfig::with_defaults("node", self.directories())),
            clock: self.clock.clone(),
            network: self.hub.network(Process::StatusSyncer, &self.identities),
            listener: self.hub.listener(Process::StatusSyncer),
            identities: Arc::clone(&self.identities),
            boot_id: format!("boot-{}", self.runs),
            seed: 1,
            lifecycle: lifecycle.clone(),
        };
        let opened = status_syncer::open(&context.config);
        let serving = status_syncer::serve(context, opened);
        self.syncer = tokio::spawn(async { serving.await.unwrap() });
        lifecycle.until_ready().await;
    }

    fn sync_loop(&self) -> StatusReportsClient<ipc::Channel> {
        let network = self.hub.network(Process::SyncLoop, &self.identities);
        StatusReportsClient::new(network.channel(Process::StatusSyncer))
    }

    fn reader(&self) -> StatusesClient<ipc::Channel> {
        let network = self.hub.network_of_operator();
        StatusesClient::new(network.channel(Process::StatusSyncer))
    }

    async fn pods(&self) -> Vec<Value> {
        let client = self.reader();
        let mut stream = ipc::call(PATIENCE, || async {
            client
                .clone()
                .list_pod_statuses(v1::ListPodStatusesRequest::default())
                .await
        })
        .await
        .unwrap();
        let mut pods = Vec::new();
        while let Some(response) = stream.message().await.unwrap() {
            match response.message.unwrap() {
                StatusMessage::Entry(entry) => {
                    let pod = PodDocument::from_message(entry.pod.unwrap()).unwrap();
                    pods.push(serde_json::from_slice(&pod.to_json().unwrap()).unwrap());
                }
                StatusMessage::SnapshotComplete(complete) => assert!(complete),
                StatusMessage::RemovedPodUid(_) => unreachable!("nothing is watched"),
            }
        }
        pods
    }

    async fn until(&self, what: &str, condition: impl Fn(&[Value]) -> bool) {
        let reached = async {
            while !condition(&self.pods().await) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(
            tokio::time::timeout(PATIENCE, reached).await.is_ok(),
            "{what}"
        );
    }

    async fn verdict(&self, result: v1::ProbeResult) -> String {
        let request = v1::SetProbeVerdictsRequest {
            verdicts: vec![v1::ProbeVerdict {
                pod_uid: "u".to_owned(),
                container_id: "a".to_owned(),
                kind: v1::ProbeKind::Readiness.into(),
                result: result.into(),
                ..Default::default()
            }],
        };
        let client = self.sync_loop();
        let answer = ipc::call(PATIENCE, || async {
            client.clone().set_probe_verdicts(request.clone()).await
        });
        answer.await.unwrap().boot_id
    }
}

fn document() -> v1::Pod {
    let json = json!({
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "c", "readinessProbe": {"tcpSocket": {"port": 1}}}]},
    });
    let (document, _) =
        PodDocument::from_json(json.to_string().into_bytes(), PodSource::File).unwrap();
    document.to_message()
}

fn running() -> v1::PodObservation {
    let pod = document();
    v1::PodObservation {
        pod: pod.reference,
        source: pod.source,
        hash: pod.hash,
        phase: v1::WorkerPhase::Syncing.into(),
        is_observed: true,
        containers: vec![v1::ContainerObservation {
            name: "c".to_owned(),
            id: "a".to_owned(),
            state: v1::RuntimeState::Running.into(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn is_ready(pods: &[Value]) -> bool {
    pods.first()
        .is_some_and(|pod| pod["status"]["containerStatuses"][0]["ready"] == true)
}

#[tokio::test(start_paused = true)]
async fn what_was_published_survives_kills_of_this_process_and_the_pool() {
    let mut node = Node::start().await;
    node.observations.send(vec![running()]).unwrap();
    node.until("the pod is seen", |pods| pods.len() == 1).await;
    assert_eq!(node.verdict(v1::ProbeResult::Success).await, "boot-1");
    node.until("the pod is ready", is_ready).await;
    let before = node.pods().await;
    for _ in 0..5 {
        node.restart().await;
        assert_eq!(node.pods().await, before);
        node.hub.kill(Process::PodWorkerPool);
        assert_eq!(node.pods().await, before);
    }
    assert_eq!(node.verdict(v1::ProbeResult::Failure).await, "boot-6");
    node.until("a failure counts", |pods| !is_ready(pods)).await;
}

/// The pool has another version by now, or was restarted.
#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_had_has_a_status_from_a_later_observation() {
    let node = Node::start().await;
    for refused in [Code::Aborted, Code::NotFound] {
        node.refusals.lock().unwrap().push(refused);
        node.observations.send(vec![running()]).unwrap();
        tokio::time::sleep(PATIENCE).await;
        assert!(node.pods().await.is_empty(), "{refused}");
    }
    node.observations.send(vec![running()]).unwrap();
    node.until("it is seen", |pods| pods.len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_state_directory_that_cannot_be_written_holds_nothing_back() {
    let node = Node::start().await;
    std::fs::remove_dir_all(node.directories().state(Process::StatusSyncer)).unwrap();
    node.observations.send(vec![running()]).unwrap();
    node.until("the pod is seen", |pods| pods.len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_sees_changes_and_removals() {
    let node = Node::start().await;
    let mut watch = node
        .reader()
        .list_pod_statuses(v1::ListPodStatusesRequest {
            watch: true,
            pod: None,
        })
        .await
        .unwrap()
        .into_inner();
    let mut next = async || {
        patiently(watch.message())
            .await
            .unwrap()
            .unwrap()
            .message
            .unwrap()
    };
    assert_eq!(next().await, StatusMessage::SnapshotComplete(true));
    node.observations.send(vec![running()]).unwrap();
    assert!(matches!(next().await, StatusMessage::Entry(_)));
    node.observations.send(vec![]).unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    let now = node.clock.since_boot();
    node.drop_all_but_what_came_since(Some(now)).await.unwrap();
    assert_eq!(next().await, StatusMessage::RemovedPodUid("u".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn events_of_the_pool_and_of_others_are_listed_once_and_followed() {
    let node = Node::start().await;
    node.observations.send(vec![running()]).unwrap();
    node.until("the pod is seen", |pods| pods.len() == 1).await;
    let mut events = node
        .reader()
        .list_events(v1::ListEventsRequest {
            watch: true,
            pod_uid: String::new(),
        })
        .await
        .unwrap()
        .into_inner();
    let mut next = async || {
        patiently(events.message())
            .await
            .unwrap()
            .unwrap()
            .message
            .unwrap()
    };
    let EventMessage::Event(first) = next().await else {
        panic!("an event comes first")
    };
    assert_eq!(
        (first.reason.as_str(), first.count),
        ("Started", 1),
        "the pool repeats itself"
    );
    assert_eq!(next().await, EventMessage::SnapshotComplete(true));

    let report = v1::ReportEventsRequest {
        events: vec![v1::Event {
            reason: "Unhealthy".to_owned(),
            unix_nanos: 1,
            ..Default::default()
        }],
    };
    for _ in 0..2 {
        node.sync_loop()
            .report_events(report.clone())
            .await
            .unwrap();
    }
    let EventMessage::Event(event) = next().await else {
        panic!("an event follows")
    };
    assert_eq!((event.reason.as_str(), event.count), ("Unhealthy", 1));
}

#[tokio::test(start_paused = true)]
async fn only_sync_loop_may_report() {
    let node = Node::start().await;
    let network = node.hub.network(Process::Prober, &node.identities);
    let mut prober = StatusReportsClient::new(network.channel(Process::StatusSyncer));
    let status = prober
        .set_probe_verdicts(v1::SetProbeVerdictsRequest::default())
        .await
        .unwrap_err();
    assert!(ipc::is_broken_connection(&status), "hung up on: {status}");
}
