//! A node with nothing but a pool, targets and the process, all of which do what a test
//! says.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Condvar, Mutex};

use async_trait::async_trait;
use bulkhead_api::v1::ProbeKind::{Liveness, Readiness, Startup};
use bulkhead_api::v1::probe_targets_server::{ProbeTargets, ProbeTargetsServer};
use bulkhead_api::v1::prober_client::ProberClient;
use bulkhead_api::v1::watch_results_response::Message as Told;
use bulkhead_api::v1::{ProbeKind, ProbeResult};
use clock::UnixNanos;
use ipc::{StateEvent, StateHub};
use memory_network::MemoryHub;
use node_config::{DirectoryLayout, NodeConfig};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, Streaming};
use topology::Identities;

use super::super::*;
use crate::network::{ByteStream, LookupPlace};

/// What a target does with a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Behaviour {
    Accept,
    Refuse,
    Hang,
}

/// Targets by pod address; unknown ones refuse.
#[derive(Default)]
pub(super) struct Pods {
    pub(super) behaviour: Mutex<BTreeMap<IpAddr, Behaviour>>,
    pub(super) connects: Mutex<Vec<(IpAddr, Instant)>>,
}

#[async_trait]
impl ProbeNetwork for Pods {
    async fn resolve(&self, _host: &str, _place: LookupPlace) -> io::Result<Vec<IpAddr>> {
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
pub(super) struct Pool {
    pub(super) targets: StateHub<String, v1::ProbeTarget>,
    /// Whether it has looked at every pod that there is to be.
    pub(super) is_complete: tokio::sync::watch::Sender<bool>,
    pub(super) exec: Arc<Mutex<v1::ExecProbeResponse>>,
    pub(super) executed: Arc<Mutex<Vec<v1::ExecProbeRequest>>>,
    /// Hooks that are told once.
    pub(super) hooks: Arc<Mutex<Vec<v1::HttpHook>>>,
    pub(super) reported: Arc<Mutex<Vec<v1::ReportHttpHookRequest>>>,
}

#[tonic::async_trait]
impl ProbeTargets for Pool {
    type WatchProbeTargetsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchProbeTargetsResponse, Status>> + Send>>;

    async fn watch_probe_targets(
        &self,
        _request: Request<v1::WatchProbeTargetsRequest>,
    ) -> Result<Response<Self::WatchProbeTargetsStream>, Status> {
        let mut is_complete = self.is_complete.subscribe();
        let complete = futures_util::stream::once(async move {
            let _ = is_complete.wait_for(|is_complete| *is_complete).await;
            Message::Complete(v1::ProbeTargetsComplete {})
        });
        let targets = self.targets.subscribe().into_stream();
        let targets = targets.map(|event| match event {
            StateEvent::SnapshotBegin => Message::SnapshotBegin(v1::SnapshotBegin {}),
            StateEvent::Item(_, target) => Message::Target(target),
            StateEvent::SnapshotEnd => Message::SnapshotEnd(v1::SnapshotEnd {}),
            StateEvent::Removed(id) => Message::RemovedContainerId(id),
        });
        let messages = futures_util::stream::select(targets, complete).map(|message| {
            Ok(v1::WatchProbeTargetsResponse {
                message: Some(message),
            })
        });
        Ok(Response::new(Box::pin(messages)))
    }

    type WatchHttpHooksStream = Pin<Box<dyn Stream<Item = Result<v1::HttpHook, Status>> + Send>>;

    async fn watch_http_hooks(
        &self,
        _request: Request<v1::WatchHttpHooksRequest>,
    ) -> Result<Response<Self::WatchHttpHooksStream>, Status> {
        let hooks = std::mem::take(&mut *self.hooks.lock().unwrap());
        let told = futures_util::stream::iter(hooks.into_iter().map(Ok));
        let for_ever = futures_util::stream::pending();
        Ok(Response::new(Box::pin(told.chain(for_ever))))
    }

    async fn report_http_hook(
        &self,
        request: Request<v1::ReportHttpHookRequest>,
    ) -> Result<Response<v1::ReportHttpHookResponse>, Status> {
        self.reported.lock().unwrap().push(request.into_inner());
        Ok(Response::new(v1::ReportHttpHookResponse::default()))
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
pub(super) struct Disk(Arc<(Mutex<bool>, Condvar)>);

impl Disk {
    pub(super) fn hangs(&self, hangs: bool) {
        *self.0.0.lock().unwrap() = hangs;
        self.0.1.notify_all();
    }

    pub(super) fn pass(&self) {
        let hangs = self.0.0.lock().unwrap();
        let patience = Duration::from_secs(60);
        let waited = self.0.1.wait_timeout_while(hangs, patience, |hangs| *hangs);
        // Nobody who could let it go on does.
        assert!(!waited.unwrap().1.timed_out(), "the test hangs too");
    }
}

/// Ends a hang when a test ends: its runtime waits for threads that write.
pub(super) struct GoesOn(pub(super) Disk);

impl Drop for GoesOn {
    fn drop(&mut self) {
        self.0.hangs(false);
    }
}

/// Lets time pass until something happens. It does not pass by itself while a thread
/// writes.
pub(super) async fn as_time_passes<T>(happening: impl Future<Output = T>) -> T {
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
pub(super) struct Node {
    pub(super) disk: Disk,
    pub(super) hub: MemoryHub,
    pub(super) identities: Arc<Identities>,
    pub(super) pool: Pool,
    pub(super) pool_task: Option<AbortOnDropHandle<()>>,
    pub(super) prober_task: Option<AbortOnDropHandle<()>>,
    pub(super) pods: Arc<Pods>,
    pub(super) clock: WallClock,
    pub(super) state_dir: tempfile::TempDir,
    pub(super) runs: u64,
}

impl Node {
    /// Everything runs, and the process is old enough to spread no first tries.
    pub(super) async fn new() -> Node {
        let mut node = Node {
            disk: Disk::default(),
            hub: MemoryHub::new(),
            identities: Arc::new(Identities::from_base(64_000).unwrap()),
            pool: Pool {
                targets: StateHub::new(),
                is_complete: tokio::sync::watch::Sender::new(true),
                exec: Arc::default(),
                executed: Arc::default(),
                hooks: Arc::default(),
                reported: Arc::default(),
            },
            pool_task: None,
            prober_task: None,
            pods: Arc::default(),
            clock: WallClock::simulated(UnixNanos(1_700_000_000_000_000_000)),
            state_dir: tempfile::tempdir().unwrap(),
            runs: 0,
        };
        node.start_pool();
        node.start_prober();
        sleep(3600).await;
        node
    }

    pub(super) fn start_pool(&mut self) {
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

    pub(super) fn kill_pool(&mut self) {
        self.pool_task = None;
        self.hub.kill(Process::PodWorkerPool);
    }

    pub(super) fn start_prober(&mut self) {
        self.runs += 1;
        let directories = DirectoryLayout {
            state_dir: self.state_dir.path().to_owned(),
            ..DirectoryLayout::below("/nonexistent")
        };
        let context = Context {
            process: Process::Prober,
            config: Arc::new(NodeConfig::with_defaults("node", directories)),
            clock: self.clock.clone(),
            network: self.hub.network(Process::Prober, &self.identities),
            listener: self.hub.listener(Process::Prober),
            identities: Arc::clone(&self.identities),
            boot_id: format!("prober-{}", self.runs),
            seed: self.runs,
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

    pub(super) fn kill_prober(&mut self) {
        self.prober_task = None;
        self.hub.kill(Process::Prober);
    }

    pub(super) fn behave(&self, container: &str, behaviour: Behaviour) {
        let mut pods = self.pods.behaviour.lock().unwrap();
        pods.insert(address(container), behaviour);
    }

    /// Makes the pool announce a container.
    pub(super) fn announce(&self, target: v1::ProbeTarget) {
        self.pool.targets.set(target.container_id.clone(), target);
    }

    pub(super) fn change(&self, container: &str, change: impl FnOnce(&mut v1::ProbeTarget)) {
        let mut target = self.pool.targets.get(&container.to_owned()).unwrap();
        change(&mut target);
        self.announce(target);
    }

    /// A running container that just started, with TCP probes of these kinds, each
    /// every second with thresholds of 1 (failure: 3).
    pub(super) fn target(&self, container: &str, kinds: &[ProbeKind]) -> v1::ProbeTarget {
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

    pub(super) async fn watch(&self) -> Watcher {
        let network = self.hub.network(Process::SyncLoop, &self.identities);
        let stream = ProberClient::new(network.channel(Process::Prober))
            .watch_results(v1::WatchResultsRequest {})
            .await
            .unwrap()
            .into_inner();
        let mut watcher = Watcher {
            stream,
            boot_id: format!("prober-{}", self.runs),
            verdicts: BTreeMap::new(),
        };
        assert!(matches!(watcher.message().await, Told::SnapshotBegin(_)));
        while !matches!(watcher.message().await, Told::SnapshotEnd(_)) {}
        watcher
    }

    pub(super) fn connects(&self, container: &str) -> Vec<Instant> {
        let connects = self.pods.connects.lock().unwrap();
        let mine = connects.iter().filter(|(ip, _)| *ip == address(container));
        mine.map(|(_, at)| *at).collect()
    }

    pub(super) fn state_file(&self) -> std::path::PathBuf {
        self.state_dir.path().join("prober/verdicts.json")
    }
}

/// The address of a container's pod: a number in its name, or a hash of it.
pub(super) fn address(container: &str) -> IpAddr {
    let sum: u32 = container.bytes().map(u32::from).fold(7, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte) & 0x00ff_ffff
    });
    IpAddr::from((0x0a00_0000 | sum).to_be_bytes())
}

/// A reader of verdicts.
pub(super) struct Watcher {
    pub(super) stream: Streaming<v1::WatchResultsResponse>,
    pub(super) boot_id: String,
    pub(super) verdicts: BTreeMap<(String, ProbeKind), ProbeResult>,
}

impl Watcher {
    pub(super) async fn message(&mut self) -> Told {
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
    pub(super) async fn until(&mut self, container: &str, kind: ProbeKind, result: ProbeResult) {
        let key = (container.to_owned(), kind);
        while self.verdicts.get(&key) != Some(&result) {
            self.message().await;
        }
    }

    /// The verdicts that come within so many seconds.
    pub(super) async fn changes_within(
        &mut self,
        seconds: u64,
    ) -> Vec<(String, ProbeKind, ProbeResult)> {
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

    pub(super) fn verdict(&self, container: &str, kind: ProbeKind) -> Option<ProbeResult> {
        self.verdicts.get(&(container.to_owned(), kind)).copied()
    }
}

pub(super) async fn sleep(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
