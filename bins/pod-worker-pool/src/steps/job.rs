//! Which step to run, and what it came to.

use ::turns::Purpose;
use clock::UnixNanos;
use pod_lifecycle::plan::ProbeVerdicts;
use pod_lifecycle::{DesiredPod, Subject, Termination, TerminationCause};

use super::error::StepError;

/// A step to run.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// Keep a pod from running that waits for its name.
    Wait(DesiredPod),
    /// Bring a pod to what is desired.
    Sync(DesiredPod, SyncInput),
    /// Stop everything of a pod.
    Terminate(Subject, Termination),
    /// Remove what a stopped pod had on the node.
    CleanUp(DesiredPod, Termination),
}

impl Job {
    pub(super) fn uid(&self) -> &str {
        match self {
            Job::Wait(pod) | Job::Sync(pod, _) | Job::CleanUp(pod, _) => pod.identity().uid(),
            Job::Terminate(subject, _) => subject.identity().uid(),
        }
    }

    pub(super) fn is_critical(&self) -> bool {
        match self {
            Job::Wait(pod)
            | Job::Sync(pod, _)
            | Job::CleanUp(pod, _)
            | Job::Terminate(Subject::Desired(pod), _) => pod.is_critical(),
            Job::Terminate(Subject::RuntimeOnly(_), _) => false,
        }
    }

    pub(super) fn purpose(&self) -> Purpose {
        match self {
            Job::Sync(..) => Purpose::Run,
            Job::Wait(..) | Job::Terminate(..) | Job::CleanUp(..) => Purpose::End,
        }
    }
}

/// What a sync needs beside the pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct SyncInput {
    /// What probes say of instances.
    pub probe_verdicts: ProbeVerdicts,
    /// The node has no room yet for the CPU and memory that the pod is to have.
    pub resize_is_pending: bool,
}

/// What a step came to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing is left to do now: the pod is as desired, or waits for something.
    Settled {
        /// When to look again even if nothing happens.
        wake_at: Option<UnixNanos>,
    },
    /// The pod is at its end.
    Ended(TerminationCause),
    /// Everything of the pod is stopped.
    Stopped,
    /// Nothing of the pod is left on the node.
    CleanedUp,
    /// It has to be tried again.
    Failed(StepError),
}
