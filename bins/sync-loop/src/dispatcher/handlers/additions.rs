//! Pods that are new, and those that wait to be admitted.
//!
//! The kubelet admits each pod that it is given, after its own restart too. Here
//! a pod that runs is adopted, and what was decided before stands; so nothing is
//! decided before the worker pool has said which pods run.

use std::sync::Arc;

use bulkhead_api::v1;
use v1::RejectPodRequest;

use crate::dispatcher::admission::{AdmissionRecord, AdmissionState, Awaited, Rejection, admit};
use crate::dispatcher::decision::{Cause, Outcome};
use crate::dispatcher::outbox::Work;
use crate::dispatcher::pod_facts::PodFacts;
use crate::dispatcher::pod_manager::{ArrivedPod, Uid};
use crate::dispatcher::{Action, SyncLoop};

/// How long a pod that was admitted in an earlier life is given to show whether
/// it still uses its resources: its worker needs a sync and a housekeeping round.
const REMEMBERED_SETTLES_AFTER: std::time::Duration = std::time::Duration::from_secs(30);

impl SyncLoop {
    /// `HandlePodAdditions`: oldest first, so that the order of delivery does not
    /// decide who finds room.
    pub(in crate::dispatcher) fn handle_pod_additions(&mut self, mut pods: Vec<ArrivedPod>) {
        pods.sort_by(|first, second| first.facts.order.cmp(&second.facts.order));
        for arrived in pods {
            let uid = arrived.uid();
            self.workers.welcome(&uid);
            self.pods.set(arrived);
            self.consider(&uid);
        }
    }

    /// Decides about all pods that wait, oldest first.
    pub(in crate::dispatcher) fn admit_pending(&mut self) {
        let mut pending: Vec<(Arc<PodFacts>, Uid)> = self
            .pods
            .iter()
            .filter(|(_, pod)| matches!(pod.admission, AdmissionState::Pending(_)))
            .map(|(uid, pod)| (Arc::clone(&pod.facts), Arc::clone(uid)))
            .collect();
        pending.sort_by(|(first, _), (second, _)| first.order.cmp(&second.order));
        for (_, uid) in pending {
            self.consider(&uid);
        }
    }

    /// Decides about one pod that is not admitted yet, and acts on it.
    pub(in crate::dispatcher) fn consider(&mut self, uid: &Uid) {
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        let source = pod.document.source();
        let admission = self.admission_of(uid, &pod.facts);
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.admission = admission.clone();
        }
        match admission {
            AdmissionState::Pending(awaited) => self.decide(uid, Outcome::Waits(awaited)),
            AdmissionState::Rejected(rejection) => {
                let news = self.records.set(uid, AdmissionRecord::from(&rejection));
                self.decide(uid, Outcome::Rejected(rejection.clone()));
                self.tell_rejection(uid);
                if news {
                    self.records_changed = true;
                    self.report_rejection(uid, &rejection);
                }
            }
            AdmissionState::Adopted => {
                self.records_changed |= self.records.set(uid, AdmissionRecord::Admitted);
                self.dispatch(uid, Work::Create, Cause::FoundRunning);
            }
            AdmissionState::Admitted | AdmissionState::Remembered { .. } => {
                self.records_changed |= self.records.set(uid, AdmissionRecord::Admitted);
                self.dispatch(uid, Work::Create, Cause::Added(source));
            }
        }
    }

    /// See the diagram at [`AdmissionState`].
    fn admission_of(&self, uid: &str, pod: &PodFacts) -> AdmissionState {
        if self.workers.worker(uid).is_some() || self.workers.runs(uid) {
            return AdmissionState::Adopted;
        }
        if !self.workers.has_answered() {
            return AdmissionState::Pending(Awaited::WorkerPool);
        }
        if !self.workers.has_listed() {
            return AdmissionState::Pending(Awaited::Runtime);
        }
        match self.records.get(uid) {
            Some(AdmissionRecord::Admitted) => {
                return AdmissionState::Remembered {
                    since: self.now.elapsed,
                };
            }
            Some(AdmissionRecord::Rejected { reason, message }) => {
                return AdmissionState::Rejected(Rejection {
                    reason: reason.clone(),
                    message: message.clone(),
                });
            }
            None => {}
        }
        // It is to be stopped, or has ended: there is nothing to admit.
        if pod.marked_for_deletion || pod.phase.is_terminal() {
            return AdmissionState::Admitted;
        }
        self.check_room(uid, pod)
    }

    fn check_room(&self, uid: &str, pod: &PodFacts) -> AdmissionState {
        let Some(allocatable) = &self.allocatable else {
            return AdmissionState::Pending(Awaited::Capacity);
        };
        let node = &self.settings.node;
        let mut active = Vec::new();
        let mut certain = Vec::new();
        for (other, known) in self.pods.iter() {
            let ended = known.facts.phase.is_terminal() || self.workers.is_terminated(other);
            if **other == *uid || ended || !known.admission.permits_running() {
                continue;
            }
            active.push(&*known.facts);
            if !self.is_uncertain(other, &known.admission) {
                certain.push(&*known.facts);
            }
        }
        let Err(rejection) = admit(pod, &active, node, allocatable) else {
            return AdmissionState::Admitted;
        };
        if admit(pod, &certain, node, allocatable).is_ok() {
            return AdmissionState::Pending(Awaited::OtherPods);
        }
        AdmissionState::Rejected(rejection)
    }

    /// Whether it is not known yet if a pod uses its resources: a rejection is
    /// for good, so it must not rest on a pod that may have ended long ago.
    fn is_uncertain(&self, uid: &str, admission: &AdmissionState) -> bool {
        let AdmissionState::Remembered { since } = admission else {
            return false;
        };
        let settled = self.now.elapsed.saturating_sub(*since) >= REMEMBERED_SETTLES_AFTER;
        !settled && !self.workers.runs(uid)
    }

    /// The event of a rejection, once: its reason is the kubelet's, too.
    fn report_rejection(&mut self, uid: &str, rejection: &Rejection) {
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        let reference = pod.document.identity().into();
        tracing::warn!(pod = %pod.document.identity(), reason = rejection.reason, "pod rejected");
        self.report(
            Some(reference),
            "",
            &rejection.reason,
            rejection.message.clone(),
        );
    }

    /// Tells status-syncer that a pod was rejected.
    pub(in crate::dispatcher) fn tell_rejection(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        if let AdmissionState::Rejected(rejection) = &pod.admission {
            self.actions.push(Action::RejectPod(RejectPodRequest {
                pod: Some(pod.document.to_message()),
                reason: rejection.reason.clone(),
                message: rejection.message.clone(),
            }));
        }
    }
}
