//! Whether a pod may start on this node. Each desired pod has a state here; what
//! was decided is recorded, so that it stands when sync-loop restarts.
//!
//! The kubelet admits each pod that it is given, after its own restart too. Here
//! a pod that runs is adopted, and what was decided before stands; so nothing is
//! decided before the worker pool has said which pods run.
//!
//! What does not live here: what follows from a decision (`dispatcher`).
//! Preemption for critical pods is not done.

mod checks;
mod features;
mod node;
mod node_affinity;
mod operating_system;
mod ports;
mod pressure;
mod records;
mod rejection;
mod resizes;
mod resources;
mod sysctls;
mod taints;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1::{ApiNode, NodeCapacity, PendingResize, RejectPodRequest};
use clock::UnixNanos;
use eviction::{NodeCondition, Threshold};

use checks::admit;
use features::NodeFeatures;
pub(crate) use node::NodeDescription;
pub(crate) use records::{AdmissionRecord, AdmissionRecords};
pub(crate) use rejection::Rejection;
pub(crate) use resizes::Allocation;
use resizes::Waits;
use resources::Allocatable;

use super::desired_pods::{DesiredPods, Uid};
use super::pod_facts::PodFacts;
use super::workers::Workers;

/// How long a pod that was admitted before a restart of sync-loop, or of the pool, is given
/// to show whether it still uses its resources: its worker needs a sync and a round of
/// housekeeping.
const REMEMBERED_SETTLES_AFTER: Duration = Duration::from_secs(30);

/// What a pod waits for before it can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The worker pool's first answer about the pods that run.
    WorkerPool,
    /// The container runtime, without which nobody knows what runs.
    Runtime,
    /// The capacity of the node.
    Capacity,
    /// Pods that may or may not need their resources: those admitted before a restart, and
    /// those that are to begin anew.
    OtherPods,
}

/// Whether a desired pod may run.
///
/// ```text
/// Pending --> Admitted | Remembered | Adopted | Rejected      Remembered --> Admitted
/// Rejected --> Pending          Admitted | Adopted --> Remembered
/// Admitted | Remembered | Adopted --> Pending
/// ```
///
/// - Pending -> Adopted: it runs already, or has a worker.
/// - Pending -> Rejected: it was rejected before, or fails a check now.
/// - Pending -> Remembered: it was admitted before sync-loop restarted.
/// - Pending -> Admitted: it passed all checks.
/// - Rejected -> Pending: its spec or its labels have changed; it never ran.
/// - Remembered -> Admitted: it is known by now whether it uses its resources.
/// - Admitted, Remembered, Adopted -> Pending: it has ended and begins anew.
/// - Admitted, Adopted -> Remembered: it had ended, and the pool has restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionState {
    /// Not checked yet.
    Pending(Awaited),
    /// Passed.
    Admitted,
    /// Passed before sync-loop, or the pool, restarted; whether it still runs is not known
    /// yet.
    Remembered {
        /// When that was noticed, since the start of the process.
        since: Duration,
    },
    /// Ran already when this process learned of it; never checked.
    Adopted,
    /// Failed, for good unless its spec or its labels change.
    Rejected(Rejection),
}

impl AdmissionState {
    /// Whether the pod's worker may work for it.
    #[must_use]
    pub(crate) fn permits_running(&self) -> bool {
        matches!(
            self,
            AdmissionState::Admitted | AdmissionState::Remembered { .. } | AdmissionState::Adopted
        )
    }
}

/// What was decided about a pod just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// Its state from now on.
    pub state: AdmissionState,
    /// Whether the records did not say the same before.
    pub is_news: bool,
}

/// What of the node is not for pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// What is taken off the capacity, as quantities by resource name.
    pub reserved: BTreeMap<String, String>,
    /// What the hard ones of these keep back is taken off as well.
    pub thresholds: Vec<Threshold>,
}

