//! What the actor keeps of one pod, and what it tells others of it.

use std::sync::Arc;

use bulkhead_api::v1;
use pod_lifecycle::plan::ProbeVerdicts;
use pod_lifecycle::record::Record;
use pod_lifecycle::{DesiredPod, Subject, Worker, WorkerState};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, Id, JoinError};
use tokio::time::Instant;

use super::{UpdateExtras, WorkerSummary};
use crate::publisher::WorkerView;
use crate::steps::{Job, Memory, Outcome, StepError, SyncInput};

/// A worker with its step and what its steps remember.
pub(super) struct Entry {
    pub(super) worker: Worker,
    pub(super) memory: Arc<Mutex<Memory>>,
    /// All that the pool was last told of the pod's probes.
    pub(super) verdicts: Vec<v1::ProbeVerdict>,
    /// Why the pod does not get the CPU and memory that it is to have, if it has to wait.
    pub(super) pending_resize: Option<v1::PendingResize>,
    pub(super) step: Option<RunningStep>,
}

/// A step that runs beside the actor.
pub(super) struct RunningStep {
    pub(super) abort: AbortHandle,
    /// What came in since it began.
    pub(super) requeue: Requeue,
}

/// What a step came to, unless it was cancelled, and when it last began to look at the
/// runtime.
pub(super) type StepEnd<T = Outcome> = (T, Option<Instant>);

/// Which task has ended, and how.
pub(super) fn how_it_ended(
    result: Result<(Id, StepEnd), JoinError>,
) -> (Id, StepEnd<Option<Outcome>>) {
    match result {
        Ok((id, (outcome, looked_at))) => (id, (Some(outcome), looked_at)),
        Err(error) if error.is_cancelled() => (error.id(), (None, None)),
        Err(error) => {
            tracing::error!(%error, "a step panicked");
            let failed = Outcome::Failed(StepError::panicked());
            (error.id(), (Some(failed), None))
        }
    }
}

/// Why another step follows the running one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Requeue {
    /// It does not.
    No,
    /// Something was told of the pod at this moment that shows at the runtime: by the
    /// runtime's events, or by sync-loop. A step that has looked there since then has seen it.
    SeenAtRuntime(Instant),
    /// Something happened, perhaps by the step itself. If that fails, a second
    /// attempt waits for a moment, and no longer: its own noise must not make a
    /// failing pod spin, and what another container waits for must not keep a dead
    /// one down.
    Happened,
    /// What is desired, or a verdict on a container, changed: another step follows
    /// at once.
    Changed,
}

impl Requeue {
    /// What is left of it after a step that settled, and that last began to look at the
    /// runtime at `looked_at`.
    ///
    /// For example, containerd tells that a task was started while the step still waits
    /// for the answer of StartContainer; the step looks after that.
    pub(super) fn after_look(self, looked_at: Option<Instant>) -> Requeue {
        match self {
            Requeue::SeenAtRuntime(told_at) if looked_at > Some(told_at) => Requeue::No,
            requeue => requeue,
        }
    }
}

impl Entry {
    /// The pod, if it runs or is about to.
    pub(super) fn active(&self) -> Option<&DesiredPod> {
        match self.worker.state() {
            WorkerState::Syncing { pod } => Some(pod),
            _ => None,
        }
    }

    pub(super) fn new(worker: Worker, record: Record, extras: UpdateExtras) -> Entry {
        Entry {
            worker,
            memory: Arc::new(Mutex::new(Memory::new(record))),
            verdicts: extras.verdicts,
            pending_resize: extras.pending_resize,
            step: None,
        }
    }

    /// Takes in what comes with an update; whether a step that runs would do something
    /// else with it.
    pub(super) fn take(&mut self, extras: UpdateExtras, is_kill: bool) -> bool {
        let known = self.probe_verdicts();
        let waited = self.pending_resize.is_some();
        // A kill of a pod that only the runtime has says nothing of verdicts.
        if !(is_kill && extras.verdicts.is_empty()) {
            self.verdicts = extras.verdicts;
        }
        // Nor does any kill of a resize.
        if !is_kill {
            self.pending_resize = extras.pending_resize;
        }
        self.probe_verdicts() != known || self.pending_resize.is_some() != waited
    }

