//! Which pods have a status, and what each follows from: the state of this
//! process as a pure machine. Each input changes it; [`Registry::take_changes`]
//! says what is to be published.
//!
//! What does not live here: how a status is computed (`status`), saving and
//! publishing (`shell`).
//!
//! A pod's entry:
//!
//! ```text
//!   observed or rejected        sync-loop does not know it, pool has it
//!  ---------------------> Kept --------------------------------------> Orphaned
//!                          ^  \                                         |   |
//!                          |   \ sync-loop does not know it,            |   |
//!                          |    \ pool does not have it                 |   | pool lets go
//!                          |     `-----------------------> gone <-------+---'
//!                          `--------- sync-loop knows it ---------------'
//!                                     or it comes again
//! ```
//!
//! - A pod that the pool does not have (any more, or yet: it may have just been
//!   restarted) keeps its status as long as sync-loop knows it. One that it had, and has let
//!   go in the same run, has ended.
//! - A pod that sync-loop does not know is gone once the pool has let go too.
//! - A list of what sync-loop knows says nothing of a pod that came since it was made.
//!
//! An observation names the pod and its version, and not more. The pod itself is asked for
//! when that version is not known yet ([`Registry::lacks`]).

mod begun_anew;
mod pool_view;
mod refusal;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bulkhead_api::v1::{PodObservation, ProbeVerdict, RejectPodRequest, RuntimeState, WorkerPhase};
use clock::UnixNanos;
use pod::core::{Pod, PodCondition, PodStatus};
use pod::wire::WireError;
use pod::{PodDocument, PodIdentity, PodSource, node_shutdown};

use begun_anew::{PodBefore, is_to_run};
use pool_view::PoolView;
pub(crate) use refusal::Refusal;

use crate::publication::{Change, PublishedPod, WorkerNotes};
use crate::served;
use crate::status::{self, StatusInput, bound_observation};
use crate::verdicts::Verdicts;

/// A point in time, by each clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// For people.
    pub(crate) wall: UnixNanos,
    /// Time since the machine was booted, which sync-loop has too and which never jumps.
    pub(crate) since_boot: Duration,
}

/// The pods that sync-loop knows.
#[derive(Debug)]
pub(crate) struct KnownPods {
    pub(crate) uids: BTreeSet<String>,
    /// Of pods of other sources the list says nothing.
    pub(crate) delivered: BTreeSet<PodSource>,
    /// When the list was made, since the machine was booted.
    pub(crate) listed_at: Duration,
}

/// All pods with a status.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pods: BTreeMap<String, Entry>,
    verdicts: Verdicts,
    held: HeldConditions,
    pool: PoolView,
    changed: BTreeSet<String>,
    removed: BTreeSet<String>,
    unsaved: bool,
}

/// The conditions that the API server holds, by UID of the pod.
type HeldConditions = BTreeMap<String, Vec<PodCondition>>;

/// One pod.
#[derive(Debug)]
struct Entry {
    /// The pod; none yet after our restart.
    pod: Option<PodDocument>,
    source: PodSource,
    /// The last one; none yet after our restart.
    observation: Option<PodObservation>,
    status: PodStatus,
    /// As served; absent only while the first status is being computed.
    published: Option<PublishedPod>,
    hold: Hold,
    /// When it was last heard of as one that begins, since the machine was booted; after our
    /// restart, the time of that.
    came_at: Duration,
    /// How far its worker was when last seen, and in which run of the pool.
    worker: Option<(String, WorkerPhase)>,
}

/// Whether sync-loop stands behind an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Kept,
    /// Waits for the pool to let go.
    Orphaned,
}

impl Registry {
    /// Takes back what was saved before a restart.
    pub(crate) fn restore(&mut self, pods: Vec<PublishedPod>, since_boot: Duration) {
        for published in pods.into_iter().take(ipc::limits::MAX_PODS) {
            let Ok(pod) = published.document.decode() else {
                continue;
            };
            let source = published.document.source();
            let uid = published.uid().to_owned();
            let entry = Entry {
                status: pod.status.unwrap_or_default(),
                published: Some(published),
                ..Entry::new(source, since_boot)
            };
            self.changed.insert(uid.clone());
            self.pods.insert(uid, entry);
        }
    }

    /// A stream of the pool begins with its snapshot.
    pub(crate) fn begin_snapshot(&mut self, boot_id: &str) {
        self.pool.begin_snapshot(boot_id);
    }