/// Admission of all desired pods.
#[derive(Debug)]
pub(crate) struct Admission {
    /// As the API server holds it, if that is known.
    node: NodeDescription,
    /// As it is configured.
    configured_node: NodeDescription,
    max_pods: u32,
    kept: Kept,
    /// What the node suffers from.
    conditions: Vec<NodeCondition>,
    /// Whether they were told just now.
    conditions_are_new: bool,
    /// Known once the pool has told the capacity.
    allocatable: Option<Allocatable>,
    /// Known with the capacity.
    features: NodeFeatures,
    /// A desired pod without a state waits for the pool.
    states: BTreeMap<Uid, AdmissionState>,
    records: AdmissionRecords,
    records_changed: bool,
}

impl Admission {
    /// Admission that knows nothing but what was recorded.
    #[must_use]
    pub(crate) fn new(
        node: NodeDescription,
        max_pods: u32,
        kept: Kept,
        records: AdmissionRecords,
    ) -> Admission {
        Admission {
            configured_node: node.clone(),
            node,
            max_pods,
            kept,
            conditions: Vec::new(),
            conditions_are_new: false,
            allocatable: None,
            features: NodeFeatures::default(),
            states: BTreeMap::new(),
            records,
            records_changed: false,
        }
    }

    /// The Node, as the API server holds it.
    pub(crate) fn set_node(&mut self, node: ApiNode) {
        self.node = self.configured_node.held_as(node);
    }

    /// The pool told the capacity of the node; zero is none.
    pub(crate) fn set_capacity(&mut self, capacity: &NodeCapacity) {
        if capacity.cpu_millis > 0 && capacity.memory_bytes > 0 {
            let pages = capacity.huge_pages.values();
            let huge_page_bytes = pages.fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
            let kept = eviction::hard_reservations(
                &self.kept.thresholds,
                capacity.memory_bytes,
                capacity.ephemeral_storage_bytes,
                huge_page_bytes,
            );
            let allocatable = Allocatable::new(capacity, &self.kept.reserved, &kept, self.max_pods);
            self.allocatable = Some(allocatable);
            self.features = self.features.told(capacity);
            self.conditions = pressure::conditions(capacity);
            self.conditions_are_new = true;
        }
    }

    /// The conditions of the node may have changed from now on.
    pub(crate) fn conditions_are_old(&mut self) {
        self.conditions_are_new = false;
    }

    /// The state of a desired pod.
    #[must_use]
    pub(crate) fn state(&self, uid: &str) -> &AdmissionState {
        const FIRST: &AdmissionState = &AdmissionState::Pending(Awaited::WorkerPool);
        self.states.get(uid).unwrap_or(FIRST)
    }

    /// Whether a desired pod's worker may work for it.
    #[must_use]
    pub(crate) fn permits(&self, uid: &str) -> bool {
        self.state(uid).permits_running()
    }

    /// Whether every desired pod was admitted or rejected.
    #[must_use]
    pub(crate) fn has_decided_all(&self, pods: &DesiredPods) -> bool {
        let mut states = pods.iter().map(|(uid, _)| self.state(uid));
        states.all(|state| !matches!(state, AdmissionState::Pending(_)))
    }

    /// The desired pods whose workers may work for them.
    #[must_use]
    pub(crate) fn permitted(&self, pods: &DesiredPods) -> Vec<Uid> {
        let uids = pods.iter().map(|(uid, _)| uid);
        uids.filter(|uid| self.permits(uid)).cloned().collect()
    }

    /// The desired pods that have, or may get, a worker.
    #[must_use]
    pub(crate) fn not_rejected(&self, pods: &DesiredPods) -> Vec<String> {
        let uids = pods.iter().map(|(uid, _)| uid);
        uids.filter(|uid| !matches!(self.state(uid), AdmissionState::Rejected(_)))
            .map(ToString::to_string)
            .collect()
    }

    /// What status-syncer is told of a desired pod that was rejected; `None` for any
    /// other.
    #[must_use]
    pub(crate) fn rejection(&self, uid: &str, pods: &DesiredPods) -> Option<RejectPodRequest> {
        let AdmissionState::Rejected(rejection) = self.state(uid) else {
            return None;
        };
        Some(RejectPodRequest {
            pod: Some(pods.document(uid)?.to_message()),
            reason: rejection.reason.clone(),
            message: rejection.message.clone(),
        })
    }

