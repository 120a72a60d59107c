//! The pod as it is served to readers: who it is, and the computed status. Its spec they get
//! from whoever has it.

use bulkhead_api::v1::{PodObservation, WorkerPhase};
use clock::UnixNanos;
use pod::core::{Pod, PodStatus};
use pod::meta::{ObjectMeta, Time};
use pod::wire::WireError;
use pod::{PodDocument, PodExt as _, PodSource};

use crate::status::api_time;

/// What a reader is given of a pod.
pub(crate) fn document(
    pod: &Pod,
    source: PodSource,
    status: &PodStatus,
    observation: Option<&PodObservation>,
) -> Result<PodDocument, WireError> {
    let desired = &pod.metadata;
    let deletion = observation.and_then(|seen| deletion(pod, seen));
    let (at, grace) = match &desired.deletion_timestamp {
        Some(at) => (Some(at.clone()), desired.deletion_grace_period_seconds),
        None => deletion.unzip(),
    };
    let served = Pod {
        metadata: ObjectMeta {
            name: desired.name.clone(),
            namespace: desired.namespace.clone(),
            uid: desired.uid.clone(),
            labels: desired.labels.clone(),
            deletion_timestamp: at,
            deletion_grace_period_seconds: grace,
            ..ObjectMeta::default()
        },
        spec: None,
        status: Some(status.clone()),
    };
    PodDocument::encode(&served, source)
}

/// Whether the source of a pod has dropped it. A pod that ends for another reason (by itself,
/// evicted) is not being deleted.
pub(crate) fn is_deleted(observation: &PodObservation) -> bool {
    let stops = matches!(
        observation.phase(),
        WorkerPhase::Terminating | WorkerPhase::Terminated | WorkerPhase::Finished
    );
    stops
        && observation.termination_requested_at_unix_nanos > 0
        && !observation.terminal
        && observation.failed_reason.is_empty()
}

/// When a pod whose source has dropped it will be gone, and its grace period:
/// what the API server shows of a deleted pod. A pod that ends for another
/// reason (by itself, evicted) is not being deleted.
fn deletion(pod: &Pod, observation: &PodObservation) -> Option<(Time, i64)> {
    if !is_deleted(observation) {
        return None;
    }
    let requested_at = observation.termination_requested_at_unix_nanos;
    let grace = match observation.termination_grace_period_seconds {
        // None was asked for: the pod's own.
        ..=0 => pod.termination_grace_period_seconds(),
        grace => grace,
    };
    let nanos = requested_at.saturating_add(grace.saturating_mul(1_000_000_000));
    Some((api_time(UnixNanos(nanos)), grace))
}
