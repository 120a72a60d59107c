//! The sync loop without its I/O: events in, actions out. No clock, no tasks; the
//! time comes with each event.
//!
//! Each machine below owns what it knows, takes a message or a call, and answers
//! with effects; [`SyncLoop`] takes the effects of one to the others, and does
//! nothing else:
//!
//! - [`sources`]: config-sourcer's messages; which source has delivered;
//! - [`operations`]: what a pod that arrived asks for;
//! - [`desired_pods`]: the pods that should run;
//! - [`admission`]: whether a pod may start;
//! - [`workers`]: what the pool has, what it was sent, what it still has to stop;
//! - [`lifecycle`]: pleg's messages; [`verdicts`]: prober's;
//! - [`runtime_health`]: which pods wait for the container runtime;
//! - [`work_queue`]: when each pod is due again;
//! - [`decision`]: what was last decided about a pod, and why ([`cause`]).
//!
//! Beside them, [`outbox`] merges the updates that are on their way to the pool,
//! [`reports`] words what status-syncer is told, and [`status`] shows it all. What does
//! not live here: receiving, sending and saving (`shell`). Which event leads to what is a
//! table at the head of [`messages`].

pub(crate) mod admission;
mod cause;
mod cleanups;
mod decision;
pub(crate) mod desired_pods;
mod host_ports;
mod lifecycle;
mod messages;
mod operations;
pub(crate) mod outbox;
mod pod_facts;
mod reports;
mod runtime_health;
mod sources;
mod status;
mod verdicts;
mod work_queue;
mod workers;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use ipc::limits::truncate;
use rand::rngs::SmallRng;
use v1::watch_pod_lifecycle_events_response::Message as LifecycleMessage;
use v1::watch_pods_response::Message as ConfigurationMessage;
use v1::watch_results_response::Message as ProbeMessage;
use v1::{SyncKnownPodsResponse, WorkerPhase};

use admission::{Admission, AdmissionRecords, AdmissionState};
use cause::Cause;
use cleanups::{Cleanup, Cleanups};
use decision::{Decision, Decisions, Outcome};
use desired_pods::{DesiredPod, DesiredPods, Uid};
use lifecycle::{Lifecycle, LifecycleEffect};
use operations::Operations;
use outbox::{UpdateKind, UpdatedPod, WorkerUpdate};
use runtime_health::RuntimeHealth;
use sources::{FAILED_MANIFEST, SourceEffect, Sources};
use verdicts::{ProbeEffect, Verdicts};
use work_queue::WorkQueue;
use workers::{DepartedPod, Workers, is_stopped};

use messages::MAX_REASON_BYTES;
pub(crate) use messages::{Action, Event, Now, Settings};
pub(crate) use status::LoopSummary;

/// The sync loop.
#[derive(Debug)]
pub(crate) struct SyncLoop {
    now: Now,
    sources: Sources,
    pods: DesiredPods,
    admission: Admission,
    workers: Workers,
    lifecycle: Lifecycle,
    verdicts: Verdicts,
    runtime: RuntimeHealth,
    /// The pool says that the node does.
    shuts_down: bool,
    work_queue: WorkQueue,
    decisions: Decisions,
    cleanups: Cleanups,
    /// Of the event that is being handled.
    actions: Vec<Action>,
}

impl SyncLoop {
    /// A loop that knows nothing but what was recorded before it restarted.
    #[must_use]
    pub(crate) fn new(settings: Settings, records: AdmissionRecords, random: SmallRng) -> SyncLoop {
        SyncLoop {
            now: Now::default(),
            sources: Sources::default(),
            pods: DesiredPods::default(),
            admission: Admission::new(settings.node, settings.max_pods, settings.kept, records),
            workers: Workers::default(),
            lifecycle: Lifecycle::default(),
            verdicts: Verdicts::default(),
            runtime: RuntimeHealth::default(),
            shuts_down: false,
            work_queue: WorkQueue::new(settings.sync_frequency, random),
            decisions: Decisions::default(),
            cleanups: Cleanups::default(),
            actions: Vec::new(),
        }
    }

