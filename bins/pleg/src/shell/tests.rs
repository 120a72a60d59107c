//! The whole process against a pool that answers what a test says, over sockets
//! in memory and under a paused clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::PodLifecycleEventType::{ContainerDied, ContainerStarted};
use bulkhead_api::v1::pleg_client::PlegClient;
use bulkhead_api::v1::runtime_pods_server::{RuntimePods, RuntimePodsServer};
use bulkhead_api::v1::watch_pod_lifecycle_events_response::Message;
use clock::{UnixNanos, WallClock};
use ipc::{Feed, FeedItem};
use memory_network::MemoryHub;
use node_config::{DirectoryLayout, NodeConfig};
use process::{Context, Lifecycle};
use tokio::time::Instant;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use topology::{Identities, Process};

type Pods = BTreeMap<&'static str, Vec<(&'static str, v1::RuntimeState)>>;

/// The pool that the tests script.
#[derive(Clone)]
struct Pool {
    pods: Arc<Mutex<Pods>>,
    /// Lists fail while this is set.
    failing: Arc<Mutex<bool>>,
    /// The uid asked for and when.
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
    hints: Feed<v1::WatchHintsResponse>,
}

impl Pool {
    fn tell(&self, hint: v1::watch_hints_response::Message) {
        self.hints.push(&v1::WatchHintsResponse {
            boot_id: "pool".to_owned(),
            message: Some(hint),
        });
    }
}

#[tonic::async_trait]
impl RuntimePods for Pool {
    async fn list_pods(
        &self,
        request: Request<v1::ListPodsRequest>,
    ) -> Result<Response<v1::ListPodsResponse>, Status> {
        let wanted = request.into_inner().pod_uid;
        self.asked
            .lock()
            .unwrap()
            .push((wanted.clone(), Instant::now()));
        if *self.failing.lock().unwrap() {
            return Err(Status::internal("the runtime does not answer"));
        }
        let pods = self.pods.lock().unwrap().clone();
        let pods = pods
            .into_iter()
            .filter(|(uid, _)| wanted.is_empty() || wanted == *uid)
            .map(|(uid, containers)| runtime_pod(uid, &containers))
            .collect();
        Ok(Response::new(v1::ListPodsResponse {
            boot_id: "pool".to_owned(),
            pods,
        }))
    }

    type WatchHintsStream =
        std::pin::Pin<Box<dyn Stream<Item = Result<v1::WatchHintsResponse, Status>> + Send>>;

    async fn watch_hints(
        &self,
        _request: Request<v1::WatchHintsRequest>,
    ) -> Result<Response<Self::WatchHintsStream>, Status> {
        let watch = self.hints.subscribe_from_oldest();
        let messages = futures_util::stream::unfold(watch, |mut watch| async move {
            let FeedItem::Item(hint) = watch.next().await else {
                return None;
            };
            Some((Ok(hint), watch))
        });
        Ok(Response::new(Box::pin(messages)))
    }
}

fn runtime_pod(uid: &str, containers: &[(&str, v1::RuntimeState)]) -> v1::RuntimePod {
    v1::RuntimePod {
        pod: Some(v1::PodReference {
            uid: uid.to_owned(),
            ..Default::default()
        }),
        sandboxes: Vec::new(),
        containers: containers
            .iter()
            .map(|(id, state)| v1::RuntimeContainer {
                id: (*id).to_owned(),
                name: "main".to_owned(),
                state: (*state).into(),
            })
            .collect(),
    }
}

/// A node with nothing but a pool and the process under test.
struct Node {
    hub: MemoryHub,
    identities: Arc<Identities>,
    pool: Pool,
    pool_task: Option<AbortOnDropHandle<()>>,
    pleg_task: Option<AbortOnDropHandle<()>>,
    config: Arc<NodeConfig>,
}

