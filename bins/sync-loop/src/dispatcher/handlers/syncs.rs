//! Pods that are to be looked at, with nothing changed in what is desired.

use bulkhead_api::v1::WorkerPhase;

use crate::dispatcher::decision::{Cause, Outcome};
use crate::dispatcher::outbox::Work;
use crate::dispatcher::pod_manager::Uid;
use crate::dispatcher::{RuntimeHealth, SyncLoop};

impl SyncLoop {
    /// `HandlePodSyncs`. While the runtime does not answer, a worker could do
    /// nothing: the pod is remembered and synced when that is over.
    pub(in crate::dispatcher) fn handle_pod_syncs(&mut self, uids: &[Uid], cause: &Cause) {
        for uid in uids {
            let admitted = self
                .pods
                .get(uid)
                .is_some_and(|pod| pod.admission.permits_running());
            if !admitted {
                continue;
            }
            if let RuntimeHealth::Down { postponed, .. } = &mut self.runtime {
                postponed.insert(uid.clone());
                self.decide(uid, Outcome::Postponed(cause.clone()));
                continue;
            }
            if self.workers.is_refused(uid) {
                self.dispatch(uid, Work::Create, Cause::RetryAfterRefusal);
            } else if *cause == Cause::Resync && self.has_finished(uid) {
                // Nothing can happen to it any more; a new life of the pool is
                // told of it anyway.
                self.plan_resync(uid);
            } else {
                self.dispatch(uid, Work::Sync, cause.clone());
            }
        }
    }

    fn has_finished(&self, uid: &str) -> bool {
        let worker = self.workers.worker(uid);
        worker.is_some_and(|worker| {
            worker.phase == WorkerPhase::Finished && !worker.restart_requested
        })
    }
}
