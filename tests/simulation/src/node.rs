//! The node: its processes, its disk, its runtime.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::statuses_client::StatusesClient;
use clock::{UnixNanos, WallClock};
use ipc::Channel;
use memory_network::MemoryHub;
use node_config::{DirectoryLayout, NodeConfig, ShutdownGroup};
use pod::{Pod, PodDocument};
use simulated_node::{MemoryHost, SimulatedLogind};
use simulated_runtime::{Entry, Happening, SimulatedRuntime};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Response, Status};
use topology::{Identities, Process};

use crate::disk::Disk;
use crate::disk_work::{self, Victim};
use crate::evictions::Shortage;
use crate::launcher::{self, Launcher};
use crate::node_network;
use crate::observer::Observer;
use crate::sessions::{self, Facts};
use crate::streaming;
use crate::supervision::Supervision;
use crate::targets::Targets;
use crate::visitor::Visitor;

const MANIFESTS: &str = "manifests";

const OBJECTS: &str = "objects";

/// Where the manifests are while they are away.
const MANIFESTS_AWAY: &str = "manifests.away";

/// Where pod-worker-pool writes down which boot of the node it has seen.
const LAST_BOOT: &str = "boot";

/// Pods that a shutdown ends together: all, and after them those that are critical.
pub(crate) const SHUTDOWN: [ShutdownGroup; 2] = [
    ShutdownGroup {
        priority: 0,
        grace: Duration::from_secs(6),
    },
    ShutdownGroup {
        priority: 2_000_000_000,
        grace: Duration::from_secs(4),
    },
];

/// When simulated time begins: 2026-01-01.
const BEGIN: UnixNanos = UnixNanos(1_767_225_600_000_000_000);

/// The longest that an answer may take when nothing is killed any more: an ordered
/// stop of all processes, each within 6 s, then the longest back-off.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// How often an answer is looked for.
const STEP_OF_WAITING: Duration = Duration::from_millis(1);

/// The longest wait of a step that failed: 10 s and half of it, as a kubelet's.
const TRIED_AGAIN_WITHIN: Duration = Duration::from_secs(15);

/// A node whose processes can be killed. Dropping it ends everything.
#[derive(Debug)]
pub struct SimulatedNode {
    /// The container runtime.
    pub runtime: SimulatedRuntime,
    /// Time as it really passes. The processes and the runtime see a wall clock, which jumps.
    pub clock: WallClock,
    /// Who is told of a shutdown of the node, and waits.
    pub(crate) logind: SimulatedLogind,
    /// Cgroups and directories.
    pub host: Arc<MemoryHost>,
    /// What the containers answer to probes.
    pub targets: Targets,
    hub: MemoryHub,
    pub(crate) observer: Observer,
    pub(crate) supervision: Supervision,
    /// Who is to be killed for a mishap of its work on the disk.
    pub(crate) victim: Victim,
    /// Who asks node-api for things.
    pub(crate) visitor: Visitor,
    _streaming: AbortOnDropHandle<()>,
    _disk: Disk,
}

