//! What is known of the worker pool: which workers and runtime pods it has, what
//! it was last sent, and which pods it still has to stop.
//!
//! The pool's answers may be older than what was sent meanwhile. So each update
//! has a number, and so has each question; an answer counts for a pod only when
//! it was asked for after the pool had acknowledged the pod's last update.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bulkhead_api::v1::{RuntimePodState, SyncKnownPodsResponse, WorkerPhase, WorkerState};
use clock::UnixNanos;
use pod::{PodDocument, PodIdentity};

use super::cause::Cause;
use super::desired_pods::{DesiredPods, Uid};
use super::outbox::WorkerUpdate;

/// Workers and runtime pods that are taken from one answer: all desired pods and
/// as many that are being stopped.
const MAX_LISTED: usize = 2 * ipc::limits::MAX_PODS;

/// A worker, as last heard of.
#[derive(Clone, Debug)]
pub(crate) struct WorkerView {
    /// Its pod.
    pub identity: PodIdentity,
    /// What it does.
    pub phase: WorkerPhase,
    /// The same uid was created again while it was terminating.
    pub restart_requested: bool,
    /// It knows its pod only from the runtime.
    pub runtime_only: bool,
}

/// A pod of the runtime, as last heard of.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeView {
    /// Which.
    pub identity: PodIdentity,
    /// Its source, as its sandbox says; may be empty.
    pub source: String,
    /// It has a running container or a ready sandbox.
    pub runs: bool,
}

/// What became of the last update of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Not acknowledged yet.
    Underway {
        /// Its number.
        sequence: u64,
    },
    /// The pool has it.
    Acknowledged {
        /// The newest question then asked: answers to it may be older.
        question: u64,
    },
    /// The pool refused it.
    Refused {
        /// Why.
        reason: String,
    },
}

/// A pod that its source has removed and whose worker has not finished.
#[derive(Clone, Debug)]
pub(crate) struct DepartedPod {
    /// The pod as it arrived last.
    pub document: PodDocument,
    /// Since when it is to be stopped.
    pub requested_at: UnixNanos,
}

/// Everything that is known of the pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workers {
    boot_id: Option<String>,
    known: BTreeMap<Uid, WorkerView>,
    /// The last list that the runtime gave; `None`: it never gave any.
    listed: Option<BTreeMap<Uid, RuntimeView>>,
    /// Whether that list came with the last answer.
    list_is_current: bool,
    sent: BTreeMap<Uid, Sent>,
    departed: BTreeMap<Uid, DepartedPod>,
    /// Pods that only the runtime or a worker has, with the time when they were
    /// first found so.
    orphans: BTreeMap<Uid, UnixNanos>,
    last_question: u64,
    answered: bool,
    /// Whether another answer is needed soon; see [`Workers::ask_again`].
    must_ask_again: bool,
    last_sequence: u64,
}

impl Workers {
    /// Takes note of the boot id in an answer. If the pool has restarted since the last
    /// answer, so that it has forgotten what it was told: the pods that had ended.
    pub(crate) fn note_boot_id(&mut self, boot_id: &str) -> Option<Vec<Uid>> {
        if self.boot_id.as_deref() == Some(boot_id) {
            return None;
        }
        self.boot_id.replace(boot_id.to_owned())?;
        self.sent.clear();
        let known = std::mem::take(&mut self.known).into_iter();
        let ended = known.filter(|(_, worker)| is_stopped(worker.phase));
        let ended: Vec<Uid> = ended.map(|(uid, _)| uid).collect();
        self.run_no_more(&ended);
        Some(ended)
    }

    /// What the runtime was last seen to run of these pods has ended since.
    fn run_no_more(&mut self, uids: &[Uid]) {
        let Some(listed) = &mut self.listed else {
            return;
        };
        for uid in uids {
            if let Some(pod) = listed.get_mut(uid) {
                pod.runs = false;
            }
        }
    }

    /// A number for the next question about known pods.
    pub(crate) fn next_question(&mut self) -> u64 {
        self.last_question += 1;
        self.last_question
    }

