//! The whole process against a pool and targets that do what a test says, over
//! sockets in memory and under a paused clock.

mod restarts;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::{Condvar, Mutex};

use async_trait::async_trait;
use bulkhead_api::v1::ProbeKind::{Liveness, Readiness, Startup};
use bulkhead_api::v1::ProbeResult::{Failure, Success, Unspecified};
use bulkhead_api::v1::probe_targets_server::{ProbeTargets, ProbeTargetsServer};
use bulkhead_api::v1::prober_client::ProberClient;
use bulkhead_api::v1::watch_results_response::Message as Told;
use bulkhead_api::v1::{ProbeKind, ProbeResult};
use clock::UnixNanos;
use ipc::{MemoryHub, Network, StateEvent, StateHub};
use node_config::{DirectoryLayout, NodeConfig};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, Streaming};
use topology::Identities;

use super::*;
use crate::network::ByteStream;

/// What a target does with a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    Accept,
    Refuse,
    Hang,
}

/// Targets by pod address; unknown ones refuse.
#[derive(Default)]
struct Pods {
    behaviour: Mutex<BTreeMap<IpAddr, Behaviour>>,
    connects: Mutex<Vec<(IpAddr, Instant)>>,
}

#[async_trait]
impl ProbeNetwork for Pods {
    async fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        Err(io::Error::other("no names here"))
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn ByteStream>> {
        let ip = address.ip();
        self.connects.lock().unwrap().push((ip, Instant::now()));
        let behaviour = self.behaviour.lock().unwrap().get(&ip).copied();
        match behaviour {
            Some(Behaviour::Accept) => Ok(Box::new(tokio::io::duplex(64).0)),
            Some(Behaviour::Hang) => std::future::pending().await,
            Some(Behaviour::Refuse) | None => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }
}

/// The pool that the tests script.
#[derive(Clone)]
struct Pool {
    targets: StateHub<String, v1::ProbeTarget>,
    exec: Arc<Mutex<v1::ExecProbeResponse>>,
    executed: Arc<Mutex<Vec<v1::ExecProbeRequest>>>,
}

#[tonic::async_trait]
impl ProbeTargets for Pool {
    type WatchProbeTargetsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchProbeTargetsResponse, Status>> + Send>>;

    async fn watch_probe_targets(
        &self,
        _request: Request<v1::WatchProbeTargetsRequest>,
    ) -> Result<Response<Self::WatchProbeTargetsStream>, Status> {
        let messages = self.targets.subscribe().into_stream().map(|event| {
            let message = match event {
                StateEvent::SnapshotBegin => {
                    Message::SnapshotBegin(v1::ProbeTargetsSnapshotBegin {})
                }
                StateEvent::Item(_, target) => Message::Target(target),
                StateEvent::SnapshotEnd => Message::SnapshotEnd(v1::ProbeTargetsSnapshotEnd {}),
                StateEvent::Removed(id) => Message::RemovedContainerId(id),
            };
            Ok(v1::WatchProbeTargetsResponse {
                boot_id: "pool".to_owned(),
                message: Some(message),
            })
        });
        Ok(Response::new(Box::pin(messages)))
    }

