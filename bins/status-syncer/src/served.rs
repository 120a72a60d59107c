//! The pod as it is served to readers: the desired pod's own JSON with the
//! computed status in it, fields that we do not know included.

use bulkhead_api::v1::{PodObservation, WorkerPhase};
use clock::UnixNanos;
use pod::core::{Pod, PodStatus};
use pod::meta::{ObjectMeta, Time};
use pod::{PodDocument, PodExt as _};
use serde_json::{Map, Value};

use crate::status::api_time;

/// Joins the desired pod and its status.
pub(crate) fn document(
    desired: &PodDocument,
    pod: &Pod,
    status: &PodStatus,
    observation: Option<&PodObservation>,
) -> PodDocument {
    let joined = join(
        desired,
        status,
        observation.and_then(|seen| deletion(pod, seen)),
    )
    .and_then(|json| desired.with_json(json).ok());
    if let Some(document) = joined {
        return document;
    }
    // The pod is so large that it has no room for its status: the status is
    // what readers cannot get elsewhere.
    let small = Pod {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectMeta::default()
        },
        spec: None,
        status: Some(status.clone()),
    };
    PodDocument::encode(&small, desired.source()).unwrap_or_else(|_| desired.clone())
}

fn join(
    desired: &PodDocument,
    status: &PodStatus,
    deletion: Option<(Time, i64)>,
) -> Option<Vec<u8>> {
    let mut pod: Map<String, Value> = serde_json::from_slice(desired.json()).ok()?;
    pod.insert("apiVersion".to_owned(), "v1".into());
    pod.insert("kind".to_owned(), "Pod".into());
    pod.insert("status".to_owned(), serde_json::to_value(status).ok()?);
    let metadata = pod.get_mut("metadata")?.as_object_mut()?;
    if let Some((at, grace)) = deletion
        && !metadata.contains_key("deletionTimestamp")
    {
        metadata.insert(
            "deletionTimestamp".to_owned(),
            serde_json::to_value(at).ok()?,
        );
        metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
    }
    serde_json::to_vec(&pod).ok()
}

/// When a pod whose source has dropped it will be gone, and its grace period:
/// what the API server shows of a deleted pod. A pod that ends for another
/// reason (by itself, evicted) is not being deleted.
fn deletion(pod: &Pod, observation: &PodObservation) -> Option<(Time, i64)> {
    let requested_at = observation.termination_requested_at_unix_nanos;
    let stops = matches!(
        observation.phase(),
        WorkerPhase::Terminating | WorkerPhase::Terminated | WorkerPhase::Finished
    );
    if !stops || requested_at <= 0 || observation.terminal || !observation.failed_reason.is_empty()
    {
        return None;
    }
    let grace = match observation.termination_grace_period_seconds {
        // None was asked for: the pod's own.
        ..=0 => pod.termination_grace_period_seconds(),
        grace => grace,
    };
    let nanos = requested_at.saturating_add(grace.saturating_mul(1_000_000_000));
    Some((api_time(UnixNanos(nanos)), grace))
}
