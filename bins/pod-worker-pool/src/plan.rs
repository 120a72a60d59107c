//! What to do with a pod now: desired pod and observation in, plan out. Pure.
//!
//! A plan is one step. Who carries it out looks again and asks for the next,
//! until the plan is empty: so a plan need not foresee what its own actions
//! lead to, and a crash between two of them needs no memory of the first.
//!
//! ```text
//!   deadline over, or all containers done ------------> End
//!   no sandbox that can be used ----------------------> NewSandbox
//!   more than one that runs --------------------------> StopSandboxes
//!   init containers not done -------------------------> Work on the next of them
//!   else ---------------------------------------------> Work on the containers
//! ```

mod containers;
mod describe;
mod init;
mod restart;
mod sandbox;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use backoff::Curve;
use clock::UnixNanos;
use pod::accessors::ContainerKind;
use pod::{Pod, PodExt, PodIdentity};
use serde::{Deserialize, Serialize};

use crate::observation::{Container, Observation};
use crate::worker::TerminationCause;

pub(crate) use containers::pod_grace;
pub(crate) use describe::describe;
pub(crate) use restart::go_duration;
pub(crate) use sandbox::Unusable;

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    /// The desired pod.
    pub pod: &'a Pod,
    /// What the runtime has of it.
    pub observation: &'a Observation,
    /// Instances whose probes have failed.
    pub failed_probes: &'a FailedProbes,
    /// Kills that were begun, by container id, in an earlier life too.
    pub kills: &'a BTreeMap<String, KillReason>,
    /// Crash-loop back-off.
    pub restart_curve: Curve,
    /// When the pod was started, if it was.
    pub started_at: Option<UnixNanos>,
    /// Now, in wall time: exits have wall time too.
    pub now: UnixNanos,
}

/// Instances of containers whose probes have failed, by container id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FailedProbes {
    /// Liveness.
    pub not_live: BTreeSet<String>,
    /// Startup.
    pub not_started: BTreeSet<String>,
}

/// One step for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The pod is at its end: terminate it.
    End(TerminationCause),
    /// Stop what is left and make a new sandbox.
    NewSandbox {
        /// Its number.
        attempt: u32,
        /// Why the last one is no good; absent for the first one.
        why: Option<Unusable>,
        /// Containers that start first in it: their images are needed.
        first: Vec<String>,
    },
    /// Stop sandboxes that run beside the pod's own.
    StopSandboxes {
        /// Their ids.
        sandboxes: Vec<String>,
        /// What runs in them, to be stopped first.
        kills: Vec<Kill>,
    },
    /// Work in the sandbox that there is.
    Work(Work),
}

/// What to do in a sandbox that can be used. Empty: the pod is as desired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Instances to stop; comes before everything else.
    pub kills: Vec<Kill>,
    /// Instances to start.
    pub starts: Vec<Start>,
    /// Containers that wait after a crash.
    pub waits: Vec<RestartWait>,
    /// When to plan again even if nothing happens.
    pub wake_at: Option<UnixNanos>,
}

impl Work {
    /// Whether there is nothing to do now.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.kills.is_empty() && self.starts.is_empty()
    }

    fn wake(&mut self, at: UnixNanos) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

/// Why an instance is stopped while its pod lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum KillReason {
    /// Its spec changed.
    DefinitionChanged,
    /// Its liveness probe failed.
    LivenessFailed,
    /// Its startup probe failed.
    StartupFailed,
    /// The runtime does not know whether it runs.
    StateUnknown,
    /// A newer instance runs.
    Superseded,
    /// Its sandbox cannot be used any more.
    SandboxLost,
}

impl KillReason {
    /// Whether the container is started again, given whether its policy starts
    /// failed containers.
    fn restarts(self, policy_restarts_failed: bool) -> bool {
        match self {
            Self::DefinitionChanged | Self::StateUnknown => true,
            Self::LivenessFailed | Self::StartupFailed | Self::SandboxLost => {
                policy_restarts_failed
            }
            Self::Superseded => false,
        }
    }
}

