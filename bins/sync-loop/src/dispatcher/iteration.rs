//! Which event leads to which handler: the kubelet's `syncLoopIteration`. One row
//! for each variant of [`Event`].
//!
//! | event | handler |
//! |---|---|
//! | ConfigurationStreamBegan | none; each source has to deliver again before it counts as ready |
//! | Configuration | pod added, changed, gone: additions, updates, reconcile, removes |
//! | Lifecycle | snapshot: syncs of its pods; event, except ContainerRemoved: syncs, and ContainerDied cleans up containers; health: none |
//! | ProbeResult | verdict, only if it changed: status-syncer is told; syncs, unless liveness succeeded; verdict removed: none, it is forgotten; try: none, status-syncer is told an event of the pod |
//! | SyncTick | syncs of the pods that are due |
//! | HousekeepingTick | cleanups, first half: questions |
//! | WorkerAcknowledged | a stopped worker: admission of those who wait; a new life of the pool: every pod again |
//! | WorkerRefused | none; status-syncer is told an event of the pod; its next sync creates the worker anew |
//! | KnownPods | cleanups, second half: acts on the answer; a new life of the pool: every pod again |
//! | NodeCapacity | admission of those who wait; the runtime is back: syncs of what was postponed, cleanups; a new life of the pool: every pod again |
//! | StatusSyncerRestarted | none; status-syncer is told all verdicts and rejections |

use std::sync::Arc;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_pod_lifecycle_events_response::Message as LifecycleMessage;
use bulkhead_api::v1::watch_results_response::Message as ProbeMessage;
use ipc::limits::{
    MAX_CONTAINER_ID_BYTES, MAX_CONTAINER_NAME_BYTES, MAX_PROBE_TEXT_BYTES, truncate,
};
use v1::{PodLifecycleEventType, ProbeKind, ProbeResult, ProbeTryOutcome};

use super::admission::Allocatable;
use super::decision::{Cause, Outcome};
use super::pod_manager::Uid;
use super::verdicts::Recorded;
use super::workers::{PoolLife, is_stopped};
use super::{Action, Event, RuntimeHealth, SyncLoop};

/// Longest reason of a refusal or failure that is kept, in bytes.
const MAX_REASON_BYTES: usize = 1 << 10;

impl SyncLoop {
    /// One iteration.
    pub(super) fn iterate(&mut self, event: Event) {
        match event {
            Event::ConfigurationStreamBegan => self.sources.stream_began(),
            Event::Configuration(message) => self.handle_configuration(message),
            Event::Lifecycle(message) => self.handle_lifecycle(message),
            Event::ProbeResult(message) => self.handle_probe_result(message),
            Event::SyncTick => {
                let due = self.work_queue.take_due(self.now.elapsed);
                self.handle_pod_syncs(&due, &Cause::Resync);
            }
            Event::HousekeepingTick => self.handle_pod_cleanups(),
            Event::WorkerAcknowledged {
                uid,
                sequence,
                phase,
                boot_id,
            } => {
                self.note_pool_life(&boot_id);
                let departed = self
                    .workers
                    .departed(&uid)
                    .map(|departed| &departed.document);
                let document = self.pods.document(&uid).or(departed);
                let identity = document.map(|document| document.identity().clone());
                self.workers.acknowledged(&uid, sequence, phase, identity);
                if is_stopped(phase) {
                    self.admit_pending();
                }
            }
            Event::WorkerRefused {
                uid,
                sequence,
                reason,
            } => {
                self.worker_refused(&uid, sequence, reason);
            }
            Event::KnownPods { question, response } => self.handle_known_pods(question, response),
            Event::NodeCapacity(capacity) => self.handle_node_capacity(&capacity),
            Event::StatusSyncerRestarted => self.tell_status_syncer_everything(),
        }
    }

    fn handle_lifecycle(&mut self, message: LifecycleMessage) {
        match message {
            LifecycleMessage::Snapshot(snapshot) => {
                self.set_pleg_health(snapshot.health.unwrap_or_default());
                let desired = self.desired_among(&snapshot.pod_uids);
                self.handle_pod_syncs(&desired, &Cause::LifecycleSnapshot);
            }
            LifecycleMessage::Health(health) => self.set_pleg_health(health),
            LifecycleMessage::Event(event) => self.handle_lifecycle_event(event),
        }
    }