    /// The snapshot is complete: pods that it lacks are not in the pool.
    pub(crate) fn end_snapshot(&mut self, now: UnixNanos) {
        self.pool.end_snapshot();
        // A pod that this run of the pool had and its snapshot lacks has ended; we missed the
        // message. Another run may only not have it yet.
        let had = |entry: &Entry| {
            let worker = entry.worker.as_ref();
            worker.is_some_and(|(boot_id, _)| *boot_id == self.pool.boot_id)
        };
        let lost = |(uid, entry): &(&String, &Entry)| !self.pool.has(uid) && had(entry);
        let lost = self.pods.iter().filter(lost).map(|(uid, _)| uid.clone());
        for uid in lost.collect::<Vec<String>>() {
            self.note_end(&uid, now);
        }
        self.drop_orphans();
    }

    /// The pool has no worker for this pod any more.
    pub(crate) fn let_go(&mut self, uid: &str, now: UnixNanos) {
        self.pool.let_go(uid);
        self.note_end(uid, now);
        self.drop_orphans();
    }

    /// The pool lets go only of what has ended. The last observation may be of before that:
    /// of what we have not read in time the pool keeps only the newest.
    fn note_end(&mut self, uid: &str, now: UnixNanos) {
        let entry = self.pods.get_mut(uid).filter(|entry| !entry.is_stopped());
        let Some(entry) = entry else {
            return;
        };
        let observation = entry.observation.get_or_insert_default();
        observation.set_phase(WorkerPhase::Finished);
        entry.worker = Some((self.pool.boot_id.clone(), WorkerPhase::Finished));
        let renewal = entry.compute((&self.verdicts, self.held.get(uid)), now);
        self.note(uid.to_owned(), renewal);
    }

    /// Whether the version of the pod that an observation names is to be asked for.
    pub(crate) fn lacks(&self, observation: &PodObservation) -> bool {
        let uid = observation.pod.as_ref().map(|pod| pod.uid.as_str());
        let entry = uid.and_then(|uid| self.pods.get(uid));
        let known = entry.and_then(|entry| entry.pod.as_ref());
        !observation.hash.is_empty() && known.is_none_or(|it| it.hash() != observation.hash)
    }

    /// The pool sees this of a pod, which comes with it if it was asked for and could be had.
    /// Else what is known of it from before stands, and without that it has no status.
    ///
    /// # Errors
    /// When the pod is malformed, or there are too many.
    pub(crate) fn observe(
        &mut self,
        mut observation: PodObservation,
        document: Option<PodDocument>,
        now: Now,
    ) -> Result<(), Refusal> {
        let identity = observation.pod.take().ok_or(WireError::NoReference)?;
        let identity = PodIdentity::try_from(identity).map_err(WireError::from)?;
        let uid = identity.uid().to_owned();
        self.pool.note(&uid);
        let document = document.filter(|document| *document.identity() == identity);
        if let Some(document) = document {
            document.decode()?;
            if !self.pods.contains_key(&uid) && self.pods.len() >= ipc::limits::MAX_PODS {
                return Err(Refusal::TooManyPods);
            }
            let entry = self.entry(&document, now);
            entry.pod = Some(document);
        }
        let boot_id = self.pool.boot_id.clone();
        let Some(entry) = self.pods.get_mut(&uid) else {
            return Ok(());
        };
        bound_observation(&mut observation);
        if entry.before().has_begun_anew(&observation, &boot_id) {
            entry.status = PodStatus::default();
            entry.comes(now.since_boot);
        }
        entry.worker = Some((boot_id, observation.phase()));
        entry.observation = Some(observation);
        let renewal = entry.compute((&self.verdicts, self.held.get(&uid)), now.wall);
        self.note(uid, renewal);
        Ok(())
    }

    /// The entry of a pod, made if there is none.
    fn entry(&mut self, document: &PodDocument, now: Now) -> &mut Entry {
        let source = document.source();
        let entry = self.pods.entry(document.identity().uid().to_owned());
        let entry = entry.or_insert_with(|| Entry::new(source, now.since_boot));
        entry.source = source;
        entry
    }

    /// Sync-loop tells verdicts of probes.
    pub(crate) fn set_verdicts(&mut self, verdicts: &[ProbeVerdict], now: UnixNanos) {
        let news: BTreeSet<&str> = verdicts
            .iter()
            .filter(|verdict| self.verdicts.set(verdict))
            .map(|verdict| verdict.pod_uid.as_str())
            .collect();
        for uid in news {
            if let Some(entry) = self.pods.get_mut(uid) {
                let renewal = entry.compute((&self.verdicts, self.held.get(uid)), now);
                self.note(uid.to_owned(), renewal);
            }
        }
    }

