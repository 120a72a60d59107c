//! Makes the processes: each is its real code with the node's seams.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use clock::WallClock;
use memory_network::MemoryHub;
use node_config::NodeConfig;
use process::{Context, Lifecycle};
use simulated_node::{MemoryHost, SimulatedLogind};
use simulated_runtime::SimulatedRuntime;
use topology::{Identities, Process};

use crate::node_network::NodeNetwork;
use crate::targets::Targets;

/// The processes of a simulated node but the supervisor, which is simulated too: those of
/// every node, and node-api.
pub(crate) fn processes() -> impl Iterator<Item = Process> {
    let on_every_node = Process::ON_EVERY_NODE.into_iter();
    let all = on_every_node.chain([Process::NodeApi]);
    all.filter(|process| *process != Process::Supervisor)
}

/// A process's main future, and why it ended if that was an error.
pub(crate) type Main = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// What all processes of a node share.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) runtime: SimulatedRuntime,
    /// Wall time, which jumps.
    pub(crate) clock: WallClock,
    pub(crate) targets: Targets,
    pub(crate) host: Arc<MemoryHost>,
    pub(crate) logind: SimulatedLogind,
    pub(crate) hub: MemoryHub,
    pub(crate) identities: Arc<Identities>,
    pub(crate) config: Arc<NodeConfig>,
    pub(crate) seed: u64,
    /// Processes that were made so far.
    pub(crate) runs: u64,
}

impl Launcher {
    /// A new run of a process; `None` for the supervisor, and for credential-provider, which
    /// starts Unix processes: the simulated node has no programs for it.
    pub(crate) fn make(&mut self, process: Process, lifecycle: Lifecycle) -> Option<Main> {
        self.runs += 1;
        let context = Context {
            process,
            config: Arc::clone(&self.config),
            clock: self.clock.clone(),
            network: self.hub.network(process, &self.identities),
            listener: self.hub.listener(process),
            identities: Arc::clone(&self.identities),
            boot_id: format!("run-{}", self.runs),
            seed: self.seed.wrapping_mul(1_000_003) ^ self.runs,
            lifecycle,
        };
        Some(match process {
            Process::Supervisor | Process::CredentialProvider | Process::ApiGateway => return None,
            Process::PodWorkerPool => {
                let opened = pod_worker_pool::Opened {
                    runtime: self.runtime.clone().into(),
                    host: self.host.clone(),
                    login: Arc::new(self.logind.clone()),
                };
                main(pod_worker_pool::serve(context, opened))
            }
            Process::ConfigSourcer => main(config_sourcer::serve(context)),
            Process::Pleg => main(pleg::serve(context)),
            Process::Prober => {
                let network = Arc::new(self.targets.clone());
                main(async {
                    let opened = prober::open(&context.config);
                    prober::serve(context, opened, network).await
                })
            }
            Process::StatusSyncer => main(async {
                let opened = status_syncer::open(&context.config);
                status_syncer::serve(context, opened).await
            }),
            Process::SyncLoop => main(async {
                let opened = sync_loop::open(&context.config);
                sync_loop::serve(context, opened).await
            }),
            Process::NodeApi => {
                let network = Arc::new(NodeNetwork {
                    hub: self.hub.clone(),
                    runtime: self.runtime.clone(),
                });
                main(async {
                    let clock = context.clock.clone();
                    let opened = node_api::open_on(&context.config, clock, network)?;
                    node_api::serve(context, opened).await
                })
            }
        })
    }
}

fn main<E: std::error::Error + Send + 'static>(
    future: impl Future<Output = Result<(), E>> + Send + 'static,
) -> Main {
    Box::pin(async move {
        let result = future.await;
        result.map_err(|error| format!("{error}: {:?}", error.source()))
    })
}