    fn set_pleg_health(&mut self, mut health: v1::PlegHealth) {
        truncate(&mut health.reason, MAX_REASON_BYTES);
        if health.healthy != self.pleg.healthy {
            tracing::info!(healthy = health.healthy, reason = health.reason, "pleg");
        }
        self.pleg = health;
    }

    fn handle_lifecycle_event(&mut self, event: v1::PodLifecycleEvent) {
        let kind = event.r#type();
        let Some(name) = event_name(kind) else { return };
        let mut container_id = event.container_id;
        truncate(&mut container_id, MAX_CONTAINER_ID_BYTES);
        // A container that is removed changes nothing that a worker would act on.
        if kind != PodLifecycleEventType::ContainerRemoved {
            let desired = self.desired_among(std::slice::from_ref(&event.pod_uid));
            let cause = Cause::LifecycleEvent {
                event: name,
                container_id,
            };
            self.handle_pod_syncs(&desired, &cause);
        }
        if kind == PodLifecycleEventType::ContainerDied && self.is_known(&event.pod_uid) {
            let uid = event.pod_uid;
            self.actions.push(Action::CleanUpContainers { uid });
        }
    }

    fn handle_probe_result(&mut self, message: ProbeMessage) {
        match message {
            ProbeMessage::Verdict(verdict) => self.handle_probe_verdict(verdict),
            ProbeMessage::Attempt(attempt) => self.handle_probe_try(attempt),
            ProbeMessage::Removed(removed) => {
                self.verdicts.remove(&removed.container_id, removed.kind());
            }
            // What is missing from a snapshot is not known yet, so there is
            // nothing to do at its begin or end.
            ProbeMessage::SnapshotBegin(_) | ProbeMessage::SnapshotEnd(_) => {}
        }
    }

    fn handle_probe_verdict(&mut self, verdict: v1::ProbeVerdict) {
        if self.verdicts.record(verdict.clone()) != Recorded::Changed {
            return;
        }
        let (probe, success) = (verdict.kind(), verdict.result() == ProbeResult::Success);
        let cause = Cause::Probe {
            probe: match probe {
                ProbeKind::Readiness => "readiness",
                ProbeKind::Startup => "startup",
                ProbeKind::Liveness | ProbeKind::Unspecified => "liveness",
            },
            container: verdict.container_name.clone(),
            success,
        };
        let desired = self.desired_among(std::slice::from_ref(&verdict.pod_uid));
        self.actions.push(Action::SetProbeVerdicts(vec![verdict]));
        // A container that is alive is what everybody assumes.
        if probe != ProbeKind::Liveness || !success {
            self.handle_pod_syncs(&desired, &cause);
        }
    }

    /// A try is an event of its pod, as the kubelet records it; only verdicts
    /// lead to anything.
    fn handle_probe_try(&mut self, attempt: v1::ProbeTry) {
        let reason = match attempt.outcome() {
            ProbeTryOutcome::Warning => "ProbeWarning",
            ProbeTryOutcome::Failure | ProbeTryOutcome::Error => "Unhealthy",
            ProbeTryOutcome::Unspecified => return,
        };
        let Some(document) = self.pods.document(&attempt.pod_uid) else {
            return;
        };
        let (mut container, mut message) = (attempt.container_name, attempt.message);
        truncate(&mut container, MAX_CONTAINER_NAME_BYTES);
        truncate(&mut message, MAX_PROBE_TEXT_BYTES);
        self.actions.push(Action::ReportEvent(v1::Event {
            pod: Some(document.identity().into()),
            container,
            r#type: v1::EventType::Warning.into(),
            reason: reason.to_owned(),
            message,
            unix_nanos: attempt.unix_nanos,
            reporter: topology::Process::Prober.name().to_owned(),
            count: 1,
            ..v1::Event::default()
        }));
    }

