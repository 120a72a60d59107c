//! The sync loop without its I/O: events in, actions out. No clock, no tasks; the
//! time comes with each event.
//!
//! - [`iteration`]: which event leads to which handler;
//! - [`configuration`]: messages of config-sourcer as additions, updates, removes;
//! - [`handlers`]: the six of the kubelet's `SyncHandler`;
//! - [`pod_manager`], [`sources`], [`workers`], [`verdicts`], [`work_queue`]: what
//!   is known;
//! - [`admission`]: whether a pod may start;
//! - [`decision`]: what was last decided about a pod, and why;
//! - [`outbox`]: what is on its way to the workers.
//!
//! What does not live here: receiving, sending and saving (`shell`).

pub(crate) mod admission;
mod configuration;
pub(crate) mod decision;
mod handlers;
mod iteration;
pub(crate) mod outbox;
pub(crate) mod pod_facts;
pub(crate) mod pod_manager;
pub(crate) mod sources;
mod status;
pub(crate) mod verdicts;
pub(crate) mod work_queue;
pub(crate) mod workers;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_pod_lifecycle_events_response::Message as LifecycleMessage;
use bulkhead_api::v1::watch_pods_response::Message as ConfigurationMessage;
use bulkhead_api::v1::watch_results_response::Message as ProbeMessage;
use clock::UnixNanos;
use pod::PodSource;
use rand::rngs::SmallRng;

use admission::{AdmissionRecords, Allocatable, NodeDescription};
use decision::{Cause, Decision, Outcome};
use outbox::{Subject, Work, WorkerUpdate};
use pod_manager::{PodManager, Uid};
use sources::Sources;
use verdicts::Verdicts;
use work_queue::WorkQueue;
use workers::Workers;

pub(crate) use status::LoopSummary;

/// How much longer than the sync frequency a pod may wait for its resync, as a
/// fraction: so that pods that came together do not stay together (the kubelet's
/// workerResyncIntervalJitterFactor).
const RESYNC_JITTER: f64 = 0.5;

/// Name in events.
const REPORTER: &str = "sync-loop";

/// A moment: monotonic time since the start of the process, and wall time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Now {
    /// For intervals.
    pub elapsed: Duration,
    /// For people and for deadlines that outlive this process.
    pub wall: UnixNanos,
}

/// What does not change while the process lives.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// This node.
    pub node: NodeDescription,
    /// `maxPods`.
    pub max_pods: u32,
    /// What is taken off the capacity, as quantities by resource name.
    pub reserved: BTreeMap<String, String>,
    /// `syncFrequency`.
    pub sync_frequency: Duration,
}

/// Something happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A stream from config-sourcer began.
    ConfigurationStreamBegan,
    /// config-sourcer says something.
    Configuration(ConfigurationMessage),
    /// pleg says something.
    Lifecycle(LifecycleMessage),
    /// prober says something.
    ProbeResult(ProbeMessage),
    /// The sync tick, once a second.
    SyncTick,
    /// The housekeeping tick, every two seconds.
    HousekeepingTick,
    /// The pool took an update.
    WorkerAcknowledged {
        /// The pod.
        uid: Uid,
        /// Of the update.
        sequence: u64,
        /// What the worker does now.
        phase: v1::WorkerPhase,
        /// Which life of the pool answered.
        boot_id: String,
    },
    /// The pool refused an update for good.
    WorkerRefused {
        /// The pod.
        uid: Uid,
        /// Of the update.
        sequence: u64,
        /// Why.
        reason: String,
    },
    /// The pool answered SyncKnownPods.
    KnownPods {
        /// Which question it answers.
        question: u64,
        /// The answer.
        response: v1::SyncKnownPodsResponse,
    },
    /// The pool told the node's capacity and whether the runtime answers.
    NodeCapacity(v1::NodeCapacity),
    /// status-syncer answered for the first time in a new life.
    StatusSyncerRestarted,
}

