//! Pods whose status changed at their source and nothing else.

use crate::dispatcher::decision::Cause;
use crate::dispatcher::outbox::Work;
use crate::dispatcher::pod_manager::ArrivedPod;
use crate::dispatcher::{Action, SyncLoop};

impl SyncLoop {
    /// `HandlePodReconcile`: a pod with readiness gates depends on conditions in
    /// its status, so it is synced; an evicted pod's containers are of no use.
    pub(in crate::dispatcher) fn handle_pod_reconcile(&mut self, pods: Vec<ArrivedPod>) {
        for arrived in pods {
            let uid = arrived.uid();
            let source = arrived.document.source();
            let gates = arrived.facts.has_readiness_gates;
            let (evicted, ended) = (arrived.facts.evicted, arrived.facts.phase.is_terminal());
            self.pods.set(arrived);
            let admitted = self
                .pods
                .get(&uid)
                .is_some_and(|pod| pod.admission.permits_running());
            if admitted && (gates || ended) {
                self.dispatch(&uid, Work::Sync, Cause::Reconciled(source));
            }
            if evicted {
                let uid = uid.to_string();
                self.actions.push(Action::CleanUpContainers { uid });
            }
        }
    }
}
