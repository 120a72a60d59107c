//! Whether a pod has begun anew under its UID: what was published of it before must not
//! stay.

use std::collections::BTreeSet;

use bulkhead_api::v1::{PodObservation, RuntimeState, WorkerPhase};
use pod::core::{Pod, PodStatus};
use pod::update::{refused_changes, wished};
use pod::{EVICTED, PodDocument, PodPhase};

use crate::status;

/// A pod as it was known before an observation or an update of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodBefore<'a> {
    /// The pod, unless its spec is lost.
    pub(super) pod: Option<&'a PodDocument>,
    pub(super) status: &'a PodStatus,
    /// How far its worker was, and in which run of the pool.
    pub(super) worker: Option<&'a (String, WorkerPhase)>,
}

impl PodBefore<'_> {
    /// Whether the pod has ended and begun anew under its UID: its manifest was removed and
    /// came back, or was changed in what a running pod keeps, or it was rejected and is
    /// admitted now.
    pub(super) fn has_begun_anew(
        &self,
        observation: &PodObservation,
        pod: &Pod,
        boot_id: &str,
    ) -> bool {
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
        // A pod that ended for good starts no instance that was not known, nor does one that
        // is changed in what it keeps while it runs.
        ended_before
            || (observation.is_observed
                && self.has_new_instance(observation)
                && (self.has_ended_for_good() || self.is_another(pod)))
    }

    /// Whether a pod has ended, and would not begin anew as this version.
    pub(super) fn stays_ended_as(&self, newer: &Pod) -> bool {
        self.has_ended_for_good() && !self.is_another(newer)
    }

    fn has_ended_for_good(&self) -> bool {
        let phase = self.status.phase.as_deref().and_then(PodPhase::parse);
        phase.is_some_and(PodPhase::is_terminal)
    }

    /// Whether this version makes another pod of the UID than the known one.
    fn is_another(&self, newer: &Pod) -> bool {
        let Some(known) = self.pod.and_then(|pod| pod.decode().ok()) else {
            return false;
        };
        // One that was evicted does so for any change.
        let was_evicted = self.status.reason.as_deref() == Some(EVICTED);
        !refused_changes(&known, newer).is_empty()
            || (was_evicted && wished(&known) != wished(newer))
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
