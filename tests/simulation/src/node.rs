//! The node: its processes, its disk, its runtime.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::statuses_client::StatusesClient;
use clock::{UnixNanos, WallClock};
use ipc::{MemoryHub, Network};
use node_config::{DirectoryLayout, NodeConfig};
use pod::{Pod, PodDocument};
use process::{Context, Lifecycle};
use simulated_runtime::SimulatedRuntime;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Response, Status};
use topology::{Identities, Process};

use crate::host::MemoryHost;
use crate::network::HealthyNetwork;

/// When simulated time begins: 2026-01-01.
const BEGIN: UnixNanos = UnixNanos(1_767_225_600_000_000_000);

/// The longest that an answer may take when nothing is killed.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// A node whose processes can be killed. Dropping it ends everything.
#[derive(Debug)]
pub struct SimulatedNode {
    /// The container runtime.
    pub runtime: SimulatedRuntime,
    /// Wall time.
    pub clock: WallClock,
    /// Cgroups and directories.
    pub host: Arc<MemoryHost>,
    hub: MemoryHub,
    identities: Arc<Identities>,
    config: Arc<NodeConfig>,
    running: BTreeMap<Process, JoinHandle<()>>,
    lives: u64,
    seed: u64,
    disk: TempDir,
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
        let disk = tempfile::tempdir().unwrap();
        let below = |name: &str| disk.path().join(name);
        let directories = DirectoryLayout {
            run_dir: below("run"),
            state_dir: below("state"),
            root_dir: below("kubelet"),
            log_dir: below("log"),
            bin_dir: below("bin"),
        };
        for process in Process::ALL {
            std::fs::create_dir_all(directories.state(process)).unwrap();
        }
        std::fs::create_dir_all(below("manifests")).unwrap();
        let mut config = NodeConfig::with_defaults("node", directories);
        config.static_pod_path = Some(below("manifests"));
        config.node_ip = Some(std::net::Ipv4Addr::new(10, 0, 0, 1).into());
        config.resolv_conf = None;
        let clock = WallClock::simulated(BEGIN);
        let has_events = seed.is_multiple_of(2);
        let runtime = SimulatedRuntime::new(seed, clock.clone(), has_events);
        SimulatedNode {
            runtime,
            clock,
            host: Arc::new(MemoryHost::default()),
            hub: MemoryHub::new(),
            identities: Arc::new(Identities::from_base(64_000).unwrap()),
            config: Arc::new(config),
            running: BTreeMap::new(),
            lives: 0,
            seed,
            disk,
        }
    }

    /// The directory of static pods.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.disk.path().join("manifests")
    }

    /// Puts a manifest into the directory, whole or not at all.
    ///
    /// # Panics
    /// When the disk refuses.
    #[expect(
        clippy::unwrap_used,
        reason = "a test cannot go on without its manifest"
    )]
    pub fn put_manifest(&self, name: &str, text: &str) {
        let temporary = self.disk.path().join("manifest.new");
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(temporary, self.manifests().join(name)).unwrap();
    }

    /// Removes a manifest; absent is fine.
    pub fn remove_manifest(&self, name: &str) {
        drop(std::fs::remove_file(
            Path::new(&self.manifests()).join(name),
        ));
    }

    /// The processes that a supervisor would start.
    pub fn processes() -> impl Iterator<Item = Process> {
        Process::ALL
            .into_iter()
            .filter(|process| *process != Process::Supervisor)
    }

    /// Starts all processes.
    pub fn start_all(&mut self) {
        for process in Self::processes() {
            self.start(process);
        }
    }

    /// Starts a process, unless it runs.
    pub fn start(&mut self, process: Process) {
        if self
            .running
            .get(&process)
            .is_some_and(|handle| !handle.is_finished())
        {
            return;
        }
        self.lives += 1;
        let context = Context {
            process,
            config: Arc::clone(&self.config),
            clock: self.clock.clone(),
            network: Network::memory(self.hub.clone(), process, &self.identities),
            listener: self.hub.listener(process),
            identities: Arc::clone(&self.identities),
            boot_id: format!("life-{}", self.lives),
            seed: self.seed.wrapping_mul(1_000_003) ^ self.lives,
            lifecycle: Lifecycle::unsupervised(CancellationToken::new()),
        };
        let handle = match process {
            Process::Supervisor => return,
            Process::PodWorkerPool => {
                let runtime = Arc::new(self.runtime.clone());
                run(
                    process,
                    pod_worker_pool::run(context, runtime, self.host.clone()),
                )
            }
            Process::ConfigSourcer => run(process, config_sourcer::run(context)),
            Process::Pleg => run(process, pleg::run(context)),
            Process::Prober => run(process, prober::run(context, Arc::new(HealthyNetwork))),
            Process::StatusSyncer => run(process, status_syncer::run(context)),
            Process::SyncLoop => run(process, sync_loop::run(context)),
        };
        self.running.insert(process, handle);
    }

    /// Kills a process: it never gets to say a word.
    pub async fn kill(&mut self, process: Process) {
        if let Some(handle) = self.running.remove(&process) {
            handle.abort();
            // The error says that it was aborted.
            drop(handle.await);
        }
        self.hub.kill(process);
    }

    /// All pods with their statuses, as the command line is told.
    ///
    /// # Errors
    /// When status-syncer does not answer, or not with pods.
    pub async fn served_pods(&self) -> Result<Vec<Pod>, String> {
        let network = Network::memory_as_operator(self.hub.clone());
        let channel = network.channel(Process::StatusSyncer);
        let listed = ipc::call(ANSWER_TIME, || list(StatusesClient::new(channel.clone())));
        let listed = listed.await.map_err(|error| error.to_string())?;
        let decoded = listed.into_iter().map(|pod| {
            let document = PodDocument::from_message(pod).map_err(|error| error.to_string())?;
            document.decode().map_err(|error| error.to_string())
        });
        decoded.collect()
    }

    /// A process that ended by itself, which none may.
    #[must_use]
    pub fn ended_by_itself(&self) -> Option<Process> {
        self.running
            .iter()
            .find(|(_, handle)| handle.is_finished())
            .map(|(process, _)| *process)
    }

    /// Simulated time since the beginning.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.clock.now().since(BEGIN)
    }
}

impl Drop for SimulatedNode {
    fn drop(&mut self) {
        for handle in self.running.values() {
            handle.abort();
        }
    }
}

/// The pods of one list that came whole.
async fn list(mut client: StatusesClient<Channel>) -> Result<Response<Vec<v1::Pod>>, Status> {
    use v1::list_pod_statuses_response::Message;
    let request = v1::ListPodStatusesRequest { watch: false };
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

fn run<E: std::error::Error + Send + 'static>(
    process: Process,
    future: impl Future<Output = Result<(), E>> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(error) = future.await {
            panic!("{process} ended: {error}: {:?}", error.source());
        }
    })
}