    async fn exec_probe(
        &self,
        request: Request<v1::ExecProbeRequest>,
    ) -> Result<Response<v1::ExecProbeResponse>, Status> {
        self.executed.lock().unwrap().push(request.into_inner());
        let response = self.exec.lock().unwrap().clone();
        Ok(Response::new(response))
    }
}

/// A disk that may hang.
#[derive(Clone, Default)]
struct Disk(Arc<(Mutex<bool>, Condvar)>);

impl Disk {
    fn hangs(&self, hangs: bool) {
        *self.0.0.lock().unwrap() = hangs;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let hangs = self.0.0.lock().unwrap();
        let patience = Duration::from_secs(60);
        let waited = self.0.1.wait_timeout_while(hangs, patience, |hangs| *hangs);
        // Nobody who could let it go on does.
        assert!(!waited.unwrap().1.timed_out(), "the test hangs too");
    }
}

/// Ends a hang when a test ends: its runtime waits for threads that write.
struct GoesOn(Disk);

impl Drop for GoesOn {
    fn drop(&mut self) {
        self.0.hangs(false);
    }
}

/// Lets time pass until something happens. It does not pass by itself while a thread
/// writes.
async fn as_time_passes<T>(happening: impl Future<Output = T>) -> T {
    let mut happening = pin!(happening);
    loop {
        tokio::select! {
            biased;
            happened = &mut happening => return happened,
            () = tokio::time::advance(Duration::from_millis(5)) => {}
        }
    }
}

/// A node with nothing but a pool, targets and the process under test.
struct Node {
    disk: Disk,
    hub: MemoryHub,
    identities: Arc<Identities>,
    pool: Pool,
    pool_task: Option<AbortOnDropHandle<()>>,
    prober_task: Option<AbortOnDropHandle<()>>,
    pods: Arc<Pods>,
    clock: WallClock,
    state_dir: tempfile::TempDir,
    lives: u64,
}

impl Node {
    /// Everything runs, and the process is old enough to spread no first tries.
    async fn new() -> Node {
        let mut node = Node {
            disk: Disk::default(),
            hub: MemoryHub::new(),
            identities: Arc::new(Identities::from_base(64_000).unwrap()),
            pool: Pool {
                targets: StateHub::new(),
                exec: Arc::default(),
                executed: Arc::default(),
            },
            pool_task: None,
            prober_task: None,
            pods: Arc::default(),
            clock: WallClock::simulated(UnixNanos(1_700_000_000_000_000_000)),
            state_dir: tempfile::tempdir().unwrap(),
            lives: 0,
        };
        node.start_pool();
        node.start_prober();
        sleep(3600).await;
        node
    }

    fn start_pool(&mut self) {
        let serving = ipc::serve(
            Process::PodWorkerPool,
            Arc::clone(&self.identities),
            self.hub.listener(Process::PodWorkerPool),
            Routes::new(ProbeTargetsServer::new(self.pool.clone())),
            CancellationToken::new(),
        );
        let task = tokio::spawn(async move { serving.await.unwrap() });
        self.pool_task = Some(AbortOnDropHandle::new(task));
    }

    fn kill_pool(&mut self) {
        self.pool_task = None;
        self.hub.kill(Process::PodWorkerPool);
    }

    fn start_prober(&mut self) {
        self.lives += 1;
        let directories = DirectoryLayout {
            run_dir: "/nonexistent".into(),
            state_dir: self.state_dir.path().to_owned(),
            root_dir: "/nonexistent".into(),
            log_dir: "/nonexistent".into(),
            bin_dir: "/nonexistent".into(),
        };
        let context = Context {
            process: Process::Prober,
            config: Arc::new(NodeConfig::with_defaults("node", directories)),
            clock: self.clock.clone(),
            network: Network::memory(self.hub.clone(), Process::Prober, &self.identities),
            listener: self.hub.listener(Process::Prober),
            identities: Arc::clone(&self.identities),
            boot_id: format!("prober-{}", self.lives),
            seed: self.lives,
            lifecycle: Lifecycle::unsupervised(CancellationToken::new()),
        };
        let network = Arc::clone(&self.pods) as Arc<dyn ProbeNetwork>;
        let (store, disk) = (
            Store::open(&self.state_dir.path().join("prober")),
            self.disk.clone(),
        );
        let saved = store.load();
        let save = move |all: &Saved| {
            disk.pass();
            store.save(all)
        };
        let running = serve_saving(context, network, saved, save);
        let task = tokio::spawn(async move { running.await.unwrap() });
        self.prober_task = Some(AbortOnDropHandle::new(task));
    }

    fn kill_prober(&mut self) {
        self.prober_task = None;
        self.hub.kill(Process::Prober);
    }

    fn behave(&self, container: &str, behaviour: Behaviour) {
        let mut pods = self.pods.behaviour.lock().unwrap();
        pods.insert(address(container), behaviour);
    }

    /// Makes the pool announce a container.
    fn announce(&self, target: v1::ProbeTarget) {
        self.pool.targets.set(target.container_id.clone(), target);
    }

    fn change(&self, container: &str, change: impl FnOnce(&mut v1::ProbeTarget)) {
        let mut target = self.pool.targets.get(&container.to_owned()).unwrap();
        change(&mut target);
        self.announce(target);
    }

