//! What a status follows from.

use bulkhead_api::v1::{ContainerObservation, PodObservation, RuntimeState, WorkerPhase};
use clock::UnixNanos;
use pod::core::{Pod, PodCondition, PodStatus};

use crate::verdicts::Verdicts;

/// Everything that a status follows from.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    /// The pod as desired; its own `status` is what its source last knew.
    pub pod: &'a Pod,
    /// What the worker pool sees of it.
    pub observation: &'a PodObservation,
    /// Probe verdicts by container id.
    pub verdicts: &'a Verdicts,
    /// What was published last, unless the pod has begun anew under its UID.
    pub published: Option<&'a PodStatus>,
    /// The conditions that the API server holds of the pod, where that is known: those of
    /// others stand.
    pub held: Option<&'a [PodCondition]>,
    /// Now.
    pub now: UnixNanos,
}

/// How far the worker is, as far as a status depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Containers are started and restarted.
    Active,
    /// Containers are being stopped; none is started any more.
    Terminating,
    /// No container runs, and none will.
    Terminated,
}

impl Stage {
    pub(super) fn of(observation: &PodObservation) -> Stage {
        match observation.phase() {
            WorkerPhase::Terminating => Stage::Terminating,
            WorkerPhase::Terminated | WorkerPhase::Finished => Stage::Terminated,
            WorkerPhase::Unspecified | WorkerPhase::Waiting | WorkerPhase::Syncing => Stage::Active,
        }
    }
}

/// Whether an instance runs as far as anybody knows.
pub(super) fn may_run(instance: &ContainerObservation) -> bool {
    matches!(
        instance.state(),
        RuntimeState::Running | RuntimeState::Unknown
    )
}