impl Node {
    fn new() -> Node {
        let directories = DirectoryLayout::below("/nonexistent");
        Node {
            hub: MemoryHub::new(),
            identities: Arc::new(Identities::from_base(64_000).unwrap()),
            pool: Pool {
                pods: Arc::default(),
                failing: Arc::default(),
                asked: Arc::default(),
                hints: Feed::new(100),
            },
            pool_task: None,
            pleg_task: None,
            config: Arc::new(NodeConfig::with_defaults("node", directories)),
        }
    }

    fn start_pool(&mut self) {
        let serving = ipc::serve(
            Process::PodWorkerPool,
            Arc::clone(&self.identities),
            self.hub.listener(Process::PodWorkerPool),
            Routes::new(RuntimePodsServer::new(self.pool.clone())),
            CancellationToken::new(),
        );
        let task = tokio::spawn(async move { serving.await.unwrap() });
        self.pool_task = Some(AbortOnDropHandle::new(task));
    }

    fn kill_pool(&mut self) {
        self.pool_task = None;
        self.hub.kill(Process::PodWorkerPool);
    }

    fn start_pleg(&mut self) {
        let context = Context {
            process: Process::Pleg,
            config: Arc::clone(&self.config),
            clock: WallClock::simulated(UnixNanos(1_700_000_000_000_000_000)),
            network: self.hub.network(Process::Pleg, &self.identities),
            listener: self.hub.listener(Process::Pleg),
            identities: Arc::clone(&self.identities),
            boot_id: "pleg-1".to_owned(),
            seed: 1,
            lifecycle: Lifecycle::unsupervised(CancellationToken::new()),
        };
        let task = tokio::spawn(async move { crate::serve(context).await.unwrap() });
        self.pleg_task = Some(AbortOnDropHandle::new(task));
    }

    async fn watch(&self) -> Streaming<v1::WatchPodLifecycleEventsResponse> {
        let network = self.hub.network(Process::SyncLoop, &self.identities);
        PlegClient::new(network.channel(Process::Pleg))
            .watch_events(v1::WatchPodLifecycleEventsRequest {})
            .await
            .unwrap()
            .into_inner()
    }

    fn set(&self, uid: &'static str, containers: &[(&'static str, v1::RuntimeState)]) {
        let mut pods = self.pool.pods.lock().unwrap();
        pods.insert(uid, containers.to_vec());
    }

    fn fail(&self, failing: bool) {
        *self.pool.failing.lock().unwrap() = failing;
    }

    fn hint(&self, uid: &str) {
        let hint = v1::watch_hints_response::Message::PodUid(uid.to_owned());
        self.pool.tell(hint);
    }

    /// How often the pool was asked about `uid` (empty: about all) so far.
    fn asked(&self, uid: &str) -> usize {
        let asked = self.pool.asked.lock().unwrap();
        asked.iter().filter(|(wanted, _)| wanted == uid).count()
    }
}

async fn next(stream: &mut Streaming<v1::WatchPodLifecycleEventsResponse>) -> Message {
    let response = stream.message().await.unwrap().unwrap();
    assert_eq!(response.boot_id, "pleg-1");
    response.message.unwrap()
}

async fn snapshot(
    stream: &mut Streaming<v1::WatchPodLifecycleEventsResponse>,
) -> (bool, Vec<String>) {
    match next(stream).await {
        Message::Snapshot(snapshot) => (snapshot.health.unwrap().healthy, snapshot.pod_uids),
        other => panic!("not a snapshot: {other:?}"),
    }
}

async fn event(
    stream: &mut Streaming<v1::WatchPodLifecycleEventsResponse>,
) -> (String, v1::PodLifecycleEventType, String) {
    match next(stream).await {
        Message::Event(event) => (
            event.pod_uid.clone(),
            event.r#type(),
            event.container_id.clone(),
        ),
        other => panic!("not an event: {other:?}"),
    }
}

async fn health(stream: &mut Streaming<v1::WatchPodLifecycleEventsResponse>) -> bool {
    match next(stream).await {
        Message::Health(health) => health.healthy,
        other => panic!("not a health: {other:?}"),
    }
}

fn seen(
    uid: &str,
    kind: v1::PodLifecycleEventType,
    id: &str,
) -> (String, v1::PodLifecycleEventType, String) {
    (uid.to_owned(), kind, id.to_owned())
}