    /// The desired pods that wait for a decision, oldest first.
    #[must_use]
    pub(crate) fn pending(&self, pods: &DesiredPods) -> Vec<Uid> {
        let mut pending: Vec<_> = pods
            .iter()
            .filter(|(uid, _)| matches!(self.state(uid), AdmissionState::Pending(_)))
            .collect();
        pending.sort_by(|(_, first), (_, second)| first.facts.order.cmp(&second.facts.order));
        pending
            .into_iter()
            .map(|(uid, _)| Arc::clone(uid))
            .collect()
    }

    /// Decides about a desired pod, and records the decision. `now` is the time
    /// since the start of the process.
    pub(crate) fn judge(
        &mut self,
        uid: &Uid,
        pods: &DesiredPods,
        workers: &Workers,
        now: Duration,
    ) -> Option<Judgement> {
        let facts = &pods.get(uid)?.facts;
        let state = self.state_of(uid, facts, pods, workers, now);
        let record = match &state {
            AdmissionState::Pending(_) => None,
            AdmissionState::Rejected(rejection) => {
                Some(AdmissionRecord::rejected(rejection, facts))
            }
            // What it was admitted with stays in force until a resize is decided.
            _ if self.records.allocation(uid).is_some() => None,
            AdmissionState::Admitted
            | AdmissionState::Remembered { .. }
            | AdmissionState::Adopted => Some(AdmissionRecord::Admitted(Allocation::of(facts))),
        };
        let is_news = record.is_some_and(|record| self.records.set(uid, record));
        self.records_changed |= is_news;
        self.states.insert(Arc::clone(uid), state.clone());
        Some(Judgement { state, is_news })
    }

    /// Why a pod does not get the CPU and memory that it is to have, if it has to wait.
    #[must_use]
    pub(crate) fn pending_resize(&self, uid: &str, pods: &DesiredPods) -> Option<PendingResize> {
        let facts = &pods.get(uid)?.facts;
        let allocation = self.records.allocation(uid)?;
        allocation.resized(facts)?;
        let undecided = Waits::undecided();
        let (is_infeasible, message) = match &allocation.pending {
            Some(pending) => (pending.is_infeasible, pending.message.clone()),
            None => (undecided.is_infeasible, undecided.message),
        };
        Some(PendingResize {
            is_infeasible,
            message,
        })
    }

    /// Decides about all pods that are to have other CPU or memory than they were admitted
    /// with, and records it. Those that request more are not decided before it is known
    /// what runs and what the node has, and not without `sources_ready`. What has ended is
    /// to have what it says, if it ever begins again. Pods that are not judged yet are left
    /// out. Returns the pods of which something else holds now, and whether people are to be
    /// told that they wait.
    pub(crate) fn decide_resizes(
        &mut self,
        pods: &DesiredPods,
        workers: &Workers,
        sources_ready: bool,
        now: UnixNanos,
    ) -> Vec<(Uid, bool)> {
        let can_decide = sources_ready && workers.has_listed();
        let mut resized = Vec::new();
        for (uid, pod) in pods.iter() {
            let Some(allocation) = self.records.allocation(uid) else {
                continue;
            };
            if !self.permits(uid) {
                continue;
            }
            let is_resized = allocation.resized(&pod.facts).is_some();
            let has_ended = pod.facts.phase.is_terminal() || workers.is_terminated(uid);
            if is_resized && !has_ended {
                resized.push((uid, &pod.facts, resizes::rank(&pod.facts, allocation)));
            } else if is_resized || allocation.pending.is_some() {
                // It has ended, or is to have again what it has.
                self.allocate(uid, Allocation::of(&pod.facts));
            }
        }
        resized.sort_by(|(_, _, first), (_, _, second)| first.cmp(second));
        let resized = resized.into_iter().map(|(uid, facts, _)| (uid, facts));
        resized
            .filter_map(|(uid, facts)| {
                let before = self.records.allocation(uid)?.clone();
                let in_force = before.resized(facts)?;
                let allocatable = self.allocatable.as_ref().filter(|_| can_decide);
                let decided = match allocatable {
                    _ if !in_force.is_exceeded_by(facts) => Ok(()),
                    None => return None,
                    Some(allocatable) => resizes::decide(facts, allocatable, || {
                        pressure::check(facts, &self.conditions)?;
                        let others = self.others(uid, pods, workers);
                        let others: Vec<_> = others.iter().map(|(_, it)| &**it).collect();
                        resources::check(facts, &others, allocatable)
                    }),
                };
                let after = match decided {
                    Ok(()) => Allocation::of(facts),
                    Err(waits) => before.waiting(facts, waits, now.0),
                };
                let is_news = after.pending.is_some() && !after.is_like(&before);
                let is_changed = self.allocate(uid, after);
                is_changed.then(|| (Arc::clone(uid), is_news))
            })
            .collect()
    }