    /// Takes an event in and returns what is to be done about it.
    pub(crate) fn handle(&mut self, now: Now, event: Event) -> Vec<Action> {
        self.now = now;
        match event {
            Event::ConfigurationStreamBegan => self.sources.stream_began(),
            Event::Configuration(message) => self.on_configuration(message),
            Event::Lifecycle(message) => self.on_lifecycle(message),
            Event::LifecycleLost => self.lifecycle.lost(self.now.elapsed),
            Event::ProbeResult(message) => self.on_probe_result(message),
            Event::SyncTick => {
                let due = self.work_queue.take_due(self.now.elapsed);
                self.sync(&due, &Cause::Resync);
            }
            Event::HousekeepingTick => self.begin_cleanups(),
            Event::WorkerAcknowledged {
                uid,
                sequence,
                phase,
                boot_id,
            } => self.on_acknowledgement(&uid, sequence, phase, &boot_id),
            Event::WorkerRefused {
                uid,
                sequence,
                reason,
            } => self.on_refusal(&uid, sequence, reason),
            // A newer update of the pod takes an older one over by itself.
            Event::WorkerOutdated(update) if self.workers.is_newest(&update) => {
                self.dispatch(&update.uid, update.kind, Cause::OtherVersion);
            }
            Event::WorkerOutdated(_) => {}
            Event::KnownPods { question, response } => self.finish_cleanups(question, response),
            Event::NodeCapacity(capacity) => self.on_capacity(&capacity),
            Event::StatusSyncerRestarted => {
                let all = reports::everything(&self.verdicts, &self.admission, &self.pods);
                self.actions.extend(all);
                self.begin_cleanups();
            }
        }
        let records = self.admission.changed_records();
        self.actions
            .extend(records.map(Action::SaveAdmissionRecords));
        std::mem::take(&mut self.actions)
    }

    /// What goes and what comes at once is decided together, and in this order: who goes or
    /// needs less makes room; then who is new, as an edited pod is that goes and comes under
    /// another UID; then who waits. Else who waits would get the room of a pod that was only
    /// edited, and that one would be rejected.
    fn on_configuration(&mut self, message: ConfigurationMessage) {
        let mut waits_for_decision = false;
        for effect in self.sources.on(message, &self.pods) {
            match effect {
                SourceEffect::Removed(uids) => {
                    waits_for_decision |= !uids.is_empty();
                    self.remove(&uids);
                }
                SourceEffect::Arrived(pods) => {
                    let departed = self.workers.departed_size();
                    self.operate(Operations::of(pods, &self.pods, departed));
                    waits_for_decision = false;
                }
                SourceEffect::Problem { subject, reason } => {
                    self.report(None, &subject, FAILED_MANIFEST, reason);
                }
                SourceEffect::Node(node) => self.admission.set_node(node),
            }
        }
        if waits_for_decision {
            self.admit_pending();
        }
    }

    fn operate(&mut self, operations: Operations) {
        for pod in operations.accepted() {
            self.sources.take_in(&pod.document);
        }
        for (pod, reason) in operations.refused {
            if self.sources.turn_away(&pod, &reason) {
                let (identity, source) = (pod.identity(), pod.source());
                tracing::warn!(pod = %identity, %source, reason, "a pod is turned away");
                self.report(Some(identity.into()), "", FAILED_MANIFEST, reason);
            }
        }
        for pod in operations.unchanged {
            self.pods.set(pod);
        }
        for pod in &operations.mirrors {
            self.pods.set_mirror(pod);
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
            self.workers.note_desired(&uid);
            self.pods.set(pod);
            self.admit(&uid);
        }
    }