    /// The API server holds these conditions of a pod, or has the pod no more.
    pub(crate) fn set_held(
        &mut self,
        uid: &str,
        conditions: Option<Vec<PodCondition>>,
        now: UnixNanos,
    ) {
        let Some(conditions) = conditions else {
            self.held.remove(uid);
            return;
        };
        if self.held.len() >= ipc::limits::MAX_PODS {
            // Of some nobody heard that they are gone.
            self.held.retain(|uid, _| self.pods.contains_key(uid));
        }
        if self.held.get(uid) != Some(&conditions) {
            self.held.insert(uid.to_owned(), conditions);
            if let Some(entry) = self.pods.get_mut(uid) {
                let renewal = entry.compute((&self.verdicts, self.held.get(uid)), now);
                self.note(uid.to_owned(), renewal);
            }
        }
    }

    /// Sync-loop rejects a pod.
    ///
    /// # Errors
    /// When the pod is malformed, the pool runs it already or still ends it, or there are
    /// too many.
    pub(crate) fn reject(&mut self, request: RejectPodRequest, now: Now) -> Result<(), Refusal> {
        let desired = PodDocument::from_message(request.pod.ok_or(WireError::NoReference)?)?;
        let pod = desired.decode()?;
        let uid = desired.identity().uid().to_owned();
        if !self.pods.contains_key(&uid) && self.pods.len() >= ipc::limits::MAX_PODS {
            return Err(Refusal::TooManyPods);
        }
        let is_in_pool = self.pool.has(&uid);
        let known = self.pods.get(&uid);
        match known.map(|entry| (entry.is_to_run(), entry.runs())) {
            // One that the pool has begun was admitted since: the rejection comes late.
            Some((true, runs)) if runs || is_in_pool => return Err(Refusal::AlreadyRuns { uid }),
            // It comes early: the pool has told sync-loop of the end, and we are behind.
            Some((false, true)) if is_in_pool => return Err(Refusal::StillEnds { uid }),
            _ => {}
        }
        let entry = self.entry(&desired, now);
        entry.comes(now.since_boot);
        let before = entry.before().has_ended_for_good();
        let before = before.then_some(&entry.status);
        entry.status =
            status::rejected_status(&pod, &request.reason, &request.message, before, now.wall);
        entry.pod = Some(desired);
        let renewal = entry.publish(&pod);
        self.note(uid, renewal);
        Ok(())
    }

    /// Sync-loop tells which pods exist; statuses of others of the sources that
    /// have delivered go, once the pool has let go of them too. Of pods that came
    /// since the list was made it says nothing.
    ///
    /// # Errors
    /// When the list is one of the future.
    pub(crate) fn retain(&mut self, known: &KnownPods, now: Duration) -> Result<(), Refusal> {
        if known.listed_at > now {
            return Err(Refusal::ListOfNoTime);
        }
        for (uid, entry) in &mut self.pods {
            // What was deleted was seen to go, whether the whole source is known or not.
            let is_deleted = entry.observation.as_ref().is_some_and(served::is_deleted);
            let may_come_yet = !is_deleted && !known.delivered.contains(&entry.source);
            let may_be_newer = entry.came_at >= known.listed_at;
            entry.hold = if known.uids.contains(uid) || may_come_yet || may_be_newer {
                Hold::Kept
            } else {
                Hold::Orphaned
            };
        }
        self.drop_orphans();
        Ok(())
    }