/// Starts everything and waits until the first relist is published.
async fn started() -> (Node, Streaming<v1::WatchPodLifecycleEventsResponse>) {
    let mut node = Node::new();
    node.set("a", &[("c1", v1::RuntimeState::Running)]);
    node.start_pool();
    node.start_pleg();
    loop {
        let mut stream = node.watch().await;
        if let (true, uids) = snapshot(&mut stream).await {
            assert_eq!(uids, ["a"]);
            return (node, stream);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_followed_at_once_and_for_its_pod_alone() {
    let (node, mut stream) = started().await;
    node.set("a", &[("c1", v1::RuntimeState::Exited)]);
    let begun = Instant::now();
    let lists = node.asked("");
    node.hint("a");
    assert_eq!(event(&mut stream).await, seen("a", ContainerDied, "c1"));
    assert!(begun.elapsed() < Duration::from_millis(50));
    assert_eq!(node.asked("a"), 1);
    assert_eq!(node.asked(""), lists);
}

#[tokio::test(start_paused = true)]
async fn while_the_runtime_sends_events_an_idle_node_is_listed_every_five_seconds() {
    let (node, mut stream) = started().await;
    let available = v1::watch_hints_response::Message::EventsAvailable(true);
    node.pool.tell(available);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let lists = node.asked("");
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(node.asked(""), lists + 20);

    // A change whose event was lost is found by the next list.
    node.set("b", &[("c2", v1::RuntimeState::Running)]);
    let begun = Instant::now();
    assert_eq!(event(&mut stream).await, seen("b", ContainerStarted, "c2"));
    assert!(begun.elapsed() <= Duration::from_secs(5) + Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn lost_hints_lead_to_a_list_of_all() {
    let (node, mut stream) = started().await;
    node.set("a", &[("c1", v1::RuntimeState::Exited)]);
    let begun = Instant::now();
    let lost = v1::watch_hints_response::Message::Lost(true);
    node.pool.tell(lost);
    assert_eq!(event(&mut stream).await, seen("a", ContainerDied, "c1"));
    assert!(begun.elapsed() < Duration::from_millis(50));
    assert_eq!(node.asked("a"), 0);
}

#[tokio::test(start_paused = true)]
async fn health_is_told_and_stops_nothing() {
    let mut node = Node::new();
    node.start_pleg();
    let mut stream = node.watch().await;
    assert_eq!(snapshot(&mut stream).await, (false, Vec::new()));
    node.set("a", &[("c1", v1::RuntimeState::Running)]);
    node.start_pool();
    assert!(health(&mut stream).await);
    assert_eq!(
        event(&mut stream).await,
        seen("a", ContainerStarted, "c1"),
        "the first relist reports everything"
    );
    node.fail(true);
    let begun = Instant::now();
    assert!(!health(&mut stream).await);
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(179) && took < Duration::from_secs(183));
    node.set("a", &[("c1", v1::RuntimeState::Exited)]);
    node.fail(false);
    assert!(health(&mut stream).await);
    assert_eq!(event(&mut stream).await, seen("a", ContainerDied, "c1"));
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_pool_is_no_event_and_hints_come_again() {
    let (mut node, mut stream) = started().await;
    node.kill_pool();
    tokio::time::sleep(Duration::from_secs(5)).await;
    node.start_pool();
    let lists = node.asked("");
    while node.asked("") < lists + 2 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    node.set("a", &[("c1", v1::RuntimeState::Exited)]);
    let begun = Instant::now();
    node.hint("a");
    assert_eq!(event(&mut stream).await, seen("a", ContainerDied, "c1"));
    assert!(begun.elapsed() < Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn nobody_else_may_watch() {
    let (node, _stream) = started().await;
    let network = node.hub.network(Process::Prober, &node.identities);
    let status = PlegClient::new(network.channel(Process::Pleg))
        .watch_events(v1::WatchPodLifecycleEventsRequest {})
        .await
        .unwrap_err();
    assert!(ipc::is_broken_connection(&status), "hung up on: {status}");
}