/// An instance to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    /// The instance.
    pub container_id: String,
    /// Its container.
    pub name: String,
    /// Why.
    pub reason: KillReason,
    /// For the event.
    pub message: String,
    /// How long it may take: the probe's own grace period or the pod's.
    pub grace: Duration,
}

impl Kill {
    /// The kill of an instance whose sandbox is to go while its pod lives on.
    #[must_use]
    pub(crate) fn of_lost_sandbox(pod: &Pod, container: &Container) -> Kill {
        Kill {
            container_id: container.id.clone(),
            name: container.name.clone(),
            reason: KillReason::SandboxLost,
            message: format!("Stopping container {}", container.name),
            grace: pod_grace(pod),
        }
    }
}

/// A container to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Its name.
    pub name: String,
    /// Which kind it is.
    pub kind: ContainerKind,
    /// How.
    pub how: StartHow,
}

/// How a container comes to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartHow {
    /// Make an instance and start it.
    Create(NewInstance),
    /// An instance was made and never started.
    Resume {
        /// The instance.
        container_id: String,
        /// The restart count that it was made with.
        restart_count: u32,
    },
}

/// A new instance of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewInstance {
    /// Its number, and how often the container was started before.
    pub restart_count: u32,
    /// What to note on it: how long the start after its exit waits.
    pub restart_wait: Duration,
    /// Instances that never ran and are in its way.
    pub discard: Vec<Discard>,
}

/// An instance that is removed before another one is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Discard {
    /// Its id.
    pub container_id: String,
    /// Whether its start was begun and given up; else nobody has asked for it, or it
    /// may be under way.
    pub start_was_abandoned: bool,
}

/// A container that is not started yet because it crashed before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestartWait {
    /// Its name.
    pub name: String,
    /// The instance that exited.
    pub container_id: String,
    /// How long it waits in all.
    pub wait: Duration,
    /// Until when.
    pub until: UnixNanos,
}

impl RestartWait {
    /// What the kubelet says in the container's waiting state.
    #[must_use]
    pub(crate) fn message(&self, pod: &PodIdentity) -> String {
        format!(
            "back-off {} restarting failed container={} pod={}_{}({})",
            go_duration(self.wait),
            self.name,
            pod.name(),
            pod.namespace(),
            pod.uid()
        )
    }
}

/// Makes the plan.
#[must_use]
pub(crate) fn plan(inputs: &Inputs<'_>) -> Plan {
    let deadline = match deadline(inputs.pod, inputs.started_at) {
        Some(deadline) if deadline <= inputs.now => {
            return Plan::End(TerminationCause::DeadlineExceeded);
        }
        deadline => deadline,
    };
    if inputs.pod.is_marked_for_deletion() {
        return Plan::End(TerminationCause::Deleted);
    }
    let sandbox = match sandbox::choose(inputs) {
        sandbox::Choice::Use(sandbox) => sandbox,
        sandbox::Choice::Plan(plan) => return plan,
    };
    let mut plan = match init::progress(inputs, &sandbox.id) {
        init::Progress::Failed => return Plan::End(TerminationCause::Completed),
        init::Progress::Done => containers::plan(inputs, &sandbox.id),
        init::Progress::Running => Plan::Work(Work::default()),
        init::Progress::Next(next) => Plan::Work(init::start(inputs, &sandbox.id, next)),
    };
    if let (Plan::Work(work), Some(deadline)) = (&mut plan, deadline) {
        work.wake(deadline);
    }
    plan
}

/// When a pod that was started then has to be at its end.
#[must_use]
pub(crate) fn deadline(pod: &Pod, started_at: Option<UnixNanos>) -> Option<UnixNanos> {
    let seconds = u64::try_from(pod.active_deadline_seconds()?).ok()?;
    Some(started_at?.plus(Duration::from_secs(seconds)))
}

impl Inputs<'_> {
    /// The kill of this instance that was begun.
    fn kill_of(&self, container: &Container) -> Option<KillReason> {
        self.kills.get(&container.id).copied()
    }
}

#[cfg(test)]
mod tests;
