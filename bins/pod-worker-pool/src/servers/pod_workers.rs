//! `PodWorkers`: what sync-loop asks for.

use std::collections::HashSet;
use std::time::Duration;

use bulkhead_api::v1;
use clock::UnixNanos;
use ipc::limits::{
    MAX_CAUSE_BYTES, MAX_CONTAINER_ID_BYTES, MAX_CONTAINER_NAME_BYTES, MAX_PODS,
    MAX_PROBE_TEXT_BYTES, truncate,
};
use pod::identity::check_uid;
use pod::{PodDocument, PodIdentity, PodSource};
use tonic::{Request, Response, Status};

use super::{Shared, status};
use crate::garbage::Order;
use crate::pool::PoolError;
use crate::readiness;
use crate::worker::{DesiredPod, Kill, Refusal, Subject, Update, UpdateKind};

/// Verdicts of one pod: three for each of more containers than any pod has.
const MAX_VERDICTS: usize = 1000;
/// Longest reason and message of an eviction.
const MAX_REASON_BYTES: usize = 64;
const MAX_MESSAGE_BYTES: usize = 1024;
/// How long the runtime may take to say what it has, within the caller's 30 s.
const RELIST_DEADLINE: Duration = Duration::from_secs(20);
/// How long it may take to say who it is, within the caller's 5 s.
const STATUS_DEADLINE: Duration = Duration::from_secs(3);

pub(super) struct Service(pub(super) Shared);

#[tonic::async_trait]
impl v1::pod_workers_server::PodWorkers for Service {
    async fn update_pod(
        &self,
        request: Request<v1::UpdatePodRequest>,
    ) -> Result<Response<v1::UpdatePodResponse>, Status> {
        let mut request = request.into_inner();
        let verdicts = checked_verdicts(&request)?;
        let mut cause = std::mem::take(&mut request.cause);
        truncate(&mut cause, MAX_CAUSE_BYTES);
        let update = update_of(request)?;
        tracing::debug!(pod = %update.subject.identity(), kind = ?update.kind, cause, "update");
        let phase = match self.0.pool.update(update, verdicts).await {
            Ok(phase) => phase,
            // Nothing is left to do for it: that is no error of the caller's.
            Err(PoolError::Refused(Refusal::Finished)) => v1::WorkerPhase::Finished,
            Err(PoolError::Refused(Refusal::AlreadyTerminated)) => v1::WorkerPhase::Terminated,
            Err(error) => return Err(status::of_pool(error)),
        };
        Ok(Response::new(v1::UpdatePodResponse {
            boot_id: self.0.boot_id.clone(),
            phase: phase.into(),
        }))
    }

    async fn sync_known_pods(
        &self,
        request: Request<v1::SyncKnownPodsRequest>,
    ) -> Result<Response<v1::SyncKnownPodsResponse>, Status> {
        let request = request.into_inner();
        let desired = checked_uids(request.desired_pod_uids)?;
        let delivered = request.delivered_sources.iter();
        let delivered = delivered
            .filter_map(|name| PodSource::parse(name))
            .collect();
        // The runtime first: a pod that is started in between has a worker then,
        // and nobody takes it for one that nothing wants.
        let listed = tokio::time::timeout(RELIST_DEADLINE, self.0.relister.all()).await;
        let (runtime, runtime_error) = match listed {
            Ok(Ok(relist)) => (Some(relist), String::new()),
            Ok(Err(error)) => (None, telemetry::chain(&error)),
            Err(_) => (None, "the runtime does not answer".to_owned()),
        };
        let workers = self
            .0
            .pool
            .sync_known(desired, delivered, runtime.clone())
            .await
            .map_err(status::of_pool)?;
        let runtime_pods = runtime
            .iter()
            .flat_map(|relist| relist.pods.values().map(Into::into))
            .collect();
        Ok(Response::new(v1::SyncKnownPodsResponse {
            boot_id: self.0.boot_id.clone(),
            workers,
            runtime_pods,
            runtime_error,
        }))
    }

    async fn clean_up_containers(
        &self,
        request: Request<v1::CleanUpContainersRequest>,
    ) -> Result<Response<v1::CleanUpContainersResponse>, Status> {
        let request = request.into_inner();
        check_uid(&request.pod_uid).map_err(|error| status::of_identity(&error))?;
        self.0.garbage.order(Order::Containers {
            pod_uid: request.pod_uid,
        });
        Ok(Response::new(v1::CleanUpContainersResponse {
            boot_id: self.0.boot_id.clone(),
        }))
    }

    async fn collect_garbage(
        &self,
        request: Request<v1::CollectGarbageRequest>,
    ) -> Result<Response<v1::CollectGarbageResponse>, Status> {
        let request = request.into_inner();
        self.0.garbage.order(Order::Everything {
            desired: checked_uids(request.desired_pod_uids)?,
            sources_ready: request.sources_ready,
        });
        Ok(Response::new(v1::CollectGarbageResponse {
            boot_id: self.0.boot_id.clone(),
        }))
    }