    /// A number for the next update of a pod, which is under way now.
    pub(crate) fn next_update(&mut self, uid: &Uid) -> u64 {
        self.last_sequence += 1;
        let sequence = self.last_sequence;
        self.sent
            .insert(Arc::clone(uid), Sent::Underway { sequence });
        sequence
    }

    /// The pool has an update; its worker is in `phase` now. `identity` is that of
    /// the pod, where it is known.
    pub(crate) fn acknowledged(
        &mut self,
        uid: &Uid,
        sequence: u64,
        phase: WorkerPhase,
        identity: Option<PodIdentity>,
    ) {
        // What was sent to a worker that has stopped may have it begin anew: the next answer
        // tells.
        self.must_ask_again |= is_stopped(phase);
        if let Some(worker) = self.known.get_mut(uid) {
            worker.phase = phase;
        } else if let Some(identity) = identity {
            let restart_requested = false;
            let runtime_only = false;
            let view = WorkerView {
                identity,
                phase,
                restart_requested,
                runtime_only,
            };
            self.known.insert(Arc::clone(uid), view);
        }
        if self.sent.get(uid) == Some(&Sent::Underway { sequence }) {
            let question = self.last_question;
            self.sent
                .insert(Arc::clone(uid), Sent::Acknowledged { question });
        }
    }

    /// The pool refused an update; returns whether that is news.
    pub(crate) fn refused(&mut self, uid: &Uid, sequence: u64, reason: &str) -> bool {
        if self.sent.get(uid) != Some(&Sent::Underway { sequence }) {
            return false;
        }
        let reason = reason.to_owned();
        self.sent.insert(Arc::clone(uid), Sent::Refused { reason });
        true
    }

    /// Whether this is the last update of a pod that was sent, and not settled.
    #[must_use]
    pub(crate) fn is_newest(&self, update: &WorkerUpdate) -> bool {
        let sequence = update.sequence;
        self.sent.get(&update.uid) == Some(&Sent::Underway { sequence })
    }

    /// Whether the pool refused the last update of a pod.
    #[must_use]
    pub(crate) fn is_refused(&self, uid: &str) -> bool {
        matches!(self.sent.get(uid), Some(Sent::Refused { .. }))
    }

    /// Takes in the answer to a question, and forgets pods that are of no interest
    /// any more.
    pub(crate) fn answered(
        &mut self,
        response: SyncKnownPodsResponse,
        is_desired: impl Fn(&str) -> bool,
    ) {
        self.answered = true;
        self.must_ask_again = false;
        let workers = response.workers.into_iter().take(MAX_LISTED);
        self.known = workers.filter_map(worker_view).collect();
        self.list_is_current = response.runtime_error.is_empty();
        if self.list_is_current {
            let pods = response.runtime_pods.into_iter().take(MAX_LISTED);
            self.listed = Some(pods.filter_map(runtime_view).collect());
        }
        let (known, departed, listed) = (&self.known, &self.departed, self.listed.as_ref());
        let is_there = |uid: &Uid| {
            known.contains_key(uid) || listed.is_none_or(|listed| listed.contains_key(uid))
        };
        self.orphans.retain(|uid, _| is_there(uid));
        self.sent.retain(|uid, sent| {
            is_there(uid)
                || is_desired(uid)
                || departed.contains_key(uid)
                || matches!(sent, Sent::Underway { .. })
        });
    }

    /// Pods that may run and had a worker, of which the answer to `question` does not tell
    /// any more. The pool forgets a worker of a desired pod only where the pod has ended and
    /// is to begin anew, or where it knew the pod from the runtime alone and has stopped it.
    pub(crate) fn take_forgotten(
        &mut self,
        pods: &DesiredPods,
        may_run: impl Fn(&str) -> bool,
        question: u64,
    ) -> Vec<Uid> {
        let uids = pods.iter().map(|(uid, _)| uid);
        let forgotten = uids.filter(|uid| {
            let had_worker = matches!(self.sent.get(*uid), Some(Sent::Acknowledged { .. }));
            had_worker
                && may_run(uid)
                && self.worker(uid).is_none()
                && self.is_current(uid, question)
        });
        let forgotten: Vec<Uid> = forgotten.cloned().collect();
        // The runtime was listed before the workers were.
        self.run_no_more(&forgotten);
        forgotten
    }