    /// A running container that just started, with TCP probes of these kinds, each
    /// every second with thresholds of 1 (failure: 3).
    fn target(&self, container: &str, kinds: &[ProbeKind]) -> v1::ProbeTarget {
        let probe = br#"{"tcpSocket":{"port":80},"periodSeconds":1,"failureThreshold":3}"#;
        let json = |kind| match kinds.contains(&kind) {
            true => probe.to_vec(),
            false => Vec::new(),
        };
        v1::ProbeTarget {
            pod: Some(v1::PodReference {
                uid: format!("pod-of-{container}"),
                ..Default::default()
            }),
            container_name: "main".to_owned(),
            container_id: container.to_owned(),
            pod_ip: address(container).to_string(),
            started_at_unix_nanos: self.clock.now().0,
            liveness_json: json(Liveness),
            readiness_json: json(Readiness),
            startup_json: json(Startup),
            running: true,
            ..Default::default()
        }
    }

    async fn watch(&self) -> Watcher {
        let network = Network::memory(self.hub.clone(), Process::SyncLoop, &self.identities);
        let stream = ProberClient::new(network.channel(Process::Prober))
            .watch_results(v1::WatchResultsRequest {})
            .await
            .unwrap()
            .into_inner();
        let mut watcher = Watcher {
            stream,
            boot_id: format!("prober-{}", self.lives),
            verdicts: BTreeMap::new(),
        };
        assert!(matches!(watcher.message().await, Told::SnapshotBegin(_)));
        while !matches!(watcher.message().await, Told::SnapshotEnd(_)) {}
        watcher
    }

    fn connects(&self, container: &str) -> Vec<Instant> {
        let connects = self.pods.connects.lock().unwrap();
        let mine = connects.iter().filter(|(ip, _)| *ip == address(container));
        mine.map(|(_, at)| *at).collect()
    }

    fn state_file(&self) -> std::path::PathBuf {
        self.state_dir.path().join("prober/verdicts.json")
    }
}

/// The address of a container's pod: a number in its name, or a hash of it.
fn address(container: &str) -> IpAddr {
    let sum: u32 = container.bytes().map(u32::from).fold(7, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte) & 0x00ff_ffff
    });
    IpAddr::from((0x0a00_0000 | sum).to_be_bytes())
}

/// A reader of verdicts.
struct Watcher {
    stream: Streaming<v1::WatchResultsResponse>,
    boot_id: String,
    verdicts: BTreeMap<(String, ProbeKind), ProbeResult>,
}

impl Watcher {
    async fn message(&mut self) -> Told {
        let response = self.stream.message().await.unwrap().unwrap();
        assert_eq!(response.boot_id, self.boot_id);
        let message = response.message.unwrap();
        match &message {
            Told::Verdict(verdict) => {
                let key = (verdict.container_id.clone(), verdict.kind());
                self.verdicts.insert(key, verdict.result());
            }
            Told::Removed(removed) => {
                let key = (removed.container_id.clone(), removed.kind());
                self.verdicts.remove(&key);
            }
            Told::SnapshotBegin(_) | Told::SnapshotEnd(_) | Told::Attempt(_) => {}
        }
        message
    }

    /// Waits for a verdict.
    async fn until(&mut self, container: &str, kind: ProbeKind, result: ProbeResult) {
        let key = (container.to_owned(), kind);
        while self.verdicts.get(&key) != Some(&result) {
            self.message().await;
        }
    }

    /// The verdicts that come within so many seconds.
    async fn changes_within(&mut self, seconds: u64) -> Vec<(String, ProbeKind, ProbeResult)> {
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut changes = Vec::new();
        while let Ok(message) = tokio::time::timeout_at(until, self.message()).await {
            if let Told::Verdict(verdict) = message {
                changes.push((
                    verdict.container_id.clone(),
                    verdict.kind(),
                    verdict.result(),
                ));
            }
        }
        changes
    }

    fn verdict(&self, container: &str, kind: ProbeKind) -> Option<ProbeResult> {
        self.verdicts.get(&(container.to_owned(), kind)).copied()
    }
}

