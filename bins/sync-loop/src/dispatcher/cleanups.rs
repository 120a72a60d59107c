//! `HandlePodCleanups`: what is asked of the pool in housekeeping, and what its answer
//! asks for. The kubelet does all of it inside its loop; here the answer is an event of its
//! own, so the loop never waits.

use std::time::Duration;

use clock::UnixNanos;
use pod::PodIdentity;

use super::admission::Admission;
use super::cause::Cause;
use super::desired_pods::{DesiredPods, Uid};
use super::messages::{Action, GARBAGE_COLLECTION_PERIOD, Now};
use super::sources::Sources;
use super::verdicts::Verdicts;
use super::workers::Workers;

/// When garbage is collected next.
#[derive(Debug, Default)]
pub(super) struct Cleanups {
    next_garbage_collection: Duration,
}

/// Updates that the pool's answer asks for.
#[derive(Debug)]
pub(super) enum Cleanup {
    /// The pool lacks a pod that may run.
    Create(Uid),
    /// A departed pod runs on.
    KillDeparted(Uid),
    /// No source wants what the runtime has of a pod.
    KillUndesired(PodIdentity, UnixNanos, Cause),
}

impl Cleanups {
    /// Asks for the workers and the runtime's pods.
    pub(super) fn begin(
        &mut self,
        (sources, pods): (&Sources, &DesiredPods),
        admission: &mut Admission,
        workers: &mut Workers,
        now: &Now,
    ) -> Vec<Action> {
        let sources_ready = sources.all_delivered();
        let question = workers.next_question();
        let desired = admission.not_rejected(pods);
        if sources_ready {
            admission.retain_records(pods);
        }
        let mut actions = Vec::new();
        if workers.has_answered() && now.elapsed >= self.next_garbage_collection {
            self.next_garbage_collection = now.elapsed + GARBAGE_COLLECTION_PERIOD;
            actions.push(Action::CollectGarbage {
                desired: desired.clone(),
                sources_ready,
            });
            if sources.turned_any_away() {
                actions.push(Action::WatchPodsAnew);
            }
        }
        actions.push(Action::SyncKnownPods {
            question,
            desired,
            delivered: sources.delivered(),
        });
        actions
    }
}

/// What the answer to a question asks for; `workers` have taken it in.
pub(super) fn after_answer(
    (sources, pods): (&Sources, &DesiredPods),
    admission: &Admission,
    workers: &mut Workers,
    question: u64,
    now: &Now,
) -> Vec<Cleanup> {
    let may_run = |uid: &str| admission.permits(uid);
    let missing = workers.missing(pods, may_run, question).into_iter();
    let mut cleanups: Vec<_> = missing.map(Cleanup::Create).collect();
    workers.forget_stopped(question);
    let to_kill = workers.departed_to_kill(question).into_iter();
    cleanups.extend(to_kill.map(Cleanup::KillDeparted));
    let permit_removal = |source: &str| sources.permit_removal_of(source);
    for (identity, cause) in workers.undesired(pods, permit_removal, question) {
        tracing::info!(pod = %identity, %cause, "stopping a pod that no source wants");
        let requested_at = workers.orphaned_since(&Uid::from(identity.uid()), now.wall);
        cleanups.push(Cleanup::KillUndesired(identity, requested_at, cause));
    }
    cleanups
}

/// Forgets verdicts of pods that are gone. Returns which statuses status-syncer may forget, once
/// it is known what there is anywhere.
pub(super) fn forget(
    (sources, pods): (&Sources, &DesiredPods),
    workers: &Workers,
    verdicts: &mut Verdicts,
    now: &Now,
) -> Option<Action> {
    // The prober that knew them may be gone, too.
    if sources.all_delivered() {
        verdicts.retain(|uid| pods.get(uid).is_some() || workers.has_worker_or_is_departed(uid));
    }
    Some(Action::RemoveOrphanedStatuses {
        known: workers.known_anywhere(pods)?,
        delivered: sources.delivered(),
        listed_at: now.since_boot,
    })
}
