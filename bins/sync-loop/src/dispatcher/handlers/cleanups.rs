//! Housekeeping: bringing the pool's workers and the runtime's pods in line with
//! what is desired.
//!
//! The kubelet does all of it inside its loop. Here the tick asks the questions,
//! and the answer is an event of its own, so the loop never waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use pod::PodSource;
use v1::{SyncKnownPodsResponse, WorkerPhase};

use crate::dispatcher::admission::AdmissionState;
use crate::dispatcher::decision::Cause;
use crate::dispatcher::outbox::{Kill, Subject, Work};
use crate::dispatcher::pod_manager::Uid;
use crate::dispatcher::workers::is_stopping;
use crate::dispatcher::{Action, SyncLoop};

/// How often garbage is collected: the kubelet's ContainerGCPeriod.
const GARBAGE_COLLECTION_PERIOD: Duration = Duration::from_secs(60);

impl SyncLoop {
    /// `HandlePodCleanups`, first half: asks for the workers and the runtime's
    /// pods, and tells who may forget what.
    pub(in crate::dispatcher) fn handle_pod_cleanups(&mut self) {
        let sources_ready = self.sources.all_delivered();
        let delivered = self.sources.delivered();
        let question = self.workers.next_question();
        let desired = self.desired_uids();
        if !delivered.is_empty() {
            self.remove_orphaned_statuses(delivered.clone());
        }
        if sources_ready {
            let pods = &self.pods;
            self.records_changed |= self.records.retain(|uid| pods.get(uid).is_some());
        }
        if self.workers.has_answered() && self.now.elapsed >= self.next_garbage_collection {
            self.next_garbage_collection = self.now.elapsed + GARBAGE_COLLECTION_PERIOD;
            let desired = desired.clone();
            self.actions.push(Action::CollectGarbage {
                desired,
                sources_ready,
            });
        }
        self.actions.push(Action::SyncKnownPods {
            question,
            desired,
            delivered,
        });
    }

    /// `HandlePodCleanups`, second half: acts on the answer.
    pub(in crate::dispatcher) fn handle_known_pods(
        &mut self,
        question: u64,
        response: SyncKnownPodsResponse,
    ) {
        self.note_pool_life(&response.boot_id);
        // Whether the runtime is down is for its health to say: asked for now.
        if !response.runtime_error.is_empty() {
            self.actions.push(Action::CheckRuntime);
        }
        let pods = &self.pods;
        self.workers
            .answered(response, |uid| pods.get(uid).is_some());
        self.settle_remembered();
        self.admit_pending();
        self.create_missing_workers(question);
        self.stop_departed(question);
        self.stop_undesired(question);
        self.forget_verdicts();
    }

    /// A pod that still runs keeps its status also when no source wants it any
    /// more: after a restart the pool has no worker for it until it is told to
    /// stop it. So nothing is removed before the runtime's pods are known.
    fn remove_orphaned_statuses(&mut self, delivered: Vec<PodSource>) {
        let Some(runtime_pods) = self.workers.runtime_pods() else {
            return;
        };
        let running = runtime_pods.iter().filter(|(_, pod)| pod.runs);
        let running = running.map(|(uid, _)| uid.to_string());
        let all = self.pods.iter().map(|(uid, _)| uid.to_string());
        // One that started and was dropped since that list may run all the same.
        let departed = self.workers.departed_uids().into_iter();
        let stopping = departed.map(|uid| uid.to_string());
        let known: BTreeSet<String> = all.chain(running).chain(stopping).collect();
        let known = known.into_iter().collect();
        self.actions
            .push(Action::RemoveOrphanedStatuses { known, delivered });
    }

