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
use pod::{PodIdentity, PodSource};
use pod_lifecycle::termination::MAX_MESSAGE_BYTES;
use pod_lifecycle::{DesiredPod, KillRequest, Refusal, Subject, Update, UpdateKind};
use tonic::{Request, Response, Status};

use super::arrivals::Arrivals;
use super::node_facts;
use super::shared::Shared;
use super::status;
use crate::garbage::Order;
use crate::pod_source::PodsOfSources;
use crate::pool::{PoolError, UpdateExtras};

/// Verdicts of one pod: three for each of more containers than any pod has.
const MAX_VERDICTS: usize = 1000;
/// How long the runtime may take to say what it has, within the caller's 30 s.
const RELIST_DEADLINE: Duration = Duration::from_secs(20);
pub(super) struct Service {
    shared: Shared,
    pods: PodsOfSources,
    arrivals: Arrivals,
}

impl Service {
    pub(super) fn new(shared: Shared, pods: PodsOfSources) -> Service {
        Service {
            shared,
            pods,
            arrivals: Arrivals::default(),
        }
    }

    /// The pod of an update; see [`Origin`].
    async fn subject(
        &self,
        kind: UpdateKind,
        pod: PodIdentity,
        hash: &str,
    ) -> Result<Subject, Status> {
        let held = self.shared.pool.desired(pod.uid()).await;
        let held = held.map_err(status::of_pool)?;
        match origin(kind, &pod, hash, held)? {
            Origin::Worker(pod) => Ok(Subject::Desired(*pod)),
            Origin::ConfigSourcer => match self.pods.get(&pod, hash).await {
                Ok(pod) => Ok(Subject::Desired(pod)),
                Err(error) => Err(status::of_pod_source(&error)),
            },
            Origin::Runtime => Ok(Subject::RuntimeOnly(pod)),
        }
    }
}

