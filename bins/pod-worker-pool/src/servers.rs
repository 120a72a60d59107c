//! What this process serves, one service a file. Callers are checked by their uid
//! before any of this runs; what they send is checked here all the same.

mod arrivals;
mod container_logs;
mod node_policy;
mod observations;
mod pod_workers;
mod probe_targets;
mod runtime_pods;
mod status;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bulkhead_api::v1::container_logs_server::ContainerLogsServer;
use bulkhead_api::v1::node_policy_server::NodePolicyServer;
use bulkhead_api::v1::observations_server::ObservationsServer;
use bulkhead_api::v1::pod_workers_server::PodWorkersServer;
use bulkhead_api::v1::probe_targets_server::ProbeTargetsServer;
use bulkhead_api::v1::runtime_pods_server::RuntimePodsServer;
use cri::ContainerRuntime;
use ipc::limits::{MAX_LIST_BYTES, MAX_RELIST_BYTES};
use node_host::NodeHost;
use tonic::service::Routes;

use crate::events::Events;
use crate::garbage::GarbageCollector;
use crate::hints::Hints;
use crate::pod_source::PodsOfSources;
use crate::policy::NodePolicy;
use crate::pool::PoolHandle;
use crate::relist::Relister;

/// Largest request that is only a question.
const MAX_QUESTION_BYTES: usize = 4096;

/// What all services work with. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Names this life of the process.
    pub boot_id: String,
    /// The workers.
    pub pool: PoolHandle,
    /// The container runtime.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// Files and logs.
    pub host: Arc<dyn NodeHost>,
    /// Lists the runtime.
    pub relister: Relister,
    /// Whether the runtime has been listed since the start.
    pub listed: Arc<AtomicBool>,
    /// Doorbells from the runtime.
    pub hints: Hints,
    /// Events of the workers.
    pub events: Events,
    /// Collects garbage.
    pub garbage: GarbageCollector,
    /// What pods may be on this node.
    pub policy: NodePolicy,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// All services. Pods come over `pods`.
#[must_use]
pub(crate) fn routes(shared: Shared, pods: PodsOfSources) -> Routes {
    let pod_workers = PodWorkersServer::new(pod_workers::Service::new(shared.clone(), pods))
        .max_decoding_message_size(MAX_LIST_BYTES);
    let runtime_pods = RuntimePodsServer::new(runtime_pods::Service(shared.clone()))
        .max_decoding_message_size(MAX_QUESTION_BYTES)
        .max_encoding_message_size(MAX_RELIST_BYTES);
    let probe_targets = ProbeTargetsServer::new(probe_targets::Service::new(shared.clone()))
        .max_decoding_message_size(MAX_QUESTION_BYTES);
    let observations = ObservationsServer::new(observations::Service(shared.clone()))
        .max_decoding_message_size(MAX_QUESTION_BYTES);
    let container_logs = ContainerLogsServer::new(container_logs::Service::new(shared.clone()))
        .max_decoding_message_size(MAX_QUESTION_BYTES);
    let node_policy = NodePolicyServer::new(node_policy::Service(shared))
        .max_decoding_message_size(MAX_QUESTION_BYTES);
    Routes::new(pod_workers)
        .add_service(runtime_pods)
        .add_service(probe_targets)
        .add_service(observations)
        .add_service(container_logs)
        .add_service(node_policy)
}