    /// What the worker's state asks for; it is begun.
    pub(super) fn job(&mut self) -> Option<Job> {
        // What it makes is of this version.
        self.worker.set_keeps_version(true);
        Some(match self.worker.state() {
            WorkerState::Waiting { pod } => Job::Wait(pod.clone()),
            WorkerState::Syncing { pod } => {
                let input = SyncInput {
                    probe_verdicts: self.probe_verdicts(),
                    resize_is_pending: self.pending_resize.is_some(),
                };
                Job::Sync(pod.clone(), input)
            }
            WorkerState::Terminating {
                subject,
                termination,
                ..
            } => Job::Terminate(subject.clone(), termination.clone()),
            WorkerState::Terminated {
                pod, termination, ..
            } => Job::CleanUp(pod.clone(), termination.clone()),
            WorkerState::Finished { .. } => return None,
        })
    }

    /// What is left of the record of a pod that is forgotten. Its UID may come again before
    /// what is left in the runtime is collected, and that does not count then.
    pub(super) fn record_if_begun_anew(&self) -> Record {
        // A worker that has finished runs no step, which would hold it.
        let memory = self.memory.try_lock();
        memory.map_or_else(|_| Record::default(), |it| it.record_if_begun_anew())
    }

    /// The step has ended; what came in since it began. The pod keeps its version if it is
    /// seen to run as that.
    pub(super) fn step_ended(&mut self) -> Requeue {
        // No step runs, which would hold it.
        let keeps_version = self.memory.try_lock().is_ok_and(|it| it.keeps_version());
        self.worker.set_keeps_version(keeps_version);
        self.step.take().map_or(Requeue::No, |step| step.requeue)
    }

    pub(super) fn view(&self) -> WorkerView {
        WorkerView {
            identity: self.worker.identity().clone(),
            desired: self.worker.desired().cloned(),
            phase: self.worker.phase(),
            termination: self.worker.termination().cloned(),
            pending_resize: self.pending_resize.clone(),
        }
    }

    pub(super) fn summary(&self) -> WorkerSummary {
        WorkerSummary {
            phase: self.worker.phase(),
            cause: self
                .worker
                .termination()
                .map(|termination| termination.cause.clone()),
        }
    }

    pub(super) fn state(&self) -> v1::WorkerState {
        v1::WorkerState {
            pod: Some(self.worker.identity().into()),
            phase: self.worker.phase().into(),
            restart_requested: self.worker.restart_requested(),
            runtime_only: matches!(
                self.worker.state(),
                WorkerState::Terminating {
                    subject: Subject::RuntimeOnly(_),
                    ..
                }
            ),
        }
    }

    /// What probes say of instances.
    pub(super) fn probe_verdicts(&self) -> ProbeVerdicts {
        let having = |kind: v1::ProbeKind, result: v1::ProbeResult| {
            let verdicts = self.verdicts.iter();
            verdicts
                .filter(|it| it.kind() == kind && it.result() == result)
                .map(|it| it.container_id.clone())
                .collect()
        };
        ProbeVerdicts {
            not_live: having(v1::ProbeKind::Liveness, v1::ProbeResult::Failure),
            not_started: having(v1::ProbeKind::Startup, v1::ProbeResult::Failure),
            started: having(v1::ProbeKind::Startup, v1::ProbeResult::Success),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_a_step_has_seen_needs_no_other_step() {
        let told_at = Instant::now();
        let (before, after) = (
            told_at - Duration::from_nanos(1),
            told_at + Duration::from_nanos(1),
        );
        let told = Requeue::SeenAtRuntime(told_at);
        for (requeue, looked_at, left) in [
            (told, None, told),
            (told, Some(before), told),
            (told, Some(told_at), told),
            (told, Some(after), Requeue::No),
            // What is not of the runtime shows in no look at it.
            (Requeue::Happened, Some(after), Requeue::Happened),
            (Requeue::Changed, Some(after), Requeue::Changed),
            (Requeue::No, Some(after), Requeue::No),
        ] {
            assert_eq!(
                requeue.after_look(looked_at),
                left,
                "{requeue:?} {looked_at:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_later_event_and_the_larger_reason_count() {
        let earlier = Instant::now();
        let later = earlier + Duration::from_nanos(1);
        let reasons = [
            Requeue::No,
            Requeue::SeenAtRuntime(earlier),
            Requeue::SeenAtRuntime(later),
            Requeue::Happened,
            Requeue::Changed,
        ];
        assert!(reasons.is_sorted_by(|one, other| one < other));
    }
}
