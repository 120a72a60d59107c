//! Pods whose desired state changed, deletion marks included.

use crate::dispatcher::SyncLoop;
use crate::dispatcher::admission::AdmissionState;
use crate::dispatcher::decision::Cause;
use crate::dispatcher::outbox::Work;
use crate::dispatcher::pod_manager::ArrivedPod;

impl SyncLoop {
    /// `HandlePodUpdates`. A deletion mark is an update too: its worker sees it
    /// in the pod and terminates it with the grace that it names.
    pub(in crate::dispatcher) fn handle_pod_updates(&mut self, pods: Vec<ArrivedPod>) {
        for arrived in pods {
            let uid = arrived.uid();
            let source = arrived.document.source();
            let marked = arrived.facts.marked_for_deletion;
            self.pods.set(arrived);
            let Some(pod) = self.pods.get(&uid) else {
                continue;
            };
            match &pod.admission {
                AdmissionState::Pending(_) => self.consider(&uid),
                // It never ran and never will; its status knows the newest pod.
                AdmissionState::Rejected(_) => self.tell_rejection(&uid),
                _ => {
                    let cause = if marked {
                        Cause::MarkedForDeletion(source)
                    } else {
                        Cause::Updated(source)
                    };
                    self.dispatch(&uid, Work::Update, cause);
                }
            }
        }
    }
}
