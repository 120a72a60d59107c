//! Whether a pod has begun anew under its UID: what was published of it before must not
//! stay.

use std::collections::BTreeSet;

use bulkhead_api::v1::{PodObservation, RuntimeState, WorkerPhase};
use pod::PodPhase;
use pod::core::PodStatus;

use crate::status;

/// A pod as it was known before an observation of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodBefore<'a> {
    pub(super) status: &'a PodStatus,
    /// How far its worker was, and in which run of the pool.
    pub(super) worker: Option<&'a (String, WorkerPhase)>,
}

impl PodBefore<'_> {
    /// Whether the pod has ended and begun anew under its UID: its manifest was removed and
    /// came back, or it was rejected and is admitted now.
    pub(super) fn has_begun_anew(&self, observation: &PodObservation, boot_id: &str) -> bool {
        if !is_to_run(observation) {
            return false;
        }
        if status::is_rejected(self.status) {
            return true;
        }
        // A worker never goes back; only one that was forgotten begins again.
        let ended_before = self.worker.is_some_and(|(boot, phase)| {
            boot == boot_id && matches!(phase, WorkerPhase::Terminated | WorkerPhase::Finished)
        });
        // A pod that ended for good starts no instance that was not known.
        ended_before
            || (observation.is_observed
                && self.has_new_instance(observation)
                && self.has_ended_for_good())
    }

    pub(super) fn has_ended_for_good(&self) -> bool {
        let phase = self.status.phase.as_deref().and_then(PodPhase::parse);
        phase.is_some_and(PodPhase::is_terminal)
    }

    fn has_new_instance(&self, observation: &PodObservation) -> bool {
        let init = self.status.init_container_statuses.iter().flatten();
        let known: BTreeSet<&str> = init
            .chain(self.status.container_statuses.iter().flatten())
            .filter_map(status::runtime_id)
            .collect();
        // It may have ended before anybody saw it run. Of those before it not all are known.
        observation.containers.iter().any(|instance| {
            let has_begun = matches!(
                instance.state(),
                RuntimeState::Running | RuntimeState::Exited
            );
            has_begun
                && !instance.is_of_earlier_round
                && status::is_newest(observation, instance)
                && !known.contains(instance.id.as_str())
        })
    }
}

/// Whether the pod's worker was not told to stop it, and it has not ended by itself.
pub(super) fn is_to_run(observation: &PodObservation) -> bool {
    matches!(
        observation.phase(),
        WorkerPhase::Syncing | WorkerPhase::Waiting
    ) && !observation.terminal
        && observation.failed_reason.is_empty()
}
