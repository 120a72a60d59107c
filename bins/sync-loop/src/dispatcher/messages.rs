//! What the dispatcher takes in and gives out: settings, events and actions.
//!
//! Which event leads to what (the kubelet's `syncLoopIteration` and `SyncHandler`):
//!
//! | event | leads to |
//! |---|---|
//! | ConfigurationStreamBegan | nothing; each source has to deliver again before its removals count |
//! | Configuration | pods removed, added, updated, reconciled, those of one look at once; admission and resizes of those who wait |
//! | Lifecycle | syncs of its pods; ContainerDied cleans up containers |
//! | LifecycleLost | nothing; how long pleg is silent counts from now on |
//! | ProbeResult | verdict, if it changed: status-syncer is told, and a sync, unless liveness succeeded; try: an event of the pod |
//! | SyncTick | syncs of the pods that are due |
//! | HousekeepingTick | cleanups, first half: questions |
//! | WorkerAcknowledged | a stopped worker: admission and resizes of those who wait; the pool has restarted: every pod again |
//! | WorkerRefused | an event of the pod; its next sync creates the worker anew |
//! | WorkerOutdated | the same update again, with the version of the pod that is desired by now |
//! | KnownPods | cleanups, second half: acts on the answer; the pool has restarted: every pod again |
//! | NodeCapacity | admission and resizes of those who wait; the runtime is back: syncs of what was postponed, cleanups; the pool has restarted: every pod again |
//! | StatusSyncerRestarted | status-syncer is told all verdicts and rejections; housekeeping |

use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_pod_lifecycle_events_response::Message as LifecycleMessage;
use bulkhead_api::v1::watch_pods_response::Message as ConfigurationMessage;
use bulkhead_api::v1::watch_results_response::Message as ProbeMessage;
use clock::UnixNanos;
use pod::PodSource;

use super::admission::{AdmissionRecords, Kept, NodeDescription};
use super::desired_pods::Uid;
use super::outbox::WorkerUpdate;

/// Name of this process in events.
const REPORTER: &str = "sync-loop";

/// What does not change during a run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// This node.
    pub node: NodeDescription,
    /// `maxPods`.
    pub max_pods: u32,
    /// What of the node is not for pods.
    pub kept: Kept,
    /// `syncFrequency`.
    pub sync_frequency: Duration,
}

/// A moment: monotonic time since the start of the process, and wall time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Now {
    /// For intervals.
    pub elapsed: Duration,
    /// For people and for deadlines that outlive this process.
    pub wall: UnixNanos,
    /// Time since the machine was booted, which status-syncer has too.
    pub since_boot: Duration,
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
    /// The stream from pleg broke.
    LifecycleLost,
    /// prober says something.
    ProbeResult(ProbeMessage),
    /// The sync tick, once a second.
    SyncTick,
    /// The housekeeping tick, every two seconds, every 30 while all is as desired.
    HousekeepingTick,
    /// The pool took an update.
    WorkerAcknowledged {
        /// The pod.
        uid: Uid,
        /// Of the update.
        sequence: u64,
        /// What the worker does now.
        phase: v1::WorkerPhase,
        /// Names the process that answered; another one after a restart of the pool.
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
    /// The pool could not take an update: config-sourcer has another version of the
    /// pod by now.
    WorkerOutdated(WorkerUpdate),
    /// The pool answered SyncKnownPods.
    KnownPods {
        /// Which question it answers.
        question: u64,
        /// The answer.
        response: v1::SyncKnownPodsResponse,
    },
    /// The pool told the node's capacity and whether the runtime answers.
    NodeCapacity(v1::NodeCapacity),
    /// status-syncer answered for the first time since it restarted.
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
    /// Begin the stream from config-sourcer anew: its snapshot brings pods again that were
    /// turned away.
    WatchPodsAnew,
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
        /// When that was so, since the machine was booted.
        listed_at: Duration,
    },
    /// Save the admission records.
    SaveAdmissionRecords(AdmissionRecords),
}

/// How often garbage is collected: the kubelet's ContainerGCPeriod.
pub(super) const GARBAGE_COLLECTION_PERIOD: Duration = Duration::from_secs(60);

/// Longest reason of a refusal or failure that is kept, in bytes.
pub(super) const MAX_REASON_BYTES: usize = 1 << 10;

/// An event of type Warning of the sync loop.
pub(crate) fn warning(
    pod: Option<v1::PodReference>,
    subject: &str,
    reason: &str,
    message: String,
    at: UnixNanos,
) -> v1::Event {
    v1::Event {
        pod,
        r#type: v1::EventType::Warning.into(),
        reason: reason.to_owned(),
        message,
        unix_nanos: at.0,
        reporter: REPORTER.to_owned(),
        subject: subject.to_owned(),
        count: 1,
        ..v1::Event::default()
    }
}
