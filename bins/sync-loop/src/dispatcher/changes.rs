//! What config-sourcer tells, carried out: pods that are added, updated, reconciled and
//! removed.
//!
//! What goes and what comes at once is decided together, and in this order: who goes or
//! needs less makes room; then who is new, as an edited pod is that goes and comes under
//! another UID; then who waits. Else somebody who waits would get the room of a pod that
//! was only edited, and that pod would be rejected for good.

use bulkhead_api::v1::watch_pods_response::Message;

use super::SyncLoop;
use super::admission::AdmissionState;
use super::cause::Cause;
use super::desired_pods::{DesiredPod, Uid};
use super::messages::Action;
use super::operations::Operations;
use super::outbox::{PendingKill, Work};
use super::sources::{FAILED_MANIFEST, SourceEffect};
use super::turned_away::{Load, Refused};
use super::workers::DepartedPod;

impl SyncLoop {
    pub(super) fn on_configuration(&mut self, message: Message) {
        let mut waits_for_decision = false;
        for effect in self.sources.on(message, &self.pods) {
            match effect {
                SourceEffect::Removed(uids) => {
                    waits_for_decision |= !uids.is_empty();
                    self.remove(&uids);
                }
                SourceEffect::Delivered(pods) => {
                    self.operate(Operations::of(pods, &self.pods, self.load()));
                    waits_for_decision = false;
                }
                SourceEffect::Problem { subject, reason } => {
                    self.report(None, &subject, FAILED_MANIFEST, reason);
                }
            }
        }
        if waits_for_decision {
            self.admit_pending();
        }
    }

    fn load(&self) -> Load {
        Load::of(&self.pods, self.workers.departed_size())
    }

    /// Asks config-sourcer for everything again when a pod that was turned away could be
    /// taken: once until its source was shown again.
    pub(super) fn ask_for_turned_away(&mut self) {
        if self.sources.have_turned_away() {
            let load = self.load();
            if self.sources.want_anew(&self.pods, load) {
                self.actions.push(Action::WatchPodsAnew);
            }
        }
    }

    fn operate(&mut self, operations: Operations) {
        for pod in operations.taken() {
            self.sources.taken(&pod.document);
        }
        for (source, refused) in operations.refused {
            if self.sources.turned_away(source, &refused) {
                let Refused {
                    identity, reason, ..
                } = refused;
                tracing::warn!(pod = %identity, %source, reason, "a pod is turned away");
                self.report(Some((&identity).into()), "", FAILED_MANIFEST, reason);
            }
        }
        for pod in operations.unchanged {
            self.pods.set(pod);
        }
        let updated = self.take_updates(operations.updated);
        self.add(operations.added);
        self.admit_pending();
        self.tell_updates(updated);
        for pod in operations.reconciled {
            self.reconcile(pod);
        }
    }

    /// `HandlePodAdditions`: oldest first, so that the order of delivery does not
    /// decide who finds room.
    fn add(&mut self, mut pods: Vec<DesiredPod>) {
        pods.sort_by(|first, second| first.facts.order.cmp(&second.facts.order));
        for pod in pods {
            let uid = pod.uid();
            self.workers.welcome(&uid);
            self.pods.set(pod);
            self.admit(&uid);
        }
    }

    /// `HandlePodUpdates`, first half: takes new versions in. Returns those whose workers
    /// are to be told; the others are not admitted.
    fn take_updates(&mut self, pods: Vec<DesiredPod>) -> Vec<DesiredPod> {
        let mut to_tell = Vec::new();
        let are_any = !pods.is_empty();
        for pod in pods {
            let uid = pod.uid();
            self.pods.set(pod.clone());
            if self.admission.reconsider(&uid, &pod.facts) {
                continue;
            }
            match self.admission.state(&uid) {
                AdmissionState::Pending(_) => {}
                // It never ran; its status knows the newest pod.
                AdmissionState::Rejected(_) => self.tell_rejection(&uid),
                _ => to_tell.push(pod),
            }
        }
        if are_any {
            self.decide_resizes(false);
        }
        to_tell
    }

    /// `HandlePodUpdates`, second half, when all is decided. A deletion mark is an update
    /// too: its worker terminates the pod with the grace that it names.
    fn tell_updates(&mut self, pods: Vec<DesiredPod>) {
        for pod in pods {
            let source = pod.document.source();
            let cause = match pod.facts.marked_for_deletion {
                true => Cause::MarkedForDeletion(source),
                false => Cause::Updated(source),
            };
            self.dispatch(&pod.uid(), Work::Update, cause);
        }
    }

    /// `HandlePodReconcile`: a pod with readiness gates depends on conditions in its
    /// status, so it is synced; an evicted pod's containers are of no use.
    fn reconcile(&mut self, pod: DesiredPod) {
        let (uid, source) = (pod.uid(), pod.document.source());
        let matters = pod.facts.has_readiness_gates || pod.facts.phase.is_terminal();
        let evicted = pod.facts.evicted;
        self.pods.set(pod);
        if matters && self.admission.permits(&uid) {
            self.dispatch(&uid, Work::Sync, Cause::Reconciled(source));
        }
        if evicted {
            let uid = uid.to_string();
            self.actions.push(Action::CleanUpContainers { uid });
        }
    }

    /// `HandlePodRemoves`: the pods are no longer desired from now on, and their
    /// workers are told to stop them with the pods' own grace. Who may have their room is
    /// decided by who calls this, when it is known what comes in their place.
    fn remove(&mut self, uids: &[Uid]) {
        for uid in uids {
            let Some(pod) = self.pods.remove(uid) else {
                continue;
            };
            self.work_queue.remove(uid);
            self.decisions.forget(uid);
            // A rejected pod has no worker and must not get one.
            if let Some(AdmissionState::Rejected(_)) = self.admission.forget(uid) {
                continue;
            }
            let source = pod.document.source();
            let kill = PendingKill {
                requested_at: self.now.wall,
                grace_period_seconds: None,
            };
            let document = pod.document;
            self.workers.depart(uid, DepartedPod { document, kill });
            self.kill_departed(uid, &Cause::Removed(source));
        }
    }
}
