//! A pool on a simulated node, for the tests of this crate.

use std::convert::Infallible;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use clock::{UnixNanos, WallClock};
use futures_util::FutureExt as _;
use local_objects::Services;
use node_config::{DirectoryLayout, EvictionSettings, NodeConfig};
use node_host::NodeHost;
use pod_lifecycle::{DesiredPod, KillRequest, Subject, Update, UpdateKind};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use simulated_node::MemoryHost;
use simulated_runtime::{ContainerView, SimulatedRuntime};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use topology::Identities;

use crate::assembly::{Assembly, Ingredients};
use crate::image::CredentialPrograms;
use crate::log_rotation::LogRotation;
use crate::object_source::ObjectSource;
use crate::pool::{PoolError, UpdateExtras};
use crate::servers::Shared;
use crate::service_source::ServiceSource;

pub(crate) use test_pods::{api_manifest, manifest, pod};

pub(crate) const IMAGE: &str = "localhost/app:1";
/// The simulated wall clock begins here.
pub(crate) const START: UnixNanos = UnixNanos(1_700_000_000_000_000_000);

/// A pod as its source gives it.
pub(crate) fn desired(value: Value) -> DesiredPod {
    DesiredPod::new(test_pods::document(value)).unwrap()
}

/// A pod whose container `c` runs `command`. It has a volume, which hangs and fails as
/// the node is told.
pub(crate) fn pod_running(name: &str, uid: &str, command: &[&str]) -> Value {
    let mut value = manifest(name, uid);
    value["spec"]["dnsPolicy"] = json!("Default");
    value["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    value["spec"]["containers"][0] = json!({"name": "c", "image": IMAGE, "command": command});
    value
}

/// A node in memory with a pool that can be killed and started again.
pub(crate) struct TestNode {
    pub(crate) runtime: SimulatedRuntime,
    pub(crate) host: Arc<MemoryHost>,
    pub(crate) clock: WallClock,
    pub(crate) state: tempfile::TempDir,
    run: Option<Run>,
    runs: u64,
    watches_policy: bool,
    /// When pods are evicted, from the next start on.
    pub(crate) eviction: EvictionSettings,
}

/// One run of the process.
pub(crate) struct Run {
    pub(crate) shared: Shared,
    objects: ObjectSource,
    services: ServiceSource,
    /// Has the pool stop in order.
    shutdown: CancellationToken,
    /// The first one is the actor.
    tasks: Vec<AbortOnDropHandle<()>>,
    /// Whether the disk of the state directory hangs.
    disk_hangs: watch::Sender<bool>,
}

impl TestNode {
    /// A node whose pool runs.
    pub(crate) fn new() -> TestNode {
        TestNode::with_seed(1)
    }

    /// One whose pool notices changes of the node policy.
    pub(crate) fn that_watches_its_policy() -> TestNode {
        let mut node = TestNode::new();
        node.kill();
        node.watches_policy = true;
        node.start();
        node
    }

    pub(crate) fn with_seed(seed: u64) -> TestNode {
        let clock = WallClock::simulated(START);
        let runtime = SimulatedRuntime::new(seed, clock.clone(), true);
        runtime.add_image(IMAGE, true);
        let mut node = TestNode {
            runtime,
            host: Arc::default(),
            clock,
            state: tempfile::tempdir().unwrap(),
            run: None,
            runs: 0,
            watches_policy: false,
            eviction: EvictionSettings::default(),
        };
        node.start();
        node
    }

    /// The pool dies at once, whatever it is doing.
    pub(crate) fn kill(&mut self) {
        self.run = None;
    }

    /// The pool stops in order, and is gone.
    pub(crate) async fn shut_down(&mut self) {
        let mut run = self.run.take().expect("the pool runs");
        run.shutdown.cancel();
        let actor = run.tasks.remove(0);
        actor.await.unwrap();
    }

    /// The pool starts, knowing only what is in its state directory.
    pub(crate) fn start(&mut self) {
        self.runs += 1;
        let runtime = cri::Runtime::from(self.runtime.clone());
        let host: Arc<dyn NodeHost> = Arc::clone(&self.host) as Arc<dyn NodeHost>;
        let root = self.state.path();
        let mut config = NodeConfig::with_defaults(
            "node",
            DirectoryLayout {
                root_dir: simulated_node::ROOT_DIR.into(),
                ..DirectoryLayout::below(root)
            },
        );
        config.eviction = self.eviction.clone();
        config.policy_path = root.join("policy.toml");
        config.pull_credentials_path = root.join("pull-credentials.json");
        let assembly = Assembly::new(Ingredients {
            config: &config,
            capacity: &simulated_node::CAPACITY,
            identities: &Identities::from_base(20_000).unwrap(),
            clock: self.clock.clone(),
            boot_id: format!("run-{}", self.runs),
            random: SmallRng::seed_from_u64(self.runs),
            runtime: runtime.clone(),
            host,
            programs: CredentialPrograms::default(),
        });
        let Assembly {
            actor,
            collection,
            evictions,
            state_writers,
            policy_writer,
            credentials: _,
            objects: (objects, services),
            shared,
        } = assembly.unwrap();
        services.set(Services::default());
        let listening = shared
            .hints
            .clone()
            .listen(runtime.reads, shared.pool.clone());
        let collecting = shared.garbage.clone().run(collection);
        let rotating = LogRotation::new(&shared, &config.logs, &self.clock).run();
        let (disk_hangs, hanging) = watch::channel(false);
        let writing = while_the_disk_answers(state_writers.run(), hanging);
        let shutdown = CancellationToken::new();
        let mut tasks = vec![
            AbortOnDropHandle::new(tokio::spawn(actor.run(shutdown.clone()).map(drop))),
            AbortOnDropHandle::new(tokio::spawn(listening)),
            AbortOnDropHandle::new(tokio::spawn(collecting)),
            AbortOnDropHandle::new(tokio::spawn(async move { match evictions.run().await {} })),
            AbortOnDropHandle::new(tokio::spawn(rotating)),
            AbortOnDropHandle::new(tokio::spawn(writing)),
        ];
        if self.watches_policy {
            // Looks at a real file, which takes real time: only where it matters.
            let policy = shared.policy.clone();
            tasks.push(AbortOnDropHandle::new(tokio::spawn(async move {
                match policy.run(policy_writer).await {}
            })));
        }
        self.run = Some(Run {
            shared,
            objects,
            services,
            shutdown,
            tasks,
            disk_hangs,
        });
    }

    /// The disk of the state directory hangs, or no more, in this process.
    pub(crate) fn state_disk_hangs(&self, hangs: bool) {
        let run = self.run.as_ref().expect("the pool runs");
        run.disk_hangs.send_replace(hangs);
    }

    /// The owner of the node writes this policy.
    pub(crate) fn write_policy(&self, text: &str) {
        let path = self.state.path().join("policy.toml");
        let new = path.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &path).unwrap();
    }

    /// As on a full disk: what was recorded stays, and nothing is added.
    pub(crate) fn records_can_be_written(&self, can: bool) {
        let directory = self.state.path().join("state/pod-worker-pool");
        let (here, away) = (directory.join("kills"), directory.join("kills.away"));
        let (from, to) = if can { (away, here) } else { (here, away) };
        std::fs::rename(from, to).unwrap();
    }

    /// To the pool that starts next this is another boot of the node.
    pub(crate) fn boots(&self) {
        let seen = self.state.path().join("state/pod-worker-pool/boot");
        std::fs::remove_file(seen).unwrap();
    }

    /// Whether something with this text is recorded.
    pub(crate) fn is_recorded(&self, text: &str) -> bool {
        let directory = self.state.path().join("state/pod-worker-pool/kills");
        let files = std::fs::read_dir(directory).into_iter().flatten();
        // One that is being written is beside the one that the next process would read.
        let is_whole = |path: &Path| path.extension().is_some_and(|it| it == "json");
        files.flatten().any(|file| {
            let content = std::fs::read(file.path()).unwrap_or_default();
            is_whole(&file.path()) && String::from_utf8_lossy(&content).contains(text)
        })
    }

    /// What the pool of this process offers.
    pub(crate) fn current_run(&self) -> &Shared {
        &self.run.as_ref().expect("the pool runs").shared
    }

    /// ConfigMaps and Secrets as the pool has them from config-sourcer.
    pub(crate) fn objects(&self) -> &ObjectSource {
        &self.run.as_ref().expect("the pool runs").objects
    }

    /// The Services as the pool has them from config-sourcer.
    pub(crate) fn services(&self) -> &ServiceSource {
        &self.run.as_ref().expect("the pool runs").services
    }

    pub(crate) async fn update(
        &self,
        kind: UpdateKind,
        value: &Value,
    ) -> Result<v1::WorkerPhase, PoolError> {
        self.send(kind, value, None, Vec::new()).await
    }

    pub(crate) async fn send(
        &self,
        kind: UpdateKind,
        value: &Value,
        kill: Option<KillRequest>,
        verdicts: Vec<v1::ProbeVerdict>,
    ) -> Result<v1::WorkerPhase, PoolError> {
        let extras = UpdateExtras {
            verdicts,
            ..UpdateExtras::default()
        };
        self.tell(kind, value, kill, extras).await
    }

    /// The node has no room for the CPU and memory of this pod.
    pub(crate) async fn update_pending(&self, kind: UpdateKind, value: &Value) {
        let extras = UpdateExtras {
            pending_resize: Some(v1::PendingResize::default()),
            ..UpdateExtras::default()
        };
        self.tell(kind, value, None, extras).await.unwrap();
    }

    async fn tell(
        &self,
        kind: UpdateKind,
        value: &Value,
        kill: Option<KillRequest>,
        extras: UpdateExtras,
    ) -> Result<v1::WorkerPhase, PoolError> {
        let update = Update {
            kind,
            subject: Subject::Desired(desired(value.clone())),
            kill,
        };
        self.current_run().pool.update(update, extras).await
    }

    pub(crate) async fn create(&self, value: &Value) {
        self.update(UpdateKind::Create, value).await.unwrap();
    }

    pub(crate) async fn stop(&self, value: &Value, grace: u64) {
        let kill = KillRequest {
            grace: Some(Duration::from_secs(grace)),
            ..KillRequest::default()
        };
        let sent = self.send(UpdateKind::Kill, value, Some(kill), Vec::new());
        sent.await.unwrap();
    }

    /// The observation that is published of a pod.
    pub(crate) fn observation(&self, uid: &str) -> Option<v1::PodObservation> {
        let publisher = self.current_run().pool.publisher();
        publisher.observations().get(&uid.to_owned())
    }

    pub(crate) fn phase(&self, uid: &str) -> Option<v1::WorkerPhase> {
        self.observation(uid).map(|observation| observation.phase())
    }

    /// The container of a pod that runs.
    pub(crate) fn running(&self, uid: &str) -> Option<ContainerView> {
        let containers = self.runtime.containers().into_iter();
        let mut running =
            containers.filter(|container| container.pod_uid == uid && container.running);
        running.next()
    }

    /// Seconds since the start of the test.
    pub(crate) fn seconds(&self) -> f64 {
        self.clock.now().since(START).as_secs_f64()
    }

    /// Reasons of the events of a pod, oldest first.
    pub(crate) fn reasons(&self, uid: &str) -> Vec<String> {
        let events = self.events(uid).into_iter();
        events.map(|event| event.reason).collect()
    }

    /// The events of a pod, oldest first.
    pub(crate) fn events(&self, uid: &str) -> Vec<v1::Event> {
        let events = self.current_run().events.feed().recent().into_iter();
        events
            .filter(|event| event.pod.as_ref().is_some_and(|pod| pod.uid == uid))
            .collect()
    }
}

/// What writes the records, halted while the disk hangs.
async fn while_the_disk_answers(
    writing: impl Future<Output = Infallible>,
    mut hanging: watch::Receiver<bool>,
) {
    let mut writing = pin!(writing);
    loop {
        tokio::select! {
            biased;
            _ = hanging.wait_for(|hangs| *hangs) => {}
            never = &mut writing => match never {},
        }
        if hanging.wait_for(|hangs| !hangs).await.is_err() {
            return;
        }
    }
}

/// Waits until a condition holds; fails when it does not within an hour of
/// simulated time.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(3600);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
