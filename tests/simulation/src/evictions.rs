//! A node that is short of memory, disk or process ids for a while: which pods it may end and
//! refuse for that, and what must hold of them all along and in the end.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::UnixNanos;
use node_config::EvictionSettings;
use node_layout::{FilesystemUsage, MachineUsage};
use pod::core::PodStatus;
use pod::{Pod, PodExt as _};
use simulated_node::{HALF_FULL, IDLE, MemoryHost};
use simulated_runtime::{Entry, Happening};

use crate::desired::{Desired, VERSION_LABEL};
use crate::uids::uids_by_version;

/// How long the node says that it is short of something after it last was.
pub(crate) const TRANSITION: Duration = Duration::from_secs(20);

/// Longest time after that until a pod is admitted again: looks at the node, and questions
/// about it, are 10 s apart each at most.
pub(crate) const TAKEN_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// How long memory may be below the soft threshold, and the longest grace of a pod that
/// is ended for that.
pub(crate) const SOFT_FOR: Duration = Duration::from_secs(15);
const SOFT_GRACE: Duration = Duration::from_secs(2);

/// Grace of a pod that is ended because the node has less than the hard threshold.
const HARD_GRACE: Duration = Duration::from_secs(1);

/// What a start that was under way may take until it is over.
const START_UNDER_WAY: Duration = Duration::from_secs(2);

/// What the status of a pod says that was refused, and not ended.
const REFUSED: &str = "Pod was rejected: The node had condition";

/// What a node is short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    Memory,
    /// Less than the soft threshold, and more than the hard one.
    SomeMemory,
    Disk,
    Processes,
}

impl Shortage {
    /// What the node is short of in the scenario of a seed, if anything: one of five, with
    /// and without events of the runtime alike.
    pub(crate) fn of_seed(seed: u64) -> Option<Shortage> {
        match seed % 40 {
            0 | 5 => Some(Shortage::Memory),
            10 | 15 => Some(Shortage::Disk),
            20 | 25 => Some(Shortage::SomeMemory),
            30 | 35 => Some(Shortage::Processes),
            _ => None,
        }
    }

    /// What the node wants of each at least: what a kubelet does by default, and two more.
    pub(crate) fn settings() -> EvictionSettings {
        let mut settings = EvictionSettings {
            pressure_transition_period: TRANSITION,
            max_pod_grace: Some(SOFT_GRACE),
            soft: [("memory.available".to_owned(), "200Mi".to_owned())].into(),
            soft_grace: [("memory.available".to_owned(), SOFT_FOR)].into(),
            ..EvictionSettings::default()
        };
        let processes = ("pid.available".to_owned(), "10%".to_owned());
        settings.hard.extend([processes]);
        settings
    }

    /// From now on the node has less than it wants.
    pub(crate) fn begin(self, host: &MemoryHost) {
        let mut state = host.state();
        let has_memory = |mebibytes: u64| MachineUsage {
            memory_available_bytes: mebibytes << 20,
            ..IDLE
        };
        match self {
            Shortage::Memory => state.machine_usage = Some(has_memory(50)),
            Shortage::SomeMemory => state.machine_usage = Some(has_memory(150)),
            Shortage::Processes => {
                state.machine_usage = Some(MachineUsage {
                    processes: IDLE.max_processes - IDLE.max_processes / 20,
                    ..IDLE
                });
            }
            Shortage::Disk => {
                let full = FilesystemUsage {
                    available_bytes: HALF_FULL.capacity_bytes / 20,
                    ..HALF_FULL
                };
                state.filesystem_usage = [full].into();
            }
        }
    }

    /// From now on the node has half of everything.
    pub(crate) fn end(host: &MemoryHost) {
        let mut state = host.state();
        state.machine_usage = None;
        state.filesystem_usage.clear();
    }

    /// Whether a node that is short of it starts a pod that is new.
    pub(crate) fn admits(self, pod: &Desired) -> bool {
        let of_memory = matches!(self, Shortage::Memory | Shortage::SomeMemory);
        let requests_something = pod.sizes().is_some();
        pod.is_critical() || (of_memory && requests_something)
    }

    /// The least grace of a pod that is ended for it.
    fn grace(self) -> Duration {
        match self {
            Shortage::SomeMemory => SOFT_GRACE,
            _ => HARD_GRACE,
        }
    }

    /// How long a node may be short of it before a pod is ended for it.
    pub(crate) fn is_borne_for(self) -> Duration {
        match self {
            Shortage::SomeMemory => SOFT_FOR,
            _ => Duration::ZERO,
        }
    }
}

/// A shortage, and how long it lasted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) of: Shortage,
    pub(crate) began: UnixNanos,
    pub(crate) ended: Option<UnixNanos>,
}

/// A pod that was ended, or refused, because the node is short of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub(crate) uid: String,
    /// When that was first published.
    pub(crate) at: UnixNanos,
    /// Whether it was never to run.
    pub(crate) was_refused: bool,
}

impl Evicted {
    /// What a status says of it, if it does.
    pub(crate) fn of(uid: &str, status: &PodStatus, now: UnixNanos) -> Option<Evicted> {
        let message = status.message.as_deref().unwrap_or_default();
        is_told(status).then(|| Evicted {
            uid: uid.to_owned(),
            at: now,
            was_refused: message.starts_with(REFUSED),
        })
    }
}