    async fn get_node_capacity(
        &self,
        _request: Request<v1::GetNodeCapacityRequest>,
    ) -> Result<Response<v1::NodeCapacity>, Status> {
        let capacity = self
            .0
            .host
            .capacity()
            .await
            .map_err(|error| Status::internal(telemetry::chain(&error)))?;
        let (name, version, runtime_error) = self.runtime_status().await;
        Ok(Response::new(v1::NodeCapacity {
            boot_id: self.0.boot_id.clone(),
            cpu_millis: capacity.cpu_millis,
            memory_bytes: capacity.memory_bytes,
            ephemeral_storage_bytes: capacity.ephemeral_storage_bytes,
            runtime_error,
            runtime_name: name,
            runtime_version: version,
        }))
    }
}

impl Service {
    /// Name and version of the runtime, and why it is not ready.
    async fn runtime_status(&self) -> (String, String, String) {
        let asked = tokio::time::timeout(STATUS_DEADLINE, async {
            futures_util::try_join!(self.0.runtime.version(), self.0.runtime.status(false))
        });
        match asked.await {
            Ok(Ok((version, status))) => (
                version.runtime_name,
                version.runtime_version,
                readiness::runtime(&status).err().unwrap_or_default(),
            ),
            Ok(Err(error)) => (String::new(), String::new(), telemetry::chain(&error)),
            Err(_) => {
                let error = "the runtime does not answer".to_owned();
                (String::new(), String::new(), error)
            }
        }
    }
}

fn update_of(request: v1::UpdatePodRequest) -> Result<Update, Status> {
    let kind = match request.r#type() {
        v1::UpdateType::Create => UpdateKind::Create,
        v1::UpdateType::Update => UpdateKind::Update,
        v1::UpdateType::Sync => UpdateKind::Sync,
        v1::UpdateType::Kill => UpdateKind::Kill,
        v1::UpdateType::Unspecified => {
            return Err(Status::invalid_argument("the kind of update is missing"));
        }
    };
    let subject = match (request.pod, request.runtime_pod) {
        // As in the kubelet: the desired pod says more than the runtime's.
        (Some(pod), _) => {
            let document = PodDocument::from_message(pod);
            let pod = document.and_then(DesiredPod::new);
            let pod = pod.map_err(|error| status::of_wire(&error))?;
            if kind != UpdateKind::Kill {
                check_support(&pod)?;
            }
            Subject::Desired(pod)
        }
        (None, Some(reference)) => {
            let identity = PodIdentity::try_from(reference);
            Subject::RuntimeOnly(identity.map_err(|error| status::of_identity(&error))?)
        }
        (None, None) => return Err(Status::invalid_argument("the pod is missing")),
    };
    let kill = match kind {
        UpdateKind::Kill => request.kill.map(kill_of).transpose()?,
        _ => None,
    };
    Ok(Update {
        kind,
        subject,
        kill,
    })
}

/// Refuses what Bulkhead does not do, whoever asks: config-sourcer refuses it
/// first, and this process does not depend on that. It is what keeps a broken
/// sync-loop from getting a privileged container by asking for one.
fn check_support(pod: &DesiredPod) -> Result<(), Status> {
    let pod = pod.decode().map_err(|error| status::of_wire(&error))?;
    match pod_validation::unsupported_fields(&pod).first() {
        None => Ok(()),
        Some(error) => Err(Status::invalid_argument(error.to_string())),
    }
}

fn kill_of(options: v1::KillOptions) -> Result<Kill, Status> {
    if options.reason.len() > MAX_REASON_BYTES || options.message.len() > MAX_MESSAGE_BYTES {
        return Err(Status::invalid_argument(
            "the reason of the kill is too long",
        ));
    }
    let grace = options.grace_period_seconds;
    let requested_at = options.requested_at_unix_nanos;
    Ok(Kill {
        grace: grace.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
        requested_at: (requested_at > 0).then_some(UnixNanos(requested_at)),
        eviction: options.evict.then_some((options.reason, options.message)),
    })
}

fn checked_verdicts(request: &v1::UpdatePodRequest) -> Result<Vec<v1::ProbeVerdict>, Status> {
    let verdicts = &request.verdicts;
    let too_long = |verdict: &v1::ProbeVerdict| {
        verdict.container_id.len() > MAX_CONTAINER_ID_BYTES
            || verdict.container_name.len() > MAX_CONTAINER_NAME_BYTES
            || verdict.message.len() > MAX_PROBE_TEXT_BYTES
    };
    if verdicts.len() > MAX_VERDICTS || verdicts.iter().any(too_long) {
        return Err(Status::invalid_argument(
            "the verdicts are too many or too long",
        ));
    }
    Ok(verdicts.clone())
}

fn checked_uids(uids: Vec<String>) -> Result<HashSet<String>, Status> {
    if uids.len() > MAX_PODS {
        return Err(Status::invalid_argument(format!(
            "{} pods are more than {MAX_PODS}",
            uids.len()
        )));
    }
    for uid in &uids {
        check_uid(uid).map_err(|error| status::of_identity(&error))?;
    }
    Ok(uids.into_iter().collect())
}