#[tonic::async_trait]
impl v1::pod_workers_server::PodWorkers for Service {
    async fn update_pod(
        &self,
        request: Request<v1::UpdatePodRequest>,
    ) -> Result<Response<v1::UpdatePodResponse>, Status> {
        let mut request = request.into_inner();
        let extras = UpdateExtras {
            verdicts: checked_verdicts(&request)?,
            pending_resize: request.pending_resize.take().map(pending_resize_of),
        };
        let mut cause = std::mem::take(&mut request.cause);
        truncate(&mut cause, MAX_CAUSE_BYTES);
        let kind = kind_of(&request)?;
        let kill = match kind {
            UpdateKind::Kill => request.kill.map(kill_of),
            UpdateKind::Create | UpdateKind::Update | UpdateKind::Sync => None,
        };
        let identity = identity_of(request.pod)?;
        let arrival = self.arrivals.arrive(identity.uid());
        let subject = self.subject(kind, identity, &request.hash).await?;
        if !arrival.is_newest() {
            return Err(Status::aborted("a newer update of this pod came meanwhile"));
        }
        let update = Update {
            kind,
            subject,
            kill,
        };
        tracing::debug!(pod = %update.subject.identity(), kind = ?update.kind, cause, "update");
        let phase = match self.shared.pool.update(update, extras).await {
            Ok(phase) => phase,
            // Nothing is left to do for it: that is no error of the caller's.
            Err(PoolError::Refused(Refusal::Finished)) => v1::WorkerPhase::Finished,
            Err(PoolError::Refused(Refusal::AlreadyTerminated)) => v1::WorkerPhase::Terminated,
            Err(error) => return Err(status::of_pool(error)),
        };
        Ok(Response::new(v1::UpdatePodResponse {
            boot_id: self.shared.boot_id.clone(),
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
        let listed = tokio::time::timeout(RELIST_DEADLINE, self.shared.relister.all()).await;
        let (runtime, runtime_error) = match listed {
            Ok(Ok(relist)) => (Some(relist), String::new()),
            Ok(Err(error)) => (None, telemetry::chain(&error)),
            Err(_) => (None, "the runtime does not answer".to_owned()),
        };
        let workers = self
            .shared
            .pool
            .sync_known(desired, delivered, runtime.clone())
            .await
            .map_err(status::of_pool)?;
        let runtime_pods = runtime
            .iter()
            .flat_map(|relist| relist.pods.values().map(Into::into))
            .collect();
        Ok(Response::new(v1::SyncKnownPodsResponse {
            boot_id: self.shared.boot_id.clone(),
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
        self.shared.garbage.order(Order::Containers {
            pod_uid: request.pod_uid,
        });
        Ok(Response::new(v1::CleanUpContainersResponse {}))
    }

    async fn collect_garbage(
        &self,
        request: Request<v1::CollectGarbageRequest>,
    ) -> Result<Response<v1::CollectGarbageResponse>, Status> {
        let request = request.into_inner();
        let desired = checked_uids(request.desired_pod_uids)?;
        if request.sources_ready {
            self.shared.pool.publisher().note_desired(&desired);
        }
        self.shared.garbage.order(Order::Everything {
            desired,
            sources_ready: request.sources_ready,
        });
        Ok(Response::new(v1::CollectGarbageResponse {}))
    }

    async fn get_node_capacity(
        &self,
        _request: Request<v1::GetNodeCapacityRequest>,
    ) -> Result<Response<v1::NodeCapacity>, Status> {
        let capacity = node_facts::capacity(&self.shared).await?;
        Ok(Response::new(capacity))
    }
}

/// Where the pod of an update comes from.
#[derive(Debug, PartialEq, Eq)]
enum Origin {
    /// It is the version that its worker has, or a KILL of whichever version that is.
    Worker(Box<DesiredPod>),
    /// config-sourcer has it: a version that is new here.
    ConfigSourcer,
    /// Nothing is known of it but what the runtime has, which is enough for a KILL.
    Runtime,
}

/// A KILL never waits for config-sourcer: what the worker has, or else what is noted
/// on the containers, says how long they may take. It goes by the UID alone: a pod whose
/// manifest got another name must not run on for that. An UPDATE takes the version that is
/// here already from config-sourcer all the same: its source may say by now that it has ended.
fn origin(
    kind: UpdateKind,
    pod: &PodIdentity,
    hash: &str,
    held: Option<DesiredPod>,
) -> Result<Origin, Status> {
    match (kind, held) {
        (UpdateKind::Kill, Some(pod)) => Ok(Origin::Worker(Box::new(pod))),
        (UpdateKind::Kill, None) => Ok(Origin::Runtime),
        _ if hash.is_empty() => Err(Status::failed_precondition(
            "a pod that only the runtime has may only be killed",
        )),
        (UpdateKind::Create | UpdateKind::Sync, Some(held))
            if held.document().hash() == hash && held.identity() == pod =>
        {
            Ok(Origin::Worker(Box::new(held)))
        }
        _ => Ok(Origin::ConfigSourcer),
    }
}

fn kind_of(request: &v1::UpdatePodRequest) -> Result<UpdateKind, Status> {
    match request.r#type() {
        v1::UpdateType::Create => Ok(UpdateKind::Create),
        v1::UpdateType::Update => Ok(UpdateKind::Update),
        v1::UpdateType::Sync => Ok(UpdateKind::Sync),
        v1::UpdateType::Kill => Ok(UpdateKind::Kill),
        v1::UpdateType::Unspecified => {
            Err(Status::invalid_argument("the kind of update is missing"))
        }
    }
}

fn identity_of(reference: Option<v1::PodReference>) -> Result<PodIdentity, Status> {
    let reference = reference.ok_or_else(|| Status::invalid_argument("the pod is missing"))?;
    PodIdentity::try_from(reference).map_err(|error| status::of_identity(&error))
}

/// The pod gets its own grace. Nothing here ends it for good: that its source wants it
/// again starts it again.
fn kill_of(options: v1::KillOptions) -> KillRequest {
    let requested_at = options.requested_at_unix_nanos;
    KillRequest {
        requested_at: (requested_at > 0).then_some(UnixNanos(requested_at)),
        ..KillRequest::default()
    }
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

fn pending_resize_of(mut pending: v1::PendingResize) -> v1::PendingResize {
    truncate(&mut pending.message, MAX_MESSAGE_BYTES);
    pending
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

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::testing::{desired, manifest};

    #[test]
    fn a_version_that_is_new_here_is_taken_from_config_sourcer_and_that_of_an_update() {
        let held = desired(manifest("a", "u1"));
        let hash = held.document().hash().to_owned();
        let worker = || Ok(Origin::Worker(Box::new(held.clone())));
        let origin = |kind, hash: &str, known: Option<DesiredPod>| {
            origin(kind, held.identity(), hash, known)
        };
        for kind in [UpdateKind::Create, UpdateKind::Update, UpdateKind::Sync] {
            let known = match kind {
                UpdateKind::Update => Ok(Origin::ConfigSourcer),
                _ => worker(),
            };
            for (hash, is_held, expected) in [
                (hash.as_str(), true, known),
                (hash.as_str(), false, Ok(Origin::ConfigSourcer)),
                ("another", true, Ok(Origin::ConfigSourcer)),
                ("another", false, Ok(Origin::ConfigSourcer)),
                ("", true, Err(Code::FailedPrecondition)),
                ("", false, Err(Code::FailedPrecondition)),
            ] {
                let found = origin(kind, hash, is_held.then(|| held.clone()));
                let found = found.map_err(|status| status.code());
                assert_eq!(found, expected, "{kind:?} {hash} {is_held}");
            }
        }
        for hash in [hash.as_str(), "another", ""] {
            let kill = |held| origin(UpdateKind::Kill, hash, held).map_err(|status| status.code());
            assert_eq!(kill(Some(held.clone())), worker());
            assert_eq!(kill(None), Ok(Origin::Runtime));
        }
    }

    #[test]
    fn a_pod_that_was_renamed_is_stopped_all_the_same() {
        let held = desired(manifest("a", "u1"));
        let renamed = desired(manifest("b", "u1"));
        let (pod, hash) = (renamed.identity(), renamed.document().hash());
        let found = |kind, hash| origin(kind, pod, hash, Some(held.clone())).unwrap();
        for hash in [hash, held.document().hash(), ""] {
            let found = found(UpdateKind::Kill, hash);
            assert_eq!(found, Origin::Worker(Box::new(held.clone())), "{hash}");
        }
        // Its new version is another pod, which the worker makes of it.
        for hash in [hash, held.document().hash()] {
            assert_eq!(found(UpdateKind::Update, hash), Origin::ConfigSourcer);
        }
    }
}
