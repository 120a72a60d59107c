//! The pod as it is served to readers: the desired pod's own JSON with the
//! computed status in it, fields that we do not know included.

use std::collections::BTreeMap;

use bulkhead_api::v1::{PodObservation, WorkerPhase};
use clock::UnixNanos;
use pod::core::{Pod, PodStatus};
use pod::meta::{ObjectMeta, Time};
use pod::{PodDocument, PodExt as _};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

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
    without_spec(desired, Some(status))
}

/// Which pod it is, and at most its status.
pub(crate) fn without_spec(desired: &PodDocument, status: Option<&PodStatus>) -> PodDocument {
    let identity = desired.identity();
    let small = Pod {
        metadata: ObjectMeta {
            name: Some(identity.name().to_owned()),
            namespace: Some(identity.namespace().to_owned()),
            uid: Some(identity.uid().to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
        status: status.cloned(),
    };
    PodDocument::encode(&small, desired.source()).unwrap_or_else(|_| desired.clone())
}

fn join(
    desired: &PodDocument,
    status: &PodStatus,
    deletion: Option<(Time, i64)>,
) -> Option<Vec<u8>> {
    let mut pod: Fields = serde_json::from_slice(desired.json()).ok()?;
    put(&mut pod, "apiVersion", "v1")?;
    put(&mut pod, "kind", "Pod")?;
    put(&mut pod, "status", status)?;
    let metadata = pod.get("metadata")?;
    if let Some((at, grace)) = deletion {
        let mut metadata: Fields = serde_json::from_str(metadata.get()).ok()?;
        if !metadata.contains_key("deletionTimestamp") {
            put(&mut metadata, "deletionTimestamp", &at)?;
            put(&mut metadata, "deletionGracePeriodSeconds", &grace)?;
            put(&mut pod, "metadata", &metadata)?;
        }
    }
    serde_json::to_vec(&pod).ok()
}

/// A JSON object; what is in its fields is passed on as it is.
type Fields = BTreeMap<String, Box<RawValue>>;

fn put(fields: &mut Fields, name: &str, value: &(impl Serialize + ?Sized)) -> Option<()> {
    fields.insert(name.to_owned(), to_raw_value(value).ok()?);
    Some(())
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