fn is_told(status: &PodStatus) -> bool {
    let (phase, reason) = (status.phase.as_deref(), status.reason.as_deref());
    (phase, reason) == (Some("Failed"), Some("Evicted"))
}

/// The versions with what an eviction changes of what they may expect: a short grace, and
/// an end that nobody asked for, at any time since the node was short of something. Of a pod
/// whose manifest is gone, but which was not ended before, nobody may have heard that it was
/// evicted.
pub(crate) fn with_evictions(
    versions: &[Desired],
    evicted: &BTreeMap<String, Evicted>,
    span: Option<Span>,
    history: &[Entry],
) -> Vec<Desired> {
    let mut versions = versions.to_vec();
    let uids = uids_by_version(history);
    let has_changed_since = |pod: &Desired, at: UnixNanos| {
        let uid = uids.get(&pod.version_label());
        let mut history = history.iter();
        history.any(|entry| Some(&entry.pod_uid) == uid && entry.at >= at)
    };
    for pod in &mut versions {
        let Some(span) = span else {
            continue;
        };
        let is_gone = pod.dismissed_at().is_some() && has_changed_since(pod, span.began);
        if evicted.contains_key(&pod.version_label()) || is_gone && !pod.is_critical() {
            pod.evict(span.began, span.of.grace());
        }
    }
    versions
}

/// Pods that were ended or refused though they should not, or run again.
pub(crate) fn broken(
    evicted: &BTreeMap<String, Evicted>,
    span: Option<Span>,
    versions: &[Desired],
    history: &[Entry],
) -> Vec<String> {
    let mut broken = Vec::new();
    let made = uids_by_version(history);
    for (label, evicted) in evicted {
        let mut versions = versions.iter();
        let Some(pod) = versions.find(|pod| pod.version_label() == *label) else {
            broken.push(format!("an unknown {label} was evicted"));
            continue;
        };
        let mut say = |what: &str| broken.push(format!("{pod} {what}: {evicted:?}, {span:?}"));
        if pod.is_critical() {
            say("is critical, and was evicted");
        }
        let Some(span) = span.filter(|span| span.began <= evicted.at) else {
            say("was evicted while nothing was short");
            continue;
        };
        let first = span.began.plus(span.of.is_borne_for());
        if !evicted.was_refused && evicted.at < first {
            say("was evicted before the node had been short of something for long enough");
        }
        let last = span
            .ended
            .map(|ended| ended.plus(TRANSITION + TAKEN_AGAIN_AFTER));
        if evicted.was_refused {
            if last.is_some_and(|last| last < evicted.at) {
                say("was refused while nothing was short any more");
            }
            if span.of.admits(pod) {
                say("was refused though the node has room for it");
            }
            if made.contains_key(label) {
                say("was refused though it had been started");
            }
        }
        let is_late = |entry: &&Entry| entry.at > evicted.at.plus(START_UNDER_WAY);
        let of_pod = history.iter().filter(|entry| entry.pod_uid == evicted.uid);
        let mut started = of_pod.filter(|entry| entry.happening == Happening::Started);
        if started.any(|entry| is_late(&entry)) {
            say("was started after it had been evicted");
        }
    }
    broken
}

/// What the statuses of evicted pods say that is not so, and the statuses of the others.
pub(crate) fn wrong_statuses(
    desired: impl Iterator<Item = String>,
    evicted: &BTreeMap<String, Evicted>,
    served: Vec<Pod>,
) -> (Vec<String>, Vec<Pod>) {
    let mut wrong = Vec::new();
    let uids: Vec<&str> = evicted.values().map(|it| &*it.uid).collect();
    let (ended, others): (Vec<Pod>, Vec<Pod>) = served
        .into_iter()
        .partition(|pod| uids.contains(&pod.uid()));
    let mut wanted: BTreeMap<String, &Evicted> = BTreeMap::new();
    for label in desired {
        if let Some(evicted) = evicted.get(&label) {
            wanted.insert(label, evicted);
        }
    }
    for pod in &ended {
        let status = pod.status.clone().unwrap_or_default();
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let label = labels.get(VERSION_LABEL).cloned().unwrap_or_default();
        let Some(evicted) = wanted.remove(&label) else {
            wrong.push(format!("a status of {label}, which was evicted, is left"));
            continue;
        };
        let init = status.init_container_statuses.iter().flatten();
        let all = init.chain(status.container_statuses.iter().flatten());
        let mut states = all.filter_map(|it| it.state.as_ref());
        let runs = states.any(|state| state.running.is_some());
        let mut conditions = status.conditions.iter().flatten();
        let is_disruption =
            conditions.any(|it| it.type_ == "DisruptionTarget" && it.status == "True");
        if !is_told(&status) || runs || is_disruption == evicted.was_refused {
            wrong.push(format!("the status of {evicted:?} is {status:?}"));
        }
    }
    let missing = wanted.values().map(|it| format!("{it:?} has no status"));
    wrong.extend(missing);
    (wrong, others)
}
