//! The states of the worker of one pod. The pool's actor feeds updates in, and runs a step
//! for the state that it is in (`Entry::job` of the pool).
//!
//! ```text
//!                  +---------+ start  +---------+
//!  desired ------->| Waiting |------->| Syncing |
//!                  +---------+        +---------+
//!                       |                  |
//!                       +----- request ----+  deletion, kill, terminal phase,
//!                                |            end of the pod by itself
//!                                v
//!  runtime only ---------> +-------------+  all containers stopped   +------------+
//!  (kill)                  | Terminating |-------------------------->| Terminated |
//!                          +-------------+       (desired pod)       +------------+
//!                                |                                        |
//!                                | (runtime only)                         | cleaned up
//!                                v                                        v
//!                            forgotten <-------------------------- +----------+
//!                                       SyncKnownPods              | Finished |
//!                                                                  +----------+
//! ```
//!
//! - Waiting: a pod may start once the runtime has been listed, and a static pod once no
//!   other of its full name is in the way. What the runtime has of one that waits for its
//!   name is stopped.
//! - It never moves back: a pod that was asked to terminate does.
//! - Waiting, Syncing, Terminating, Terminated: the newest desired pod replaces
//!   the one before, as far as what runs may become that; a kill stays whatever comes
//!   after it.
//! - Terminating: a request may only shorten the grace, which cuts the running step
//!   short.
//! - Terminating, Terminated, Finished: that its source has taken the pod back is noted, and
//!   the same UID created again after that; once finished, the worker is forgotten and
//!   sync-loop creates it anew.
//! - Finished: updates are ignored.

use bulkhead_api::v1::WorkerPhase;
use clock::UnixNanos;
use pod::PodIdentity;

use crate::desired::DesiredPod;
use crate::termination::{KillRequest, Termination, TerminationCause};

/// What kind of update sync-loop sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    /// The pod was added to the desired pods.
    Create,
    /// Its desired state changed.
    Update,
    /// Look at it again.
    Sync,
    /// Stop it.
    Kill,
}

/// What a worker works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A pod that somebody wanted.
    Desired(DesiredPod),
    /// A pod that only the runtime has.
    RuntimeOnly(PodIdentity),
}

impl Subject {
    /// Which pod.
    #[must_use]
    pub fn identity(&self) -> &PodIdentity {
        match self {
            Subject::Desired(pod) => pod.identity(),
            Subject::RuntimeOnly(identity) => identity,
        }
    }

    /// The desired pod, if there is one.
    #[must_use]
    pub fn desired(&self) -> Option<&DesiredPod> {
        match self {
            Subject::Desired(pod) => Some(pod),
            Subject::RuntimeOnly(_) => None,
        }
    }
}

/// One update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// What kind.
    pub kind: UpdateKind,
    /// The pod.
    pub subject: Subject,
    /// For a kill.
    pub kill: Option<KillRequest>,
}

/// What an update came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing changes.
    Ignored(Refusal),
    /// The pod will be started again after it has finished.
    RestartNoted,
    /// The state changed, but a static pod of the same full name runs still.
    Waits,
    /// Run a step as soon as none runs.
    Wake,
    /// End the running step now and run another.
    Interrupt,
}

/// Why an update is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A pod that only the runtime has may only be killed.
    RuntimePodsCanOnlyBeKilled,
    /// Its containers are stopped already.
    AlreadyTerminated,
    /// It has ended; nothing starts it again under this worker.
    Finished,
}

/// What became of a worker after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// It stays in its state.
    None,
    /// It is in another state, whose step is due.
    Advanced,
    /// It is done and its history is of no use.
    Forget,
}

/// What was asked of a pod after its termination began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// Nothing: it has ended by itself or was evicted, and stays ended while its
    /// source has it.
    StaysEnded,
    /// Its source took it back; created again, it is a new start.
    Removed,
    /// It was created again.
    Recreated,
}

impl Afterwards {
    fn of(cause: &TerminationCause) -> Afterwards {
        match cause.permits_recreation() {
            true => Afterwards::Removed,
            false => Afterwards::StaysEnded,
        }
    }