impl SimulatedNode {
    /// A node on which nothing runs yet. To be called inside a tokio runtime of
    /// one thread whose clock is paused.
    ///
    /// # Panics
    /// When no temporary directory can be made.
    #[must_use]
    #[expect(
        clippy::unwrap_used,
        reason = "a test cannot go on without its directory"
    )]
    pub fn new(seed: u64) -> SimulatedNode {
        let disk = Disk::new().unwrap();
        let directories = DirectoryLayout {
            // In memory alone, see `host`.
            root_dir: simulated_node::ROOT_DIR.into(),
            ..DirectoryLayout::below("")
        };
        for process in launcher::processes() {
            std::fs::create_dir_all(directories.state(process)).unwrap();
        }
        std::fs::create_dir_all(MANIFESTS).unwrap();
        std::fs::create_dir_all(OBJECTS).unwrap();
        let mut config = NodeConfig::with_defaults("node", directories);
        config.static_pod_path = Some(MANIFESTS.into());
        config.local_objects_path = Some(OBJECTS.into());
        config.policy_path = "policy.toml".into();
        config.pull_credentials_path = "pull-credentials.json".into();
        config.node_ip = Some(std::net::Ipv4Addr::new(10, 0, 0, 1).into());
        config.resolv_conf = None;
        config.eviction = Shortage::settings();
        config.shutdown = SHUTDOWN.into();
        config.node_server = Some(node_network::settings());
        let wall_clock = WallClock::simulated(BEGIN);
        let clock = wall_clock.without_jumps();
        let has_events = seed.is_multiple_of(2);
        let runtime = SimulatedRuntime::new(seed, wall_clock.clone(), has_events);
        let host = Arc::new(MemoryHost::default());
        host.watch(runtime.clone());
        let victim = disk_work::meets_mishaps(runtime.clone());
        let logind = SimulatedLogind::default();
        let hub = MemoryHub::without_http2();
        let targets = Targets::new(runtime.clone(), clock.clone());
        let operator = hub.network_of_operator();
        let observer = Observer::new(&operator, clock.clone());
        let visitor = Visitor::new(hub.clone(), clock.clone());
        let sessions_port = hub.listen_at_port(None, streaming::PORT).unwrap();
        let streaming = tokio::spawn(streaming::serve(runtime.clone(), sessions_port));
        let launcher = Launcher {
            runtime: runtime.clone(),
            targets: targets.clone(),
            clock: wall_clock,
            host: Arc::clone(&host),
            logind: logind.clone(),
            hub: hub.clone(),
            identities: Arc::new(Identities::from_base(64_000).unwrap()),
            config: Arc::new(config),
            seed,
            runs: 0,
        };
        SimulatedNode {
            runtime,
            clock,
            logind,
            host,
            targets,
            hub,
            observer,
            supervision: Supervision::new(launcher),
            victim,
            visitor,
            _streaming: AbortOnDropHandle::new(streaming),
            _disk: disk,
        }
    }

    /// The directory of static pods.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        PathBuf::from(MANIFESTS)
    }

    /// Puts a manifest into the directory, whole or not at all.
    ///
    /// # Panics
    /// When the disk refuses.
    pub fn put_manifest(&self, name: &str, text: &str) {
        self.put(&self.manifests().join(name), text);
    }

    /// Puts a local object (a ConfigMap or Secret) where config-sourcer reads it, whole or
    /// not at all.
    ///
    /// # Panics
    /// When the disk refuses.
    pub fn put_object(&self, name: &str, text: &str) {
        self.put(&Path::new(OBJECTS).join(name), text);
    }

    #[expect(
        clippy::unwrap_used,
        reason = "a test cannot go on without its manifest"
    )]
    fn put(&self, path: &Path, text: &str) {
        let temporary = Path::new("manifest.new");
        std::fs::write(temporary, text).unwrap();
        std::fs::rename(temporary, path).unwrap();
    }

    /// Removes a manifest; absent is fine.
    pub fn remove_manifest(&self, name: &str) {
        drop(std::fs::remove_file(
            Path::new(&self.manifests()).join(name),
        ));
    }

    /// Takes the directory of manifests away, as where its disk is not mounted yet, so that
    /// nothing tells which pods there are.
    ///
    /// # Panics
    /// When the disk refuses.
    #[expect(
        clippy::unwrap_used,
        reason = "a test cannot go on without its directory"
    )]
    pub(crate) fn take_manifests_away(&self) {
        std::fs::rename(MANIFESTS, MANIFESTS_AWAY).unwrap();
    }

    /// To the processes that start next this is another boot of the node.
    ///
    /// # Panics
    /// When the disk refuses.
    #[expect(
        clippy::unwrap_used,
        reason = "a test cannot go on without its directory"
    )]
    pub(crate) fn boots(&self) {
        let config = &self.supervision.launcher.config;
        let state = config.directories.state(Process::PodWorkerPool);
        std::fs::remove_file(state.join(LAST_BOOT)).unwrap();
    }

    /// Brings it back.
    ///
    /// # Panics
    /// When the disk refuses.
    #[expect(
        clippy::unwrap_used,
        reason = "a test cannot go on without its directory"
    )]
    pub(crate) fn bring_manifests_back(&self) {
        std::fs::rename(MANIFESTS_AWAY, MANIFESTS).unwrap();
    }

    /// Removes a local object; absent is fine.
    pub fn remove_object(&self, name: &str) {
        drop(std::fs::remove_file(Path::new(OBJECTS).join(name)));
    }

    /// Sets the wall clock forward, or back.
    pub(crate) fn jump_clock(&self, nanos: i64) {
        self.supervision.launcher.clock.jump(nanos);
    }

    /// Lets simulated time pass. Processes run in no other way.
    ///
    /// # Errors
    /// What a process did that none may.
    pub async fn pass(&mut self, time: Duration) -> Result<(), String> {
        self.supervision.pass(time).await;
        self.failures()
    }

    /// The same, until something holds of what has happened in the runtime, which is looked for
    /// once in each slice.
    ///
    /// # Errors
    /// What a process did that none may.
    pub(crate) async fn pass_until(
        &mut self,
        holds: impl Fn(&[Entry]) -> bool,
        slice: Duration,
        most: Duration,
    ) -> Result<(), String> {
        let runtime = self.runtime.clone();
        let supervision = &mut self.supervision;
        supervision
            .pass_until(runtime.until(holds), slice, most)
            .await;
        self.failures()
    }

    /// What processes did that none may.
    fn failures(&self) -> Result<(), String> {
        match self.supervision.failures() {
            [] => Ok(()),
            failures => Err(failures.join("\n")),
        }
    }

    /// All pods with their statuses, as the command line is told. Time passes until
    /// they are.
    ///
    /// # Errors
    /// When status-syncer does not answer, or not with pods, or a process did what
    /// none may.
    pub async fn served_pods(&mut self) -> Result<Vec<Pod>, String> {
        let network = self.hub.network_of_operator();
        let channel = network.channel(Process::StatusSyncer);
        let call = ipc::call(ANSWER_TIME, move || {
            list(StatusesClient::new(channel.clone()))
        });
        let asked = AbortOnDropHandle::new(tokio::spawn(call));
        while !asked.is_finished() {
            self.pass(STEP_OF_WAITING).await?;
        }
        let answer = asked.await.map_err(|error| error.to_string())?;
        let listed = answer.map_err(|error| error.to_string())?;
        let decoded = listed.into_iter().map(|pod| {
            let document = PodDocument::from_message(pod).map_err(|error| error.to_string())?;
            document.decode().map_err(|error| error.to_string())
        });
        decoded.collect()
    }

    /// Since when all processes ran and no step waited because a call to the runtime had
    /// failed, of a moment at which that was so.
    pub(crate) fn quiet_since(&self, moment: UnixNanos) -> Option<UnixNanos> {
        let works = self.runtime.works_since(moment)?.plus(TRIED_AGAIN_WITHIN);
        Some(self.supervision.all_run_since(moment)?.max(works))
    }

    /// What did not hold of what node-api was asked for.
    pub(crate) fn broken_sessions(&self) -> Vec<String> {
        let history = self.runtime.history();
        let ended = |id: &str| {
            let mut exits = history.iter().filter(|it| it.id == id);
            let exit = exits.find(|it| matches!(it.happening, Happening::Exited { .. }));
            exit.map(|it| it.at)
        };
        let deaths = |process| self.supervision.deaths_of(process).collect::<Vec<_>>();
        let ran = |moment| {
            let since = self.supervision.runs_since(Process::NodeApi, moment);
            since.is_some_and(|since| since < moment)
        };
        let facts = Facts {
            now: self.clock.now(),
            ran: &ran,
            deaths: &deaths(Process::NodeApi),
            pool_deaths: &deaths(Process::PodWorkerPool),
            ended: &ended,
        };
        sessions::broken(&self.visitor.records(), &facts)
    }

    /// Simulated time since the beginning.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.clock.now().since(BEGIN)
    }
}

impl Drop for SimulatedNode {
    fn drop(&mut self) {
        self.supervision.abandon();
    }
}

/// The pods of one list that came whole.
async fn list(mut client: StatusesClient<Channel>) -> Result<Response<Vec<v1::Pod>>, Status> {
    use v1::list_pod_statuses_response::Message;
    let request = v1::ListPodStatusesRequest::default();
    let mut stream = client.list_pod_statuses(request).await?.into_inner();
    let mut pods = Vec::new();
    while let Some(answer) = stream.message().await? {
        match answer.message {
            Some(Message::Entry(entry)) => pods.extend(entry.pod),
            Some(Message::SnapshotComplete(true)) => return Ok(Response::new(pods)),
            _ => {}
        }
    }
    Err(Status::data_loss("the list of pods ended early"))
}