    /// Records what a pod has; whether that is news.
    fn allocate(&mut self, uid: &str, allocation: Allocation) -> bool {
        let record = AdmissionRecord::Admitted(allocation);
        let is_news = self.records.set(uid, record);
        self.records_changed |= is_news;
        is_news
    }

    /// A pod that was admitted before a restart and is seen running is like any
    /// other now.
    pub(crate) fn settle_remembered(&mut self, workers: &Workers) {
        for (uid, state) in &mut self.states {
            if matches!(state, AdmissionState::Remembered { .. }) && workers.runs(uid) {
                *state = AdmissionState::Admitted;
            }
        }
    }

    /// The pool was started anew, and these pods had ended. It is not known any more that they
    /// use nothing: the pool has not looked at them yet.
    pub(crate) fn pool_restarted(&mut self, ended: &[Uid], since: Duration) {
        for uid in ended {
            let state = self.states.get_mut(uid);
            if let Some(state) = state.filter(|state| state.permits_running()) {
                *state = AdmissionState::Remembered { since };
            }
        }
    }

    /// Has a rejected pod judged again if it asks for something else than the one that was
    /// judged.
    pub(crate) fn reconsider(&mut self, uid: &str, pod: &PodFacts) {
        if let Some(AdmissionRecord::Rejected { admission_hash, .. }) = self.records.get(uid)
            && matches!(self.state(uid), AdmissionState::Rejected(_))
            && asks_anew(pod, admission_hash)
        {
            self.forget(uid);
        }
    }

    /// Has those judged again that begin anew, as the answer to `question` shows: they have
    /// given everything back and may ask for something else.
    pub(crate) fn begin_anew(&mut self, pods: &DesiredPods, workers: &mut Workers, question: u64) {
        for uid in workers.take_forgotten(pods, |uid| self.permits(uid), question) {
            self.forget(&uid);
        }
    }

    /// Forgets a pod that is desired no longer, or is to be judged again; returns its last
    /// state.
    pub(crate) fn forget(&mut self, uid: &str) -> Option<AdmissionState> {
        self.records_changed |= self.records.remove(uid);
        self.states.remove(uid)
    }

    /// Forgets the records of pods that are not desired.
    pub(crate) fn retain_records(&mut self, pods: &DesiredPods) {
        self.records_changed |= self.records.retain(|uid| pods.get(uid).is_some());
    }

    /// The records, if they have changed since this was called last.
    pub(crate) fn changed_records(&mut self) -> Option<AdmissionRecords> {
        std::mem::take(&mut self.records_changed).then(|| self.records.clone())
    }