    /// Takes an update in of the pod that ends; whether it asks for a new start.
    fn note(&mut self, update: &Update) -> bool {
        let Some(pod) = update.subject.desired() else {
            return false;
        };
        let is_live = !pod.is_marked_for_deletion() && !pod.phase().is_terminal();
        match update.kind {
            UpdateKind::Create if is_live && *self != Afterwards::StaysEnded => {
                *self = Afterwards::Recreated;
                true
            }
            UpdateKind::Kill if !update.kill.as_ref().is_some_and(KillRequest::is_eviction) => {
                *self = Afterwards::Removed;
                false
            }
            _ => false,
        }
    }
}

/// The state of a worker; see the module's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It may not start yet: the runtime has not been listed since this process started,
    /// or (a static pod) another of the same full name has not finished.
    Waiting {
        /// The newest desired pod.
        pod: DesiredPod,
    },
    /// It is being brought to, or kept at, what is desired.
    Syncing {
        /// The newest desired pod.
        pod: DesiredPod,
    },
    /// Its containers are being stopped.
    Terminating {
        /// The pod.
        subject: Subject,
        /// Why and until when.
        termination: Termination,
        /// What was asked for since.
        afterwards: Afterwards,
    },
    /// Its containers are stopped; volumes, cgroups and files are being removed.
    Terminated {
        /// The pod.
        pod: DesiredPod,
        /// Why and until when it was.
        termination: Termination,
        /// What was asked for since.
        afterwards: Afterwards,
    },
    /// Nothing is left to do.
    Finished {
        /// The pod.
        pod: DesiredPod,
        /// Why and until when it was.
        termination: Termination,
        /// What was asked for since.
        afterwards: Afterwards,
    },
}

/// The worker of one pod UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    state: WorkerState,
    keeps_version: bool,
}

impl Worker {
    /// The worker that a first update makes. One that is to run begins as Waiting;
    /// [`Worker::start`] moves it on.
    ///
    /// # Errors
    /// For an update that makes none.
    pub fn new(now: UnixNanos, update: Update) -> Result<Worker, Refusal> {
        let Update {
            kind,
            subject,
            kill,
        } = update;
        let state = match subject {
            Subject::RuntimeOnly(_) if kind != UpdateKind::Kill => {
                return Err(Refusal::RuntimePodsCanOnlyBeKilled);
            }
            Subject::RuntimeOnly(_) => {
                let cause = cause_of_kill(kill.as_ref(), TerminationCause::Orphaned);
                let termination = Termination::new(cause, now, None, kill.as_ref());
                terminating(subject, termination)
            }
            Subject::Desired(pod) => match cause_in(&pod, kind, kill.as_ref()) {
                Some(cause) => {
                    let termination = Termination::new(cause, now, Some(&pod), kill.as_ref());
                    terminating(Subject::Desired(pod), termination)
                }
                None => WorkerState::Waiting { pod },
            },
        };
        Ok(Worker {
            state,
            keeps_version: false,
        })
    }

