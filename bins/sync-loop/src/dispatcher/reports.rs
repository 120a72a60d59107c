//! What status-syncer is told: rejections, verdicts and events.

use bulkhead_api::v1;
use clock::UnixNanos;
use pod::core::{Container, ResourceRequirements};
use pod::{Pod, PodDocument, PodExt};
use serde::Serialize;

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
    let (word, reason) = match pending.is_infeasible {
        true => ("Infeasible", "ResizeInfeasible"),
        false => ("Deferred", "ResizeDeferred"),
    };
    let why = &pending.message;
    tracing::info!(pod = %document.identity(), reason, why, "a resize waits");
    let message = resize_message(&pod, word, why);
    let reference = Some(document.identity().into());
    let event = warning(reference, "", reason, message, now);
    Some(Action::ReportEvent(event))
}

/// What the pod is to have, as a kubelet tells it in these events.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<OfContainer<'a>>,
    containers: Vec<OfContainer<'a>>,
    /// That of an API server's object.
    generation: i64,
    error: &'a str,
}

#[derive(Serialize)]
struct OfContainer<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

fn resize_message(pod: &Pod, word: &str, error: &str) -> String {
    fn all(containers: &[Container]) -> Vec<OfContainer<'_>> {
        let of_containers = containers.iter().map(|container| OfContainer {
            name: &container.name,
            resources: container.resources.clone().unwrap_or_default(),
        });
        of_containers.collect()
    }
    let summary = Summary {
        init_containers: all(pod.init_containers()),
        containers: all(pod.containers()),
        generation: pod.metadata.generation.unwrap_or_default(),
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(summary) => format!("Pod resize {word}: {summary}"),
        Err(_) => format!("Pod resize {word}"),
    }
}