    /// Another answer is needed soon: an update went to a worker that has stopped, an event
    /// named a pod that is not known, or pleg heard of another run of the pool. Housekeeping
    /// does not pause meanwhile.
    pub(crate) fn ask_again(&mut self) {
        self.must_ask_again = true;
    }

    /// Others heard the pool say this boot id.
    pub(crate) fn heard_of_pool(&mut self, boot_id: &str) {
        let known = self.boot_id.as_deref();
        self.must_ask_again |= !boot_id.is_empty() && known.is_some_and(|known| known != boot_id);
    }

    /// Whether the last answer tells of nothing that needs another soon: the runtime
    /// was listed, every worker and every pod that runs is among the desired pods, and
    /// each of those has a worker that has nothing to begin or end.
    #[must_use]
    pub(crate) fn are_settled(&self, permitted: Vec<Uid>) -> bool {
        let Some(listed) = self.runtime_pods() else {
            return false;
        };
        let rests = |uid: &Uid| {
            let worker = self.known.get(uid);
            worker.is_some_and(|worker| {
                let phase = worker.phase;
                !worker.runtime_only
                    && !worker.restart_requested
                    && (phase == WorkerPhase::Syncing || is_stopped(phase))
            })
        };
        // Each permitted pod has a worker: no more workers than that, no other ones.
        !self.must_ask_again
            && permitted.iter().all(rests)
            && self.known.len() == permitted.len()
            && self.departed.is_empty()
            && listed
                .iter()
                .all(|(uid, pod)| !pod.runs || self.known.contains_key(uid))
    }

    /// Whether the pool has answered in this run of ours.
    #[must_use]
    pub(crate) fn has_answered(&self) -> bool {
        self.answered
    }

    /// Whether what the answer to `question` says of a pod is newer than the
    /// last update that was sent for it.
    #[must_use]
    pub(crate) fn is_current(&self, uid: &str, question: u64) -> bool {
        match self.sent.get(uid) {
            None => true,
            Some(Sent::Acknowledged { question: then }) => question > *then,
            Some(Sent::Underway { .. } | Sent::Refused { .. }) => false,
        }
    }

    /// The worker of a pod.
    #[must_use]
    pub(crate) fn worker(&self, uid: &str) -> Option<&WorkerView> {
        self.known.get(uid)
    }

    /// Whether a pod has a worker, or is to be stopped.
    #[must_use]
    pub(crate) fn has_worker_or_is_departed(&self, uid: &str) -> bool {
        self.known.contains_key(uid) || self.departed.contains_key(uid)
    }

    /// Whether a pod has a worker or something in the runtime, or is to be stopped.
    #[must_use]
    pub(crate) fn knows(&self, uid: &str) -> bool {
        let listed = self.runtime_pods();
        self.has_worker_or_is_departed(uid) || listed.is_some_and(|listed| listed.contains_key(uid))
    }

    /// Uids of the pods that are desired, run, have a worker that has not finished, or are
    /// to be stopped; `None` before it is known what runs. A pod that still runs counts
    /// also when no source wants it any more: after a restart the pool has no worker for
    /// it until it is told to stop it. One with a worker counts, since the pool tells
    /// nothing of it before it has looked at it.
    #[must_use]
    pub(crate) fn known_anywhere(&self, pods: &DesiredPods) -> Option<Vec<String>> {
        let listed = self.runtime_pods()?.iter();
        let running = listed.filter(|(_, pod)| pod.runs).map(|(uid, _)| uid);
        // A departed pod that started since that list may run all the same.
        let workers = self.known.iter();
        let worked_on = workers.filter(|(_, worker)| worker.phase != WorkerPhase::Finished);
        let worked_on = worked_on.map(|(uid, _)| uid);
        let others = running.chain(worked_on).chain(self.departed.keys());
        let known: BTreeSet<&Uid> = pods.iter().map(|(uid, _)| uid).chain(others).collect();
        Some(known.into_iter().map(ToString::to_string).collect())
    }