    /// Everything again, for a pool that has forgotten it.
    pub(in crate::dispatcher) fn send_everything_again(&mut self) {
        let admitted = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.admission.permits_running());
        let admitted: Vec<Uid> = admitted.map(|(uid, _)| Arc::clone(uid)).collect();
        for uid in admitted {
            self.dispatch(&uid, Work::Create, Cause::PoolRestarted);
        }
        for uid in self.workers.departed_uids() {
            self.kill_departed(&uid, &Cause::PoolRestarted);
        }
    }

    /// Pods that have, or should have, a worker.
    fn desired_uids(&self) -> Vec<String> {
        let wanted = self.pods.iter();
        wanted
            .filter(|(_, pod)| !matches!(pod.admission, AdmissionState::Rejected(_)))
            .map(|(uid, _)| uid.to_string())
            .collect()
    }

    /// A pod of an earlier life that was seen running is like any other now.
    fn settle_remembered(&mut self) {
        let remembered = self.pods.iter().filter(|(uid, pod)| {
            matches!(pod.admission, AdmissionState::Remembered { .. }) && self.workers.runs(uid)
        });
        let remembered: Vec<Uid> = remembered.map(|(uid, _)| Arc::clone(uid)).collect();
        for uid in remembered {
            if let Some(pod) = self.pods.get_mut(&uid) {
                pod.admission = AdmissionState::Admitted;
            }
        }
    }

    /// A pod that may run but has no worker, or one that has finished the life
    /// before, is created (again).
    fn create_missing_workers(&mut self, question: u64) {
        let mut missing = Vec::new();
        for (uid, pod) in self.pods.iter() {
            if !pod.admission.permits_running() || !self.workers.is_current(uid, question) {
                continue;
            }
            match self.workers.worker(uid) {
                None => missing.push((Arc::clone(uid), Cause::WorkerMissing)),
                Some(worker)
                    if worker.restart_requested && worker.phase == WorkerPhase::Finished =>
                {
                    missing.push((Arc::clone(uid), Cause::FinishedForRestart));
                }
                Some(worker) if worker.runtime_only && !worker.restart_requested => {
                    missing.push((Arc::clone(uid), Cause::WorkerMissing));
                }
                Some(_) => {}
            }
        }
        for (uid, cause) in missing {
            self.dispatch(&uid, Work::Create, cause);
        }
    }

    /// A departed pod is forgotten when nothing is left of it, and killed again
    /// when its worker does not know that it is to stop.
    fn stop_departed(&mut self, question: u64) {
        for uid in self.workers.departed_uids() {
            if !self.workers.is_current(&uid, question) && !self.workers.is_refused(&uid) {
                continue;
            }
            let phase = self.workers.worker(&uid).map(|worker| worker.phase);
            let gone = self.workers.runtime_pods().is_some() && !self.workers.runs(&uid);
            match phase {
                Some(WorkerPhase::Finished) => self.workers.forget_departed(&uid),
                None if gone => self.workers.forget_departed(&uid),
                Some(phase) if is_stopping(phase) => {}
                Some(_) | None => self.kill_departed(&uid, &Cause::KillForgotten),
            }
        }
    }

    /// Workers and runtime pods that nobody wants, each once its source has
    /// delivered: found after a restart of this process.
    fn stop_undesired(&mut self, question: u64) {
        let mut undesired = Vec::new();
        for (uid, worker) in self.workers.iter() {
            if !is_stopping(worker.phase) {
                undesired.push((
                    Arc::clone(uid),
                    worker.identity.clone(),
                    Cause::WorkerNotDesired,
                ));
            }
        }
        for (uid, pod) in self.workers.runtime_pods().into_iter().flatten() {
            if pod.runs && self.workers.worker(uid).is_none() {
                undesired.push((Arc::clone(uid), pod.identity.clone(), Cause::Orphaned));
            }
        }
        for (uid, identity, cause) in undesired {
            let runtime_pods = self.workers.runtime_pods();
            let source = runtime_pods
                .and_then(|pods| pods.get(&uid))
                .map_or("", |pod| &pod.source);
            let permitted = self.sources.permit_removal_of(source);
            let known = self.pods.get(&uid).is_some() || self.workers.departed(&uid).is_some();
            if known || !permitted || !self.workers.is_current(&uid, question) {
                continue;
            }
            tracing::info!(pod = %identity, %cause, "stopping a pod that no source wants");
            let requested_at = self.workers.orphaned_since(&uid, self.now.wall);
            let work = Work::Kill(Kill {
                requested_at,
                grace_period_seconds: None,
            });
            self.send_undesired(&uid, work, Subject::RuntimeOnly(identity), &cause);
        }
    }

    /// Verdicts of pods that are gone: the prober that knew them may be, too.
    fn forget_verdicts(&mut self) {
        if !self.sources.all_delivered() {
            return;
        }
        let (pods, workers) = (&self.pods, &self.workers);
        self.verdicts.retain(|uid| {
            pods.get(uid).is_some()
                || workers.worker(uid).is_some()
                || workers.departed(uid).is_some()
        });
    }
}