/// Something is to be done. None of it is waited for.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Hand an update to a worker.
    UpdatePod(WorkerUpdate),
    /// Ask for all workers and runtime pods.
    SyncKnownPods {
        /// To be given back with the answer.
        question: u64,
        /// The pods that are desired.
        desired: Vec<String>,
        /// The sources of whose other pods finished workers may be forgotten.
        delivered: Vec<PodSource>,
    },
    /// Remove dead containers of a pod.
    CleanUpContainers {
        /// The pod.
        uid: String,
    },
    /// Collect garbage.
    CollectGarbage {
        /// The pods that are desired.
        desired: Vec<String>,
        /// Whether what belongs to others may go.
        sources_ready: bool,
    },
    /// Ask for the runtime's health now: it was seen failing.
    CheckRuntime,
    /// Tell status-syncer what probes found.
    SetProbeVerdicts(Vec<v1::ProbeVerdict>),
    /// Tell status-syncer that a pod was rejected, once that is on disk.
    RejectPod(v1::RejectPodRequest),
    /// Tell status-syncer that something happened.
    ReportEvent(v1::Event),
    /// Tell status-syncer which pods there are.
    RemoveOrphanedStatuses {
        /// Uids of desired pods, and of those that still run.
        known: Vec<String>,
        /// The sources of whose other pods the statuses may go.
        delivered: Vec<PodSource>,
    },
    /// Save the admission records.
    SaveAdmissionRecords(AdmissionRecords),
}

/// Whether the container runtime answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum RuntimeHealth {
    /// As far as is known.
    #[default]
    Up,
    /// It does not.
    Down {
        error: String,
        /// Pods that something happened to meanwhile.
        postponed: BTreeSet<Uid>,
    },
}

/// The sync loop.
#[derive(Debug)]
pub(crate) struct SyncLoop {
    settings: Settings,
    random: SmallRng,
    now: Now,
    pods: PodManager,
    sources: Sources,
    workers: Workers,
    verdicts: Verdicts,
    work_queue: WorkQueue,
    records: AdmissionRecords,
    records_changed: bool,
    allocatable: Option<Allocatable>,
    runtime: RuntimeHealth,
    pleg: v1::PlegHealth,
    next_garbage_collection: Duration,
    actions: Vec<Action>,
}

impl SyncLoop {
    /// A loop that knows nothing but what an earlier life has recorded.
    #[must_use]
    pub(crate) fn new(settings: Settings, records: AdmissionRecords, random: SmallRng) -> SyncLoop {
        SyncLoop {
            settings,
            random,
            now: Now::default(),
            pods: PodManager::default(),
            sources: Sources::default(),
            workers: Workers::default(),
            verdicts: Verdicts::default(),
            work_queue: WorkQueue::default(),
            records,
            records_changed: false,
            allocatable: None,
            runtime: RuntimeHealth::default(),
            pleg: v1::PlegHealth::default(),
            next_garbage_collection: Duration::ZERO,
            actions: Vec::new(),
        }
    }

    /// Takes an event in and returns what is to be done about it.
    pub(crate) fn handle(&mut self, now: Now, event: Event) -> Vec<Action> {
        self.now = now;
        self.iterate(event);
        if std::mem::take(&mut self.records_changed) {
            self.actions
                .push(Action::SaveAdmissionRecords(self.records.clone()));
        }
        std::mem::take(&mut self.actions)
    }

    /// Hands work to the worker of a desired pod and plans its next resync.
    fn dispatch(&mut self, uid: &Uid, work: Work, cause: Cause) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        let kind = work.update_type();
        let update = WorkerUpdate {
            uid: Arc::clone(uid),
            sequence: self.workers.next_update(uid),
            work,
            subject: Subject::Desired(pod.document.clone()),
            verdicts: self.verdicts.of(uid),
            cause: cause.text(),
        };
        pod.decision = Some(Decision {
            at: self.now.wall,
            outcome: Outcome::Sent { kind, cause },
        });
        self.actions.push(Action::UpdatePod(update));
        self.plan_resync(uid);
    }

    fn plan_resync(&mut self, uid: &Uid) {
        let frequency = self.settings.sync_frequency;
        let wait = backoff::lengthened(frequency, RESYNC_JITTER, &mut self.random);
        self.work_queue.enqueue(uid, self.now.elapsed + wait);
    }

    fn decide(&mut self, uid: &str, outcome: Outcome) {
        let at = self.now.wall;
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.decision = Some(Decision { at, outcome });
        }
    }

    fn report(
        &mut self,
        pod: Option<v1::PodReference>,
        subject: &str,
        reason: &str,
        message: String,
    ) {
        self.actions.push(Action::ReportEvent(v1::Event {
            pod,
            r#type: v1::EventType::Warning.into(),
            reason: reason.to_owned(),
            message,
            unix_nanos: self.now.wall.0,
            reporter: REPORTER.to_owned(),
            subject: subject.to_owned(),
            count: 1,
            ..v1::Event::default()
        }));
    }
}