    /// Whether a pod ends to begin anew.
    #[must_use]
    pub(crate) fn begins_anew(&self, uid: &str) -> bool {
        let worker = self.worker(uid);
        worker.is_some_and(|worker| worker.restart_requested && is_stopping(worker.phase))
    }

    /// Whether a sync of a pod is of no use. Nothing can happen to one that has finished; a pool
    /// that restarts is told of it anyway. And where one ends to begin anew, a sync that comes
    /// after the pool has forgotten its worker would make another, for a pod that is not judged
    /// yet.
    #[must_use]
    pub(crate) fn needs_no_sync(&self, uid: &str, cause: &Cause) -> bool {
        let finished = self
            .worker(uid)
            .is_some_and(|worker| worker.phase == WorkerPhase::Finished);
        self.begins_anew(uid) || (finished && *cause == Cause::Resync)
    }

    /// The pods of the runtime; `None` when it could not be asked last.
    #[must_use]
    pub(crate) fn runtime_pods(&self) -> Option<&BTreeMap<Uid, RuntimeView>> {
        self.listed.as_ref().filter(|_| self.list_is_current)
    }

    /// Whether the runtime has been listed in this run of ours. What it did not
    /// run then, and nobody was told to start since, does not run now.
    #[must_use]
    pub(crate) fn has_listed(&self) -> bool {
        self.listed.is_some()
    }

    /// Whether the runtime was running something of a pod when it was last listed.
    #[must_use]
    pub(crate) fn runs(&self, uid: &str) -> bool {
        let listed = self.listed.as_ref();
        listed
            .and_then(|listed| listed.get(uid))
            .is_some_and(|pod| pod.runs)
    }

    /// Whether a pod is known to have given its resources back.
    #[must_use]
    pub(crate) fn is_terminated(&self, uid: &str) -> bool {
        self.known
            .get(uid)
            .is_some_and(|worker| is_stopped(worker.phase))
    }

    /// A pod was removed from its source and is to be stopped.
    pub(crate) fn depart(&mut self, uid: &Uid, departed: DepartedPod) {
        self.departed.insert(Arc::clone(uid), departed);
    }

    /// A pod is desired (again), so it is neither departed nor an orphan.
    pub(crate) fn note_desired(&mut self, uid: &str) {
        self.departed.remove(uid);
        self.orphans.remove(uid);
    }

    /// A departed pod.
    #[must_use]
    pub(crate) fn departed(&self, uid: &str) -> Option<&DepartedPod> {
        self.departed.get(uid)
    }

    /// How many departed pods there are, and the bytes of their JSON.
    #[must_use]
    pub(crate) fn departed_size(&self) -> (usize, usize) {
        let bytes = self.departed.values().map(|pod| pod.document.json().len());
        (self.departed.len(), bytes.sum())
    }

    /// Uids of departed pods.
    #[must_use]
    pub(crate) fn departed_uids(&self) -> Vec<Uid> {
        self.departed.keys().cloned().collect()
    }

    /// Desired pods whose worker is to be created (again), as the answer to
    /// `question` shows: it has none, or one that knows its pod only from the runtime.
    #[must_use]
    pub(crate) fn missing(
        &self,
        pods: &DesiredPods,
        may_run: impl Fn(&str) -> bool,
        question: u64,
    ) -> Vec<Uid> {
        let lacks = |worker: Option<&WorkerView>| {
            worker.is_none_or(|it| it.runtime_only && !it.restart_requested)
        };
        let uids = pods.iter().map(|(uid, _)| uid);
        let missing = uids.filter(|uid| {
            may_run(uid) && self.is_current(uid, question) && lacks(self.worker(uid))
        });
        missing.cloned().collect()
    }

