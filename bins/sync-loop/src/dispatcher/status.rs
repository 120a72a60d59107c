//! What the loop shows of itself, and of a pod.

use std::time::Duration;

use bulkhead_api::v1;
use pod::PodSource;

use super::admission::AdmissionState;
use super::decision::Decision;
use super::desired_pods::{DesiredPod, DesiredPods, Uid};
use super::lifecycle::Lifecycle;
use super::runtime_health::RuntimeHealth;
use super::sources::Sources;
use super::work_queue::WorkQueue;
use super::workers::WorkerView;

/// One source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceSummary {
    /// Its name.
    pub name: &'static str,
    /// Whether it has delivered since sync-loop started.
    pub ready: bool,
    /// Pods that it has delivered.
    pub pods: usize,
    /// What is wrong with it, a line each.
    pub problems: Vec<String>,
}

/// The loop as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoopSummary {
    /// The configured sources.
    pub sources: Vec<SourceSummary>,
    /// What pleg last said of itself.
    pub pleg: v1::PlegHealth,
    /// Empty when the runtime answers.
    pub runtime_error: String,
    /// Pods that wait for their resync.
    pub work_queue_length: usize,
}

/// The loop as a whole.
#[must_use]
pub(crate) fn summary(
    (sources, pods): (&Sources, &DesiredPods),
    lifecycle: &Lifecycle,
    runtime: &RuntimeHealth,
    work_queue: &WorkQueue,
) -> LoopSummary {
    LoopSummary {
        sources: summaries(sources, pods),
        pleg: lifecycle.health().clone(),
        runtime_error: runtime.error().to_owned(),
        work_queue_length: work_queue.len(),
    }
}

/// How pleg and the node are, `elapsed` after the start of the process.
#[must_use]
pub(crate) fn node_health(
    lifecycle: &Lifecycle,
    shuts_down: bool,
    elapsed: Duration,
) -> v1::SetNodeHealthRequest {
    let inactive = lifecycle.inactive_for(elapsed);
    v1::SetNodeHealthRequest {
        pleg_inactive_nanos: inactive.and_then(|it| u64::try_from(it.as_nanos()).ok()),
        shuts_down,
    }
}

/// The sources, with how many of the desired pods each has delivered.
fn summaries(sources: &Sources, pods: &DesiredPods) -> Vec<SourceSummary> {
    let summary = |(source, ready, problems): (PodSource, bool, Vec<String>)| SourceSummary {
        name: source.as_str(),
        ready,
        pods: pods.uids_of(source).len(),
        problems,
    };
    sources.iter().map(summary).collect()
}

/// A desired pod with its admission and the last decision about it.
#[must_use]
pub(crate) fn describe(
    pod: &DesiredPod,
    mirror: Option<&Uid>,
    admission: &AdmissionState,
    decision: Option<&Decision>,
    worker: Option<&WorkerView>,
) -> v1::DesiredPod {
    let (admission, rejection) = match admission {
        AdmissionState::Pending(_) => (v1::Admission::Pending, None),
        AdmissionState::Admitted | AdmissionState::Remembered { .. } => {
            (v1::Admission::Admitted, None)
        }
        AdmissionState::Adopted => (v1::Admission::Adopted, None),
        AdmissionState::Rejected(rejection) => (v1::Admission::Rejected, Some(rejection)),
    };
    let phase = worker.map_or("", |worker| worker.phase.as_str_name());
    v1::DesiredPod {
        pod: Some(pod.document.to_message()),
        admission: admission.into(),
        rejection_reason: rejection.map_or_else(String::new, |rejection| rejection.reason.clone()),
        rejection_message: rejection
            .map_or_else(String::new, |rejection| rejection.message.clone()),
        last_decision: decision.map_or_else(String::new, |decision| decision.outcome.to_string()),
        last_decision_unix_nanos: decision.map_or(0, |decision| decision.at.0),
        worker_phase: phase.trim_start_matches("WORKER_PHASE_").to_lowercase(),
        mirror_uid: mirror.map(ToString::to_string).unwrap_or_default(),
    }
}