async fn sleep(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn readiness_follows_its_target() {
    let node = Node::new().await;
    node.behave("c1", Behaviour::Accept);
    node.announce(node.target("c1", &[Readiness]));
    let mut watcher = node.watch().await;
    watcher.until("c1", Readiness, Success).await;
    node.behave("c1", Behaviour::Refuse);
    let began = Instant::now();
    watcher.until("c1", Readiness, Failure).await;
    let took = began.elapsed();
    assert!(
        took > Duration::from_secs(2) && took < Duration::from_millis(3200),
        "{took:?}"
    );
    node.behave("c1", Behaviour::Accept);
    watcher.until("c1", Readiness, Success).await;
    assert!(
        watcher.changes_within(60).await.is_empty(),
        "nothing new is told"
    );
}

#[tokio::test(start_paused = true)]
async fn each_try_that_fails_is_told_to_who_is_connected() {
    let node = Node::new().await;
    node.behave("c1", Behaviour::Accept);
    node.announce(node.target("c1", &[Liveness]));
    let mut watcher = node.watch().await;
    watcher.until("c1", Liveness, Success).await;
    sleep(3).await;
    node.behave("c1", Behaviour::Refuse);
    let mut tries = Vec::new();
    // Those before the threshold too, and none that succeeded. The verdict may
    // come before the try that led to it, or after it.
    while tries.len() < 3 || watcher.verdict("c1", Liveness) != Some(Failure) {
        if let Told::Attempt(attempt) = watcher.message().await {
            tries.push(attempt);
        }
    }
    assert_eq!(tries.len(), 3, "{tries:?}");
    for attempt in &tries {
        assert_eq!(attempt.outcome(), v1::ProbeTryOutcome::Failure);
        assert_eq!(attempt.pod_uid, "pod-of-c1");
        assert_eq!(attempt.container_name, "main");
        let message = &attempt.message;
        assert!(message.starts_with("Liveness probe failed: "), "{message}");
    }
    // Not part of what a later reader is told first.
    let told = node.watch().await.changes_within(5).await;
    assert_eq!(told, []);
}

#[tokio::test(start_paused = true)]
async fn liveness_waits_for_startup_and_a_new_instance_begins_anew() {
    let node = Node::new().await;
    node.behave("c1", Behaviour::Refuse);
    node.announce(v1::ProbeTarget {
        startup_json: br#"{"tcpSocket":{"port":80},"periodSeconds":1,"failureThreshold":30}"#
            .to_vec(),
        ..node.target("c1", &[Liveness])
    });
    let mut watcher = node.watch().await;
    assert!(
        watcher
            .changes_within(20)
            .await
            .iter()
            .all(|(.., result)| *result != Failure)
    );
    assert_eq!(watcher.verdict("c1", Startup), Some(Unspecified));
    node.behave("c1", Behaviour::Accept);
    watcher.until("c1", Startup, Success).await;
    node.behave("c1", Behaviour::Refuse);
    watcher.until("c1", Liveness, Failure).await;
    let connects = node.connects("c1").len();
    assert!(watcher.changes_within(60).await.is_empty());
    assert_eq!(node.connects("c1").len(), connects, "it is on hold");

    // The container is replaced.
    node.behave("c2", Behaviour::Accept);
    node.announce(node.target("c2", &[Liveness]));
    node.pool.targets.remove(&"c1".to_owned());
    watcher.until("c2", Liveness, Success).await;
    while watcher.verdict("c1", Liveness).is_some() {
        watcher.message().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_liveness_failure_comes_before_the_initial_delay() {
    let node = Node::new().await;
    node.behave("c1", Behaviour::Refuse);
    let began = Instant::now();
    node.announce(v1::ProbeTarget {
        liveness_json: br#"{"tcpSocket":{"port":80},"initialDelaySeconds":30,"periodSeconds":1}"#
            .to_vec(),
        started_at_unix_nanos: node.clock.now().0 - 10_000_000_000,
        ..node.target("c1", &[])
    });
    let mut watcher = node.watch().await;
    watcher.until("c1", Liveness, Failure).await;
    assert!(began.elapsed() >= Duration::from_secs(22));
    assert_eq!(node.connects("c1").len(), 3);
    assert!(node.connects("c1")[0] >= began + Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn slow_targets_delay_nobody_else() {
    let node = Node::new().await;
    let probe = br#"{"tcpSocket":{"port":80},"periodSeconds":1,"timeoutSeconds":600}"#;
    for number in 0..400 {
        let container = format!("slow-{number}");
        node.behave(&container, Behaviour::Hang);
        node.announce(v1::ProbeTarget {
            liveness_json: probe.to_vec(),
            ..node.target(&container, &[])
        });
    }
    sleep(5).await;
    node.behave("quick", Behaviour::Accept);
    let began = Instant::now();
    node.announce(node.target("quick", &[Readiness]));
    let mut watcher = node.watch().await;
    watcher.until("quick", Readiness, Success).await;
    assert!(began.elapsed() < Duration::from_millis(100));
    sleep(100).await;
    let connects = node.connects("quick");
    let gaps = connects.windows(2).map(|pair| pair[1] - pair[0]);
    for gap in gaps {
        let off = gap.abs_diff(Duration::from_secs(1));
        assert!(off < Duration::from_millis(20), "{gap:?}");
    }
    assert!((99..=103).contains(&connects.len()), "{}", connects.len());
}

#[tokio::test(start_paused = true)]
async fn one_pod_with_many_slow_probes_does_not_take_all_places() {
    let node = Node::new().await;
    let probe = br#"{"tcpSocket":{"port":80},"periodSeconds":1,"timeoutSeconds":600}"#;
    for number in 0..1000 {
        let container = format!("slow-{number}");
        node.behave(&container, Behaviour::Hang);
        node.announce(v1::ProbeTarget {
            liveness_json: probe.to_vec(),
            pod: Some(v1::PodReference {
                uid: "greedy".to_owned(),
                ..Default::default()
            }),
            ..node.target(&container, &[])
        });
    }
    node.behave("quick", Behaviour::Accept);
    node.announce(node.target("quick", &[Readiness]));
    let mut watcher = node.watch().await;
    let began = Instant::now();
    watcher.until("quick", Readiness, Success).await;
    assert!(began.elapsed() < Duration::from_millis(100));
    let quick = node.connects("quick").len();
    let hanging = node.pods.connects.lock().unwrap().len() - quick;
    assert_eq!(hanging, crate::agenda::MAX_NETWORK_TRIES_PER_POD);
}

#[tokio::test(start_paused = true)]
async fn exec_probes_are_run_by_the_pool_by_reference() {
    let mut node = Node::new().await;
    node.announce(v1::ProbeTarget {
        liveness_json: br#"{"exec":{},"periodSeconds":1,"failureThreshold":1}"#.to_vec(),
        ..node.target("c1", &[])
    });
    let mut watcher = node.watch().await;
    watcher.until("c1", Liveness, Success).await;
    sleep(3).await;
    {
        let executed = node.pool.executed.lock().unwrap();
        assert!(executed.len() >= 3);
        let request = &executed[0];
        assert_eq!(request.container_id, "c1");
        assert_eq!(request.pod_uid, "pod-of-c1");
        assert_eq!(request.container_name, "main");
        assert_eq!(request.kind(), Liveness);
    }
    // What cannot be run, or asked for, is nobody's fault.
    node.pool.exec.lock().unwrap().error = "the runtime is busy".to_owned();
    let before = node.pool.executed.lock().unwrap().len();
    assert!(watcher.changes_within(2).await.is_empty());
    assert!(
        node.pool.executed.lock().unwrap().len() >= before + 6,
        "three tries each"
    );
    node.kill_pool();
    assert!(watcher.changes_within(60).await.is_empty());
    *node.pool.exec.lock().unwrap() = v1::ExecProbeResponse {
        exit_code: 1,
        output: b"broken".to_vec(),
        ..Default::default()
    };
    node.start_pool();
    watcher.until("c1", Liveness, Failure).await;
}

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_is_probed_for_readiness_only() {
    let node = Node::new().await;
    node.behave("c1", Behaviour::Accept);
    node.announce(node.target("c1", &[Liveness, Readiness]));
    let mut watcher = node.watch().await;
    watcher.until("c1", Readiness, Success).await;
    node.change("c1", |target| target.terminating = true);
    node.behave("c1", Behaviour::Refuse);
    let changes = watcher.changes_within(30).await;
    assert_eq!(changes, [("c1".to_owned(), Readiness, Failure)]);
    node.change("c1", |target| target.running = false);
    sleep(1).await;
    let connects = node.connects("c1").len();
    assert!(watcher.changes_within(30).await.is_empty());
    assert_eq!(node.connects("c1").len(), connects);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_saved_is_told_all_the_same_and_saved_later() {
    let node = Node::new().await;
    let state = node.state_dir.path().join("prober");
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::write(&state, "in the way").unwrap();
    node.behave("c1", Behaviour::Accept);
    node.announce(node.target("c1", &[Readiness]));
    let mut watcher = node.watch().await;
    watcher.until("c1", Readiness, Success).await;
    std::fs::remove_file(&state).unwrap();
    std::fs::create_dir(&state).unwrap();
    sleep(3).await;
    assert!(Path::exists(&node.state_file()));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_holds_verdicts_up_once_and_probing_never() {
    let mut node = Node::new().await;
    let _goes_on = GoesOn(node.disk.clone());
    node.behave("c1", Behaviour::Accept);
    let mut watcher = node.watch().await;
    node.disk.hangs(true);
    let begun = Instant::now();
    node.announce(node.target("c1", &[Readiness]));
    as_time_passes(watcher.until("c1", Readiness, Success)).await;
    let took = begun.elapsed();
    let bound = state_file::SAVE_MAY_TAKE;
    assert!(took >= bound, "told before it was saved: {took:?}");
    assert!(took < bound + Duration::from_secs(2), "{took:?}");
    assert!(node.connects("c1").len() >= 4, "probing goes on");

    // Now that it is known to hang nobody waits for it.
    node.behave("c1", Behaviour::Refuse);
    let begun = Instant::now();
    as_time_passes(watcher.until("c1", Readiness, Failure)).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(3200), "{took:?}");

    // Over: what was told last is what a restart finds.
    node.disk.hangs(false);
    sleep(1).await;
    node.kill_prober();
    node.start_prober();
    let watcher = node.watch().await;
    assert_eq!(watcher.verdict("c1", Readiness), Some(Failure));
}

#[tokio::test(start_paused = true)]
async fn a_target_without_sense_stops_no_other() {
    let node = Node::new().await;
    node.announce(v1::ProbeTarget {
        container_id: "nameless".to_owned(),
        ..Default::default()
    });
    node.announce(v1::ProbeTarget {
        readiness_json: b"not json".to_vec(),
        ..node.target("broken", &[])
    });
    node.behave("c1", Behaviour::Accept);
    node.announce(node.target("c1", &[Readiness]));
    let mut watcher = node.watch().await;
    watcher.until("c1", Readiness, Success).await;
    assert_eq!(watcher.verdict("broken", Readiness), Some(Failure));
    assert!(watcher.changes_within(60).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_the_first_tries_are_spread_over_a_period() {
    let mut node = Node::new().await;
    let probe = br#"{"tcpSocket":{"port":80},"periodSeconds":10}"#;
    for number in 0..100 {
        let container = format!("c{number}");
        node.behave(&container, Behaviour::Accept);
        node.announce(v1::ProbeTarget {
            readiness_json: probe.to_vec(),
            ..node.target(&container, &[])
        });
    }
    sleep(60).await;
    node.kill_prober();
    node.pods.connects.lock().unwrap().clear();
    let began = Instant::now();
    node.start_prober();
    sleep(10).await;
    let connects = node.pods.connects.lock().unwrap();
    let halves = connects
        .iter()
        .filter(|(_, at)| *at < began + Duration::from_secs(5));
    let early = halves.count();
    assert!(
        (25..=75).contains(&early),
        "{early} of 100 in the first half"
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_else_may_watch() {
    let node = Node::new().await;
    let network = Network::memory(node.hub.clone(), Process::Pleg, &node.identities);
    let status = ProberClient::new(network.channel(Process::Prober))
        .watch_results(v1::WatchResultsRequest {})
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
}