    /// See the diagram at [`AdmissionState`].
    fn state_of(
        &self,
        uid: &str,
        pod: &PodFacts,
        pods: &DesiredPods,
        workers: &Workers,
        now: Duration,
    ) -> AdmissionState {
        if workers.worker(uid).is_some() || workers.runs(uid) {
            return AdmissionState::Adopted;
        }
        if !workers.has_answered() {
            return AdmissionState::Pending(Awaited::WorkerPool);
        }
        if !workers.has_listed() {
            return AdmissionState::Pending(Awaited::Runtime);
        }
        match self.records.get(uid) {
            Some(AdmissionRecord::Admitted(_)) => return AdmissionState::Remembered { since: now },
            Some(AdmissionRecord::Rejected {
                reason,
                message,
                admission_hash,
            }) if !asks_anew(pod, admission_hash) => {
                return AdmissionState::Rejected(Rejection {
                    reason: reason.clone(),
                    message: message.clone(),
                });
            }
            Some(AdmissionRecord::Rejected { .. }) | None => {}
        }
        // It is to be stopped, or has ended: there is nothing to admit.
        if pod.marked_for_deletion || pod.phase.is_terminal() {
            return AdmissionState::Admitted;
        }
        self.check_room(uid, pod, pods, workers, now)
    }

    fn check_room(
        &self,
        uid: &str,
        pod: &PodFacts,
        pods: &DesiredPods,
        workers: &Workers,
        now: Duration,
    ) -> AdmissionState {
        let Some(allocatable) = &self.allocatable else {
            return AdmissionState::Pending(Awaited::Capacity);
        };
        if !self.features.can_judge(pod) {
            return AdmissionState::Pending(Awaited::Runtime);
        }
        if let Err(rejection) = pressure::check(pod, &self.conditions) {
            // A rejection is for good, so it rests on no condition that may be over.
            return match self.conditions_are_new {
                true => AdmissionState::Rejected(rejection),
                false => AdmissionState::Pending(Awaited::Capacity),
            };
        }
        let has = (allocatable, &self.features);
        let others = self.others(uid, pods, workers);
        let active: Vec<&PodFacts> = others.iter().map(|(_, facts)| &**facts).collect();
        let certain = others
            .iter()
            .filter(|(other, _)| !self.is_uncertain(other, workers, now));
        let certain: Vec<&PodFacts> = certain.map(|(_, facts)| &**facts).collect();
        let Err(rejection) = admit(pod, &active, &self.node, has) else {
            return AdmissionState::Admitted;
        };
        if admit(pod, &certain, &self.node, has).is_ok() {
            return AdmissionState::Pending(Awaited::OtherPods);
        }
        AdmissionState::Rejected(rejection)
    }

    /// The other pods that use the node's resources, with the CPU and memory that are in
    /// force.
    fn others<'a>(
        &self,
        uid: &str,
        pods: &'a DesiredPods,
        workers: &Workers,
    ) -> Vec<(&'a Uid, Cow<'a, PodFacts>)> {
        let others = pods.iter().filter(|(other, known)| {
            let ended = known.facts.phase.is_terminal() || workers.is_terminated(other);
            ***other != *uid && !ended && self.permits(other)
        });
        others
            .map(|(other, known)| {
                let allocation = self.records.allocation(other);
                let in_force = allocation.and_then(|it| it.resized(&known.facts));
                let facts = match in_force {
                    Some(in_force) => Cow::Owned(in_force.put_into(&known.facts)),
                    None => Cow::Borrowed(&*known.facts),
                };
                (other, facts)
            })
            .collect()
    }

    /// Whether it is not known yet if a pod uses its resources, or will: a rejection is for
    /// good, so it must not rest on a pod that may have ended long ago, nor on one that is to
    /// be judged itself before it begins anew.
    fn is_uncertain(&self, uid: &str, workers: &Workers, now: Duration) -> bool {
        if workers.begins_anew(uid) {
            return true;
        }
        let AdmissionState::Remembered { since } = self.state(uid) else {
            return false;
        };
        let settled = now.saturating_sub(*since) >= REMEMBERED_SETTLES_AFTER;
        !settled && !workers.runs(uid)
    }
}

/// Whether a pod that was rejected, with this hash, asks for something else by now. One
/// that is to go, or has ended, asks for nothing.
fn asks_anew(pod: &PodFacts, admission_hash: &str) -> bool {
    pod.admission_hash != admission_hash && !pod.marked_for_deletion && !pod.phase.is_terminal()
}
