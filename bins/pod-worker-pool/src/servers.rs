//! What this process serves, one service a file. Callers are checked by their uid
//! before any of this runs; what they send is checked here all the same.

mod arrivals;
mod container_logs;
mod left_commands;
mod node_facts;
mod node_images;
mod node_policy;
mod observations;
mod pod_workers;
mod probe_calls;
mod probe_targets;
mod runtime_pods;
mod sessions;
mod settling;
mod shared;
mod status;
mod usage;

use bulkhead_api::v1::container_logs_server::ContainerLogsServer;
use bulkhead_api::v1::node_policy_server::NodePolicyServer;
use bulkhead_api::v1::observations_server::ObservationsServer;
use bulkhead_api::v1::pod_workers_server::PodWorkersServer;
use bulkhead_api::v1::probe_targets_server::ProbeTargetsServer;
use bulkhead_api::v1::runtime_pods_server::RuntimePodsServer;
use bulkhead_api::v1::sessions_server::SessionsServer;
use bulkhead_api::v1::usage_server::UsageServer;
use ipc::limits::{MAX_COMMAND_OUTPUT_BYTES, MAX_LIST_BYTES, MAX_RELIST_BYTES, MAX_USAGE_BYTES};
use tonic::service::Routes;

use crate::pod_source::PodsOfSources;

pub(crate) use node_images::NodeImages;
pub(crate) use shared::Shared;

/// Largest request that is only a question.
const MAX_QUESTION_BYTES: usize = 4096;

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
    let node_policy = NodePolicyServer::new(node_policy::Service(shared.clone()))
        .max_decoding_message_size(MAX_QUESTION_BYTES);
    let sessions = SessionsServer::new(sessions::Service::new(shared.clone()))
        .max_decoding_message_size(MAX_LIST_BYTES)
        .max_encoding_message_size(MAX_COMMAND_OUTPUT_BYTES);
    let usage = UsageServer::new(usage::Service::new(&shared))
        .max_decoding_message_size(MAX_QUESTION_BYTES)
        .max_encoding_message_size(MAX_USAGE_BYTES);
    Routes::new(pod_workers)
        .add_service(runtime_pods)
        .add_service(probe_targets)
        .add_service(observations)
        .add_service(container_logs)
        .add_service(node_policy)
        .add_service(sessions)
        .add_service(usage)
}
