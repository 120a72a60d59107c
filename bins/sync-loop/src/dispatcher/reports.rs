//! What status-syncer is told: rejections, verdicts and events.

use bulkhead_api::v1;
use clock::UnixNanos;
use pod::{PodDocument, resize_event};

use super::admission::{Admission, Rejection};
use super::desired_pods::DesiredPods;
use super::messages::{Action, warning};
use super::verdicts::Verdicts;

/// Everything that one which has restarted has to hear again.
pub(super) fn everything(
    verdicts: &Verdicts,
    admission: &Admission,
    pods: &DesiredPods,
) -> Vec<Action> {
    let verdicts = Some(verdicts.all()).filter(|all| !all.is_empty());
    let rejections = pods
        .iter()
        .filter_map(|(uid, _)| admission.rejection(uid, pods));
    let verdicts = verdicts.into_iter().map(Action::SetProbeVerdicts);
    verdicts.chain(rejections.map(Action::RejectPod)).collect()
}

/// The event of a probe, of a pod that is desired; the prober knows no more than its UID.
pub(super) fn of_probe(mut event: v1::Event, pods: &DesiredPods) -> Option<Action> {
    let uid = event.pod.take().unwrap_or_default().uid;
    event.pod = Some(pods.document(&uid)?.identity().into());
    Some(Action::ReportEvent(event))
}

/// The event of a rejection, once: its reason is the kubelet's, too.
pub(super) fn rejected(pod: &PodDocument, rejection: Rejection, now: UnixNanos) -> Action {
    let Rejection { reason, message } = rejection;
    tracing::warn!(pod = %pod.identity(), reason, "pod rejected");
    let reference = Some(pod.identity().into());
    Action::ReportEvent(warning(reference, "", &reason, message, now))
}

/// The event of a resize that has to wait; its reason is the kubelet's, too.
pub(super) fn resize_waits(
    uid: &str,
    pods: &DesiredPods,
    admission: &Admission,
    now: UnixNanos,
) -> Option<Action> {
    let document = pods.document(uid)?;
    let pending = admission.pending_resize(uid, pods)?;
    let pod = document.decode().ok()?;
    let (what, reason) = match pending.is_infeasible {
        true => ("Pod resize Infeasible", "ResizeInfeasible"),
        false => ("Pod resize Deferred", "ResizeDeferred"),
    };
    let why = &pending.message;
    tracing::info!(pod = %document.identity(), reason, why, "a resize waits");
    let message = resize_event::message(what, &pod, why);
    let reference = Some(document.identity().into());
    let event = warning(reference, "", reason, message, now);
    Some(Action::ReportEvent(event))
}