    /// `HandlePodUpdates`, first half: takes new versions in. Returns those whose workers
    /// are to be told; the others are not admitted.
    fn take_updates(&mut self, pods: Vec<DesiredPod>) -> Vec<DesiredPod> {
        let mut to_tell = Vec::new();
        for pod in pods {
            let uid = pod.uid();
            self.pods.set(pod.clone());
            self.admission.reconsider(&uid, &pod.facts);
            match self.admission.state(&uid) {
                AdmissionState::Pending(_) => {}
                // It never ran; its status knows the newest pod.
                AdmissionState::Rejected(_) => self.tell_rejection(&uid),
                _ => to_tell.push(pod),
            }
        }
        self.decide_resizes(false);
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
            self.dispatch(&pod.uid(), UpdateKind::Update, cause);
        }
    }

    /// `HandlePodReconcile`: a status changes nothing, unless it says that the pod has ended
    /// and something of it may run here still; an evicted pod's containers are of no use.
    /// Readiness gates, for which a kubelet syncs a pod, are status-syncer's.
    fn reconcile(&mut self, pod: DesiredPod) {
        let (uid, source, evicted) = (pod.uid(), pod.document.source(), pod.facts.evicted);
        let is_ended = pod.facts.phase.is_terminal() && !self.workers.is_terminated(&uid);
        self.pods.set(pod);
        if is_ended && self.admission.permits(&uid) {
            self.dispatch(&uid, UpdateKind::Update, Cause::Reconciled(source));
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
                self.pods.remove_mirror(uid);
                continue;
            };
            self.work_queue.remove(uid);
            self.decisions.forget(uid);
            // A rejected pod has no worker and must not get one.
            if let Some(AdmissionState::Rejected(_)) = self.admission.forget(uid) {
                continue;
            }
            let source = pod.document.source();
            let departed = DepartedPod {
                document: pod.document,
                requested_at: self.now.wall,
            };
            self.workers.depart(uid, departed);
            self.kill_departed(uid, &Cause::Removed(source));
        }
    }

    fn on_lifecycle(&mut self, message: LifecycleMessage) {
        for effect in self.lifecycle.on(message, self.now.elapsed) {
            match effect {
                LifecycleEffect::PoolHeard { boot_id } => self.workers.heard_of_pool(&boot_id),
                LifecycleEffect::Sync { pod_uids, cause } => self.sync_named(&pod_uids, &cause),
                LifecycleEffect::CleanUpContainers { pod_uid: uid } => {
                    if self.is_known(&uid) {
                        self.actions.push(Action::CleanUpContainers { uid });
                    }
                }
            }
        }
    }

    fn on_probe_result(&mut self, message: ProbeMessage) {
        for effect in self.verdicts.on(message) {
            match effect {
                ProbeEffect::Changed(verdict) => {
                    self.actions.push(Action::SetProbeVerdicts(vec![verdict]));
                }
                ProbeEffect::Sync { pod_uid, cause } => self.sync_named(&[pod_uid], &cause),
                ProbeEffect::Event(event) => {
                    self.actions.extend(reports::of_probe(event, &self.pods));
                }
            }
        }
    }

    fn on_acknowledgement(&mut self, uid: &Uid, sequence: u64, phase: WorkerPhase, boot_id: &str) {
        self.note_pool(boot_id);
        let departed = self.workers.departed(uid).map(|it| &it.document);
        let document = self.pods.document(uid).or(departed);
        let identity = document.map(|document| document.identity().clone());
        self.workers.acknowledged(uid, sequence, phase, identity);
        if is_stopped(phase) {
            self.admit_pending();
        }
    }

    fn on_refusal(&mut self, uid: &Uid, sequence: u64, mut reason: String) {
        truncate(&mut reason, MAX_REASON_BYTES);
        if !self.workers.refused(uid, sequence, &reason) {
            return;
        }
        tracing::warn!(%uid, reason, "the worker pool refused an update");
        let Some(pod) = self.pods.document(uid) else {
            return;
        };
        let reference = pod.identity().into();
        self.decide(uid, Outcome::Refused(reason.clone()));
        self.report(Some(reference), "", "FailedSync", reason);
    }

    fn on_capacity(&mut self, capacity: &v1::NodeCapacity) {
        self.note_pool(&capacity.boot_id);
        self.shuts_down = capacity.shuts_down;
        self.admission.set_capacity(capacity);
        if let Some(postponed) = self.runtime.heard(&capacity.runtime_error) {
            self.sync(&postponed, &Cause::RuntimeBack);
            // Pods may wait to hear what runs: they need not wait for the next tick.
            self.begin_cleanups();
        }
        self.admit_pending();
        self.admission.conditions_are_old();
    }

    /// Sends everything again to a pool that has restarted and so forgotten it.
    fn note_pool(&mut self, boot_id: &str) {
        let Some(ended) = self.workers.note_boot_id(boot_id) else {
            return;
        };
        self.admission.pool_restarted(&ended, self.now.elapsed);
        tracing::info!(
            boot_id,
            "the worker pool has restarted; sending every pod again"
        );
        for uid in self.admission.permitted(&self.pods) {
            self.dispatch(&uid, UpdateKind::Create, Cause::PoolRestarted);
        }
        for uid in self.workers.departed_uids() {
            self.kill_departed(&uid, &Cause::PoolRestarted);
        }
    }

    /// `HandlePodSyncs` of those of these pods that are desired.
    fn sync_named(&mut self, uids: &[String], cause: &Cause) {
        let bounded = uids.iter().take(ipc::limits::MAX_PODS);
        if bounded.clone().any(|uid| !self.is_known(uid)) {
            self.workers.ask_again();
        }
        let desired: Vec<Uid> = bounded
            .filter(|uid| self.pods.get(uid).is_some())
            .map(|uid| Uid::from(uid.as_str()))
            .collect();
        self.sync(&desired, cause);
    }

    /// `HandlePodSyncs`: desired pods are looked at, with nothing changed in what is
    /// desired.
    fn sync(&mut self, uids: &[Uid], cause: &Cause) {
        for uid in uids {
            if !self.admission.permits(uid) {
                continue;
            }
            if self.runtime.postpone(uid) {
                self.decide(uid, Outcome::Postponed(cause.clone()));
            } else if self.workers.is_refused(uid) {
                self.dispatch(uid, UpdateKind::Create, Cause::RetryAfterRefusal);
            } else if self.workers.needs_no_sync(uid, cause) {
                self.work_queue.plan(uid, self.now.elapsed);
            } else {
                self.dispatch(uid, UpdateKind::Sync, cause.clone());
            }
        }
    }

    /// Decides about all pods that wait, oldest first.
    fn admit_pending(&mut self) {
        for uid in self.admission.pending(&self.pods) {
            self.admit(&uid);
        }
        self.decide_resizes(true);
    }

    /// Decides about pods that are to have other CPU or memory, and tells their workers.
    /// Who needs more waits unless all `can_grow`.
    fn decide_resizes(&mut self, can_grow: bool) {
        let (pods, workers) = (&self.pods, &self.workers);
        let can_grow = can_grow && self.sources.all_delivered();
        let now = self.now.wall;
        for (uid, is_news) in self.admission.decide_resizes(pods, workers, can_grow, now) {
            let event = reports::resize_waits(&uid, &self.pods, &self.admission, now);
            self.actions.extend(event.filter(|_| is_news));
            self.dispatch(&uid, UpdateKind::Update, Cause::ResizeDecided);
        }
    }

    /// Decides about one pod that is not admitted yet, and acts on it.
    fn admit(&mut self, uid: &Uid) {
        let now = self.now.elapsed;
        let judgement = self.admission.judge(uid, &self.pods, &self.workers, now);
        let (Some(judgement), Some(desired)) = (judgement, self.pods.get(uid)) else {
            return;
        };
        let pod = &desired.document;
        let source = pod.source();
        let kind = UpdateKind::first(&desired.facts);
        match judgement.state {
            AdmissionState::Pending(awaited) => self.decide(uid, Outcome::Waits(awaited)),
            AdmissionState::Rejected(rejection) => {
                let event = judgement
                    .is_news
                    .then(|| reports::rejected(pod, rejection.clone(), self.now.wall));
                self.decide(uid, Outcome::Rejected(rejection));
                self.tell_rejection(uid);
                self.actions.extend(event);
            }
            AdmissionState::Adopted => self.dispatch(uid, kind, Cause::FoundRunning),
            AdmissionState::Admitted | AdmissionState::Remembered { .. } => {
                self.dispatch(uid, kind, Cause::Added(source));
            }
        }
    }

    /// Tells status-syncer that a pod was rejected, if it was.
    fn tell_rejection(&mut self, uid: &str) {
        let rejection = self.admission.rejection(uid, &self.pods);
        self.actions.extend(rejection.map(Action::RejectPod));
    }

    fn begin_cleanups(&mut self) {
        let wanted = (&self.sources, &self.pods);
        let (admission, workers) = (&mut self.admission, &mut self.workers);
        let actions = self.cleanups.begin(wanted, admission, workers, &self.now);
        self.actions.extend(actions);
    }

    /// Acts on the pool's answer, tells who may forget what.
    fn finish_cleanups(&mut self, question: u64, response: SyncKnownPodsResponse) {
        self.note_pool(&response.boot_id);
        // Whether the runtime is down is for its health to say: asked for now.
        if !response.runtime_error.is_empty() {
            self.actions.push(Action::CheckRuntime);
        }
        let pods = &self.pods;
        self.workers
            .answered(response, |uid| pods.get(uid).is_some());
        self.admission.begin_anew(pods, &mut self.workers, question);
        self.admission.settle_remembered(&self.workers);
        self.admit_pending();
        let (wanted, workers) = ((&self.sources, &self.pods), &mut self.workers);
        let asked = cleanups::after_answer(wanted, &self.admission, workers, question, &self.now);
        for cleanup in asked {
            match cleanup {
                Cleanup::Create(uid) => {
                    self.dispatch(&uid, UpdateKind::Create, Cause::WorkerMissing)
                }
                Cleanup::KillDeparted(uid) => self.kill_departed(&uid, &Cause::KillForgotten),
                Cleanup::KillUndesired(identity, requested_at, cause) => {
                    let uid = Uid::from(identity.uid());
                    let pod = UpdatedPod::RuntimeOnly(identity);
                    self.send(&uid, UpdateKind::Kill { requested_at }, pod, &cause);
                }
            }
        }
        let wanted = (&self.sources, &self.pods);
        let orphaned = cleanups::forget(wanted, &self.workers, &mut self.verdicts, &self.now);
        self.actions.extend(orphaned);
    }

    /// Sends an update to the worker of a desired pod and plans its next resync.
    fn dispatch(&mut self, uid: &Uid, kind: UpdateKind, cause: Cause) {
        let Some(pod) = self.pods.document(uid) else {
            return;
        };
        let (pod, sent) = (UpdatedPod::Desired(pod.clone()), kind.update_type());
        self.send(uid, kind, pod, &cause);
        self.decide(uid, Outcome::Sent { kind: sent, cause });
        self.work_queue.plan(uid, self.now.elapsed);
    }

    /// Sends the KILL of a departed pod, with the time when it was first asked for.
    fn kill_departed(&mut self, uid: &Uid, cause: &Cause) {
        if let Some(departed) = self.workers.departed(uid) {
            let pod = UpdatedPod::Desired(departed.document.clone());
            let requested_at = departed.requested_at;
            self.send(uid, UpdateKind::Kill { requested_at }, pod, cause);
        }
    }

    fn send(&mut self, uid: &Uid, kind: UpdateKind, pod: UpdatedPod, cause: &Cause) {
        let update = WorkerUpdate {
            uid: Arc::clone(uid),
            sequence: self.workers.next_update(uid),
            kind,
            pod,
            verdicts: self.verdicts.of(uid),
            pending_resize: self.admission.pending_resize(uid, &self.pods),
            cause: cause.text(),
        };
        self.actions.push(Action::UpdatePod(update));
    }

    /// Notes what was decided about a desired pod.
    fn decide(&mut self, uid: &Uid, outcome: Outcome) {
        let at = self.now.wall;
        self.decisions.note(uid, Decision { at, outcome });
    }

    fn report(&mut self, pod: Option<v1::PodReference>, subject: &str, why: &str, text: String) {
        let event = messages::warning(pod, subject, why, text, self.now.wall);
        self.actions.push(Action::ReportEvent(event));
    }

    /// Whether housekeeping would find nothing to do: all is as desired, and nothing is
    /// on its way. But for pods that nobody wants, an event tells when that changes.
    #[must_use]
    pub(crate) fn is_settled(&self) -> bool {
        self.sources.all_delivered()
            && self.runtime == RuntimeHealth::Up
            && self.admission.has_decided_all(&self.pods)
            && self
                .workers
                .are_settled(self.admission.permitted(&self.pods))
    }

    /// Whether a pod is desired, or pod-worker-pool has told of it.
    fn is_known(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some() || self.workers.knows(uid)
    }

    /// The loop as a whole.
    #[must_use]
    pub(crate) fn summary(&self) -> LoopSummary {
        let sources = (&self.sources, &self.pods);
        status::summary(sources, &self.lifecycle, &self.runtime, &self.work_queue)
    }

    /// How pleg and the node are. `elapsed` is the time since the start of the process.
    #[must_use]
    pub(crate) fn node_health(&self, elapsed: Duration) -> v1::SetNodeHealthRequest {
        status::node_health(&self.lifecycle, self.shuts_down, elapsed)
    }

    /// Uids of the desired pods, or the one that is named if it is desired.
    #[must_use]
    pub(crate) fn desired_pods(&self, uid: Option<&str>) -> Vec<Uid> {
        self.pods.uids(uid)
    }

    /// A desired pod with its admission and the last decision about it.
    #[must_use]
    pub(crate) fn describe(&self, uid: &str) -> Option<v1::DesiredPod> {
        let (pod, admission) = (self.pods.get(uid)?, self.admission.state(uid));
        let (decision, worker) = (self.decisions.last(uid), self.workers.worker(uid));
        let mirror = self.pods.mirror_of(pod);
        Some(status::describe(pod, mirror, admission, decision, worker))
    }
}