    /// Forgets the departed pods of which nothing is left, as the answer to `question` shows.
    pub(crate) fn forget_stopped(&mut self, question: u64) {
        for uid in self.answered_departed(question) {
            let is_gone = match self.worker(&uid) {
                Some(worker) => worker.phase == WorkerPhase::Finished,
                None => self.runtime_pods().is_some() && !self.runs(&uid),
            };
            if is_gone {
                self.departed.remove(&uid);
                self.sent.remove(&uid);
            }
        }
    }

    /// Departed pods whose worker does not know that it is to stop, as the answer to
    /// `question` shows.
    #[must_use]
    pub(crate) fn departed_to_kill(&self, question: u64) -> Vec<Uid> {
        let is_told = |uid: &Uid| self.worker(uid).is_some_and(|it| is_stopping(it.phase));
        let mut uids = self.answered_departed(question);
        uids.retain(|uid| !is_told(uid));
        uids
    }

    /// Departed pods of which the answer to `question` tells what became of their KILL.
    fn answered_departed(&self, question: u64) -> Vec<Uid> {
        let mut uids = self.departed_uids();
        uids.retain(|uid| self.is_current(uid, question) || self.is_refused(uid));
        uids
    }

    /// Workers and runtime pods that nobody wants, as the answer to `question`
    /// shows, each once `permit_removal` says so of its source: found after a restart
    /// of this process.
    #[must_use]
    pub(crate) fn undesired(
        &self,
        pods: &DesiredPods,
        permit_removal: impl Fn(&str) -> bool,
        question: u64,
    ) -> Vec<(PodIdentity, Cause)> {
        let workers = self
            .known
            .values()
            .filter(|worker| !is_stopping(worker.phase));
        let workers = workers.map(|worker| (&worker.identity, Cause::WorkerNotDesired));
        let listed = self.runtime_pods().into_iter().flatten();
        let orphans = listed
            .filter(|(uid, pod)| pod.runs && self.worker(uid).is_none())
            .map(|(_, pod)| (&pod.identity, Cause::Orphaned));
        workers
            .chain(orphans)
            .filter(|(identity, _)| {
                let uid = identity.uid();
                let listed = self.runtime_pods().and_then(|pods| pods.get(uid));
                let source = listed.map_or("", |pod| &pod.source);
                let known = pods.get(uid).is_some() || self.departed(uid).is_some();
                !known && permit_removal(source) && self.is_current(uid, question)
            })
            .map(|(identity, cause)| (identity.clone(), cause))
            .collect()
    }

    /// When a pod that nobody wants was first found; `now` if this is the time.
    pub(crate) fn orphaned_since(&mut self, uid: &Uid, now: UnixNanos) -> UnixNanos {
        *self.orphans.entry(Arc::clone(uid)).or_insert(now)
    }
}

/// Whether a worker in this phase has stopped all containers.
#[must_use]
pub(crate) fn is_stopped(phase: WorkerPhase) -> bool {
    matches!(phase, WorkerPhase::Terminated | WorkerPhase::Finished)
}

/// Whether a worker in this phase has been told to stop.
#[must_use]
fn is_stopping(phase: WorkerPhase) -> bool {
    phase == WorkerPhase::Terminating || is_stopped(phase)
}

fn worker_view(worker: WorkerState) -> Option<(Uid, WorkerView)> {
    let phase = worker.phase();
    let identity = PodIdentity::try_from(worker.pod?).ok()?;
    let view = WorkerView {
        phase,
        restart_requested: worker.restart_requested,
        runtime_only: worker.runtime_only,
        identity,
    };
    Some((view.identity.uid().into(), view))
}

fn runtime_view(state: RuntimePodState) -> Option<(Uid, RuntimeView)> {
    let identity = PodIdentity::try_from(state.pod?).ok()?;
    let view = RuntimeView {
        source: state.source,
        runs: state.has_running_container || state.has_ready_sandbox,
        identity,
    };
    Some((view.identity.uid().into(), view))
}