    /// What is to be published since the last call, each pod once.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        let removed = std::mem::take(&mut self.removed);
        let mut changes: Vec<Change> = removed.into_iter().map(Change::Removed).collect();
        for uid in std::mem::take(&mut self.changed) {
            let published = self
                .pods
                .get(&uid)
                .and_then(|entry| entry.published.clone());
            changes.extend(published.map(|it| Change::Set(Box::new(it))));
        }
        changes
    }

    /// Whether something changed since [`Registry::saved`] that a restart must
    /// not lose.
    #[must_use]
    pub(crate) fn is_unsaved(&self) -> bool {
        self.unsaved
    }

    /// What is published now is being saved.
    pub(crate) fn saved(&mut self) {
        self.unsaved = false;
    }

    /// Whether there is something to publish.
    #[must_use]
    pub(crate) fn has_changes(&self) -> bool {
        !self.changed.is_empty() || !self.removed.is_empty()
    }

    /// What is published of all pods, but for what the node's next boot forgets: until then
    /// pod-worker-pool tells that a pod has ended for a shutdown of the node.
    pub(crate) fn to_save(&self) -> impl Iterator<Item = &PublishedPod> {
        let ends_with_the_boot = |entry: &Entry| {
            let reason = entry.status.reason.as_deref().unwrap_or_default();
            node_shutdown::is_reason(reason)
        };
        let lasting = self.pods.values().filter(move |it| !ends_with_the_boot(it));
        lasting.filter_map(|entry| entry.published.as_ref())
    }

    /// Number of pods with a status.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    fn drop_orphans(&mut self) {
        if !self.pool.is_whole() {
            return;
        }
        let is_gone =
            |(uid, entry): &(&String, &Entry)| entry.hold == Hold::Orphaned && !self.pool.has(uid);
        let gone = self.pods.iter().filter(is_gone).map(|(uid, _)| uid.clone());
        for uid in gone.collect::<Vec<String>>() {
            self.pods.remove(&uid);
            self.verdicts.remove_pod(&uid);
            self.held.remove(&uid);
            self.changed.remove(&uid);
            self.removed.insert(uid);
            self.unsaved = true;
        }
    }

    fn note(&mut self, uid: String, renewal: Renewal) {
        match renewal {
            Renewal::Nothing => return,
            Renewal::Notes => {}
            Renewal::Status => self.unsaved = true,
        }
        self.changed.insert(uid);
    }
}

/// What became of a published pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    Nothing,
    /// Only what its worker did, for people.
    Notes,
    Status,
}

impl Entry {
    fn new(source: PodSource, came_at: Duration) -> Entry {
        Entry {
            pod: None,
            source,
            observation: None,
            status: PodStatus::default(),
            published: None,
            hold: Hold::Kept,
            came_at,
            worker: None,
        }
    }

    /// Sync-loop stands behind the pod, whatever it said before.
    fn comes(&mut self, since_boot: Duration) {
        self.came_at = since_boot;
        self.hold = Hold::Kept;
    }

    /// The pod as it is known before it changes.
    fn before(&self) -> PodBefore<'_> {
        PodBefore {
            status: &self.status,
            worker: self.worker.as_ref(),
        }
    }

    /// Computes the status anew, if the pod is known.
    fn compute(
        &mut self,
        (verdicts, held): (&Verdicts, Option<&Vec<PodCondition>>),
        now: UnixNanos,
    ) -> Renewal {
        let Some(Ok(pod)) = self.pod.as_ref().map(PodDocument::decode) else {
            return Renewal::Nothing;
        };
        let unobserved = PodObservation::default();
        let observation = self.observation.as_ref().unwrap_or(&unobserved);
        // An empty status is that of a pod that begins.
        let published = self.status.phase.is_some().then_some(&self.status);
        self.status = status::pod_status(StatusInput {
            pod: &pod,
            observation,
            verdicts,
            published,
            held: held.map(Vec::as_slice),
            now,
        });
        self.publish(&pod)
    }

    /// Renews what is served. A status that is too large is not served.
    fn publish(&mut self, pod: &Pod) -> Renewal {
        let observation = self.observation.as_ref();
        let document = served::document(pod, self.source, &self.status, observation);
        let Ok(document) = document else {
            return Renewal::Nothing;
        };
        let worker = observation.map(WorkerNotes::of).unwrap_or_default();
        let renewal = match &self.published {
            Some(published) if published.document != document => Renewal::Status,
            Some(published) if published.worker != worker || published.desired != self.pod => {
                Renewal::Notes
            }
            Some(_) => return Renewal::Nothing,
            None => Renewal::Status,
        };
        self.published = Some(PublishedPod {
            document,
            desired: self.pod.clone(),
            worker,
        });
        renewal
    }

    /// Whether the pool has the pod run, as last observed, or is about to.
    fn is_to_run(&self) -> bool {
        self.observation.as_ref().is_some_and(is_to_run)
    }

    /// Whether the pool has stopped the pod, as last observed: no container of it runs.
    fn is_stopped(&self) -> bool {
        let phase = self.observation.as_ref().map(PodObservation::phase);
        matches!(phase, Some(WorkerPhase::Terminated | WorkerPhase::Finished))
    }

    /// Whether a container of the pod runs, as last observed.
    fn runs(&self) -> bool {
        let observed = self.observation.iter();
        let mut containers = observed.flat_map(|observation| &observation.containers);
        !self.is_stopped() && containers.any(|it| it.state() == RuntimeState::Running)
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