    fn handle_node_capacity(&mut self, capacity: &v1::NodeCapacity) {
        self.note_pool_life(&capacity.boot_id);
        if capacity.cpu_millis > 0 && capacity.memory_bytes > 0 {
            let settings = &self.settings;
            let allocatable = Allocatable::new(capacity, &settings.reserved, settings.max_pods);
            self.allocatable = Some(allocatable);
        }
        if capacity.runtime_error.is_empty() {
            self.runtime_answers();
        } else {
            self.runtime_failed(&capacity.runtime_error);
        }
        self.admit_pending();
    }

    /// The runtime does not answer: pods are not synced until it does.
    fn runtime_failed(&mut self, reason: &str) {
        let mut error = reason.to_owned();
        truncate(&mut error, MAX_REASON_BYTES);
        match &mut self.runtime {
            RuntimeHealth::Down { error: known, .. } => *known = error,
            RuntimeHealth::Up => {
                tracing::warn!(
                    error,
                    "the container runtime does not answer; pods are not synced"
                );
                self.runtime = RuntimeHealth::Down {
                    error,
                    postponed: Default::default(),
                };
            }
        }
    }

    fn runtime_answers(&mut self) {
        let RuntimeHealth::Down { postponed, .. } = std::mem::take(&mut self.runtime) else {
            return;
        };
        tracing::info!(
            pods = postponed.len(),
            "the container runtime answers again"
        );
        let postponed: Vec<Uid> = postponed.into_iter().collect();
        self.handle_pod_syncs(&postponed, &Cause::RuntimeBack);
        // Pods may wait to hear what runs: they need not wait for the next tick.
        self.handle_pod_cleanups();
    }

    /// Sends everything again when the pool is not the one that was known.
    pub(super) fn note_pool_life(&mut self, boot_id: &str) {
        if self.workers.note_boot_id(boot_id) != PoolLife::New {
            return;
        }
        tracing::info!(
            boot_id,
            "the worker pool has restarted; sending every pod again"
        );
        self.send_everything_again();
    }

    fn worker_refused(&mut self, uid: &Uid, sequence: u64, mut reason: String) {
        truncate(&mut reason, MAX_REASON_BYTES);
        if !self.workers.refused(uid, sequence, &reason) {
            return;
        }
        tracing::warn!(%uid, reason, "the worker pool refused an update");
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        let reference = pod.document.identity().into();
        self.decide(uid, Outcome::Refused(reason.clone()));
        self.report(Some(reference), "", "FailedSync", reason);
    }

    fn tell_status_syncer_everything(&mut self) {
        let verdicts = self.verdicts.all();
        if !verdicts.is_empty() {
            self.actions.push(Action::SetProbeVerdicts(verdicts));
        }
        let pods: Vec<Uid> = self.pods.iter().map(|(uid, _)| Arc::clone(uid)).collect();
        for uid in pods {
            self.tell_rejection(&uid);
        }
    }

    fn desired_among(&self, uids: &[String]) -> Vec<Uid> {
        let bounded = uids.iter().take(ipc::limits::MAX_PODS);
        bounded
            .filter(|uid| self.pods.get(uid).is_some())
            .map(|uid| Uid::from(uid.as_str()))
            .collect()
    }

    fn is_known(&self, uid: &str) -> bool {
        let listed = self
            .workers
            .runtime_pods()
            .is_some_and(|pods| pods.contains_key(uid));
        listed
            || self.pods.get(uid).is_some()
            || self.workers.worker(uid).is_some()
            || self.workers.departed(uid).is_some()
    }
}

fn event_name(kind: PodLifecycleEventType) -> Option<&'static str> {
    match kind {
        PodLifecycleEventType::Unspecified => None,
        PodLifecycleEventType::ContainerStarted => Some("ContainerStarted"),
        PodLifecycleEventType::ContainerDied => Some("ContainerDied"),
        PodLifecycleEventType::ContainerRemoved => Some("ContainerRemoved"),
        PodLifecycleEventType::ContainerChanged => Some("ContainerChanged"),
        PodLifecycleEventType::PodSync => Some("PodSync"),
    }
}