    /// The worker of a termination that an earlier process began, or
    /// ended where only its record tells of that.
    #[must_use]
    pub fn resume(identity: PodIdentity, termination: Termination) -> Worker {
        Worker {
            state: terminating(Subject::RuntimeOnly(identity), termination),
            keeps_version: false,
        }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> &WorkerState {
        &self.state
    }

    /// Which pod.
    #[must_use]
    pub fn identity(&self) -> &PodIdentity {
        match &self.state {
            WorkerState::Terminating { subject, .. } => subject.identity(),
            WorkerState::Waiting { pod }
            | WorkerState::Syncing { pod }
            | WorkerState::Terminated { pod, .. }
            | WorkerState::Finished { pod, .. } => pod.identity(),
        }
    }

    /// The newest desired pod, if there is one.
    #[must_use]
    pub fn desired(&self) -> Option<&DesiredPod> {
        match &self.state {
            WorkerState::Waiting { pod }
            | WorkerState::Syncing { pod }
            | WorkerState::Terminated { pod, .. }
            | WorkerState::Finished { pod, .. } => Some(pod),
            WorkerState::Terminating { subject, .. } => subject.desired(),
        }
    }

    /// The termination, once one was asked for.
    #[must_use]
    pub fn termination(&self) -> Option<&Termination> {
        match &self.state {
            WorkerState::Waiting { .. } | WorkerState::Syncing { .. } => None,
            WorkerState::Terminating { termination, .. }
            | WorkerState::Terminated { termination, .. }
            | WorkerState::Finished { termination, .. } => Some(termination),
        }
    }

    /// Whether the same UID was created again after its termination began.
    #[must_use]
    pub fn restart_requested(&self) -> bool {
        match &self.state {
            WorkerState::Waiting { .. } | WorkerState::Syncing { .. } => false,
            WorkerState::Terminating { afterwards, .. }
            | WorkerState::Terminated { afterwards, .. }
            | WorkerState::Finished { afterwards, .. } => *afterwards == Afterwards::Recreated,
        }
    }

    /// The phase, as others are told.
    #[must_use]
    pub fn phase(&self) -> WorkerPhase {
        match &self.state {
            WorkerState::Waiting { .. } => WorkerPhase::Waiting,
            WorkerState::Syncing { .. } => WorkerPhase::Syncing,
            WorkerState::Terminating { .. } => WorkerPhase::Terminating,
            WorkerState::Terminated { .. } => WorkerPhase::Terminated,
            WorkerState::Finished { .. } => WorkerPhase::Finished,
        }
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.state, WorkerState::Finished { .. })
    }

    /// Whether it may not start yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, WorkerState::Waiting { .. })
    }

    /// Whether something of the pod runs, or may, as the version that is known: then it keeps
    /// of that what a running pod keeps.
    pub fn set_keeps_version(&mut self, keeps_version: bool) {
        self.keeps_version = keeps_version;
    }

    /// Applies an update.
    pub fn update(&mut self, now: UnixNanos, update: Update) -> Decision {
        if matches!(update.subject, Subject::RuntimeOnly(_)) && update.kind != UpdateKind::Kill {
            return Decision::Ignored(Refusal::RuntimePodsCanOnlyBeKilled);
        }
        match &mut self.state {
            WorkerState::Waiting { pod } | WorkerState::Syncing { pod } => {
                let pod = pod.clone();
                self.update_live(now, pod, update)
            }
            WorkerState::Terminating {
                subject,
                termination,
                afterwards,
            } => {
                if afterwards.note(&update) {
                    // A resumed termination learns its pod from this update: the
                    // steps after it need the spec.
                    if subject.desired().is_none() {
                        *subject = update.subject;
                    }
                    return Decision::RestartNoted;
                }
                let shorter = termination.shrink(update.subject.desired(), update.kill.as_ref());
                if let Subject::Desired(newest) = update.subject {
                    // What is stopped stays the pod that it was started as.
                    *subject = Subject::Desired(match subject {
                        Subject::Desired(ending) => ending.updated(newest),
                        Subject::RuntimeOnly(_) => newest,
                    });
                }
                if shorter {
                    Decision::Interrupt
                } else {
                    Decision::Wake
                }
            }
            WorkerState::Terminated {
                pod, afterwards, ..
            } => {
                if afterwards.note(&update) {
                    return Decision::RestartNoted;
                }
                match update.subject {
                    // An old view of the runtime: everything is stopped.
                    Subject::RuntimeOnly(_) => Decision::Ignored(Refusal::AlreadyTerminated),
                    Subject::Desired(newest) => {
                        *pod = pod.updated(newest);
                        Decision::Wake
                    }
                }
            }
            WorkerState::Finished { afterwards, .. } => match afterwards.note(&update) {
                true => Decision::RestartNoted,
                false => Decision::Ignored(Refusal::Finished),
            },
        }
    }

    fn update_live(&mut self, now: UnixNanos, known: DesiredPod, update: Update) -> Decision {
        let Update {
            kind,
            subject,
            kill,
        } = update;
        let (pod, cause) = match subject {
            // The runtime has it and somebody wants it dead; what is known of it
            // is better than what the runtime tells.
            Subject::RuntimeOnly(_) => {
                let cause = cause_of_kill(kill.as_ref(), TerminationCause::Orphaned);
                (known, Some(cause))
            }
            Subject::Desired(newest) => {
                let pod = match self.keeps_version && !self.is_waiting() {
                    true => known.updated(newest),
                    false => newest,
                };
                let cause = cause_in(&pod, kind, kill.as_ref());
                (pod, cause)
            }
        };
        if let Some(cause) = cause {
            let termination = Termination::new(cause, now, Some(&pod), kill.as_ref());
            self.state = terminating(Subject::Desired(pod), termination);
            return Decision::Interrupt;
        }
        if self.is_waiting() {
            self.state = WorkerState::Waiting { pod };
            return Decision::Waits;
        }
        self.state = WorkerState::Syncing { pod };
        Decision::Wake
    }

    /// Nothing is in the way of its start any more.
    pub fn start(&mut self) -> Transition {
        let WorkerState::Waiting { pod } = &self.state else {
            return Transition::None;
        };
        self.state = WorkerState::Syncing { pod: pod.clone() };
        Transition::Advanced
    }

    /// A sync found that the pod has ended by itself, or has to.
    pub fn sync_ended(&mut self, now: UnixNanos, cause: TerminationCause) -> Transition {
        let WorkerState::Syncing { pod } = &self.state else {
            return Transition::None;
        };
        let pod = pod.clone();
        let termination = Termination::new(cause, now, Some(&pod), None);
        self.state = terminating(Subject::Desired(pod), termination);
        Transition::Advanced
    }

    /// All containers of a terminating pod are stopped.
    pub fn terminating_done(&mut self) -> Transition {
        let WorkerState::Terminating {
            subject,
            termination,
            afterwards,
        } = &self.state
        else {
            return Transition::None;
        };
        match subject {
            Subject::RuntimeOnly(_) => Transition::Forget,
            Subject::Desired(pod) => {
                self.state = WorkerState::Terminated {
                    pod: pod.clone(),
                    termination: termination.clone(),
                    afterwards: *afterwards,
                };
                Transition::Advanced
            }
        }
    }

    /// What a terminated pod left behind is removed.
    pub fn terminated_done(&mut self) -> Transition {
        let WorkerState::Terminated {
            pod,
            termination,
            afterwards,
        } = &self.state
        else {
            return Transition::None;
        };
        self.state = WorkerState::Finished {
            pod: pod.clone(),
            termination: termination.clone(),
            afterwards: *afterwards,
        };
        Transition::Advanced
    }
}

fn terminating(subject: Subject, termination: Termination) -> WorkerState {
    WorkerState::Terminating {
        afterwards: Afterwards::of(&termination.cause),
        subject,
        termination,
    }
}

/// Why a desired pod is to be terminated, if it is.
fn cause_in(
    pod: &DesiredPod,
    kind: UpdateKind,
    kill: Option<&KillRequest>,
) -> Option<TerminationCause> {
    if kind == UpdateKind::Kill && kill.is_some_and(KillRequest::is_eviction) {
        return Some(cause_of_kill(kill, TerminationCause::Killed));
    }
    if pod.is_marked_for_deletion() {
        return Some(TerminationCause::Deleted);
    }
    if pod.phase().is_terminal() {
        return Some(TerminationCause::EndedAtSource);
    }
    (kind == UpdateKind::Kill).then_some(TerminationCause::Killed)
}

fn cause_of_kill(kill: Option<&KillRequest>, otherwise: TerminationCause) -> TerminationCause {
    match kill.and_then(|kill| kill.eviction.clone()) {
        Some(eviction) => TerminationCause::Evicted {
            reason: eviction.reason,
            message: eviction.message,
            is_disruption: eviction.is_disruption,
        },
        None => otherwise,
    }
}

#[cfg(test)]
mod tests;
