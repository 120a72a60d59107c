//! What to do with a pod now: all that is known in, the next step out. Pure.
//!
//! Whether the pod is to run, to wait for its name, to be stopped or to be cleared away
//! is decided here, and nothing edits [`Facts`] before or the [`Plan`] after: steps
//! carry it out, look again and ask for the next, until the plan is empty. So a plan
//! need not foresee what its own actions lead to, and whoever finds the pod after a
//! crash between two of them needs no memory of the first.
//!
//! ```text
//!   to be run:
//!     deadline over, or all containers done ----------> End
//!     no sandbox that can be used --------------------> NewSandbox
//!     more than one that runs ------------------------> StopSandboxes
//!     init containers not done -----------------------> Work on the next of them
//!     else -------------------------------------------> Work on the containers
//!   to wait for its name:
//!     something of it is alive -----------------------> StopPod
//!     else -------------------------------------------> Work, which is empty
//!   to be terminated:
//!     calls that make something are under way --------> AwaitCalls
//!     something of it is alive, or holds an address --> StopPod
//!     else -------------------------------------------> Stopped, or CleanUp
//!   to be cleared away -------------------------------> CleanUp
//! ```
//!
//! `considered` puts together what the runtime shows and what is known besides;
//! `sandbox`, `init` and `containers` decide about those; `restart` when a container is
//! started again; `refused` what is left of that for a pod that the node policy refuses;
//! `stop` what stops a whole pod; `start_time` since when a pod counts.

mod considered;
mod containers;
mod describe;
mod init;
mod refused;
mod restart;
mod sandbox;
mod start_time;
mod stop;

use std::collections::BTreeSet;
use std::time::Duration;

use backoff::Curve;
use clock::UnixNanos;
use pod::accessors::ContainerKind;
use pod::{Pod, PodExt, PodIdentity};

use crate::known::Known;
use crate::observation::{Container, Observation};
use crate::policy::Refused;
use crate::stop::{KillReason, Moment};
use crate::worker::{Termination, TerminationCause};

pub(crate) use containers::pod_grace;
pub(crate) use describe::{describe, describe_termination};
pub(crate) use restart::go_duration;
pub(crate) use sandbox::Unusable;
pub(crate) use start_time::{notes_start, started_at, started_at_source};
pub(crate) use stop::{CleanUp, StopPod, UnstartedContainer};

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// What is to become of the pod.
    pub goal: Goal<'a>,
    /// What the runtime has of it.
    pub observation: &'a Observation,
    /// What is known of it besides.
    pub known: &'a Known,
    /// Containers whose images are being pulled.
    pub pulls: &'a BTreeSet<String>,
    /// Whether calls are under way that make something of it.
    pub calls_under_way: bool,
    /// Instances whose probes have failed.
    pub failed_probes: &'a FailedProbes,
    /// When its first sync was, if that is noted.
    pub noted_start: Option<UnixNanos>,
    /// What is the same for all pods.
    pub settings: Settings,
    /// Now.
    pub now: Moment,
}

/// What is to become of a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal<'a> {
    /// It runs, as far as the node policy lets it.
    Run {
        /// The pod.
        pod: &'a Pod,
        /// Why the node policy lets nothing new be made for it.
        refused: Option<&'a Refused>,
    },
    /// It waits until the static pod that has its name has ended.
    Wait(&'a Pod),
    /// It ends.
    Terminate {
        /// Why, and with which grace.
        termination: &'a Termination,
        /// Whether only the runtime has it: nobody will ask for its files to go.
        is_runtime_only: bool,
    },
    /// What it had on the node goes.
    CleanUp(&'a Termination),
}

/// What is the same for all pods of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Crash-loop back-off.
    pub restart_curve: Curve,
    /// How long a call can hold the name of a sandbox that lists do not show.
    pub sandbox_name_is_held: Duration,
    /// How long a call can hold the name of an instance that lists do not show.
    pub instance_name_is_held: Duration,
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
        /// What is left, to be stopped first.
        stop: StopPod,
    },
    /// Stop sandboxes that run beside the pod's own.
    StopSandboxes {
        /// Their ids.
        sandboxes: Vec<String>,
        /// What runs in them, to be stopped first.
        stops: Vec<ContainerStop>,
    },
    /// Work in the sandbox that there is.
    Work(Work),
    /// Wait for calls that make something, so that what they make is seen.
    AwaitCalls,
    /// Stop all that is alive of the pod.
    StopPod(StopPod),
    /// Nothing of the pod is alive.
    Stopped,
    /// Clear away what it had on the node.
    CleanUp(CleanUp),
}

/// What to do in a sandbox that can be used. Empty: the pod is as desired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Instances to stop; comes before everything else.
    pub stops: Vec<ContainerStop>,
    /// Instances to start.
    pub starts: Vec<Start>,
    /// Containers that wait after a crash.
    pub waits: Vec<RestartWait>,
    /// Containers that wait for their images.
    pub pulls: Vec<String>,
    /// When to plan again even if nothing happens.
    pub wake_at: Option<UnixNanos>,
}

impl Work {
    /// Whether there is nothing to do now.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.stops.is_empty() && self.starts.is_empty()
    }

    fn wake(&mut self, at: UnixNanos) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

/// An instance to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerStop {
    /// The instance.
    pub container_id: String,
    /// Its container.
    pub name: String,
    /// Why, while the pod lives on; absent when it is stopped with its pod.
    pub reason: Option<KillReason>,
    /// For the event.
    pub message: String,
    /// How long it may take: the probe's own grace period or the pod's.
    pub grace: Duration,
    /// How.
    pub how: StopHow,
}

/// How an instance is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopHow {
    /// By a stop.
    Stop,
    /// By a stop, though the runtime does not know whether it runs, and may not know
    /// after it either.
    StopUnknown,
    /// By its removal: a stop has not helped.
    Remove,
}

/// A container to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Its name.
    pub name: String,
    /// The sandbox that it starts in.
    pub sandbox_id: String,
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
pub(crate) fn plan(facts: &Facts<'_>) -> Plan {
    match facts.goal {
        Goal::Run { pod, refused } => run(facts, pod, refused),
        Goal::Wait(pod) => stop::waiting(facts, pod),
        Goal::Terminate {
            termination,
            is_runtime_only,
        } => stop::terminating(facts, termination, is_runtime_only),
        Goal::CleanUp(termination) => Plan::CleanUp(CleanUp::after(&termination.cause)),
    }
}

/// The plan of a pod that is to run.
fn run(facts: &Facts<'_>, pod: &Pod, refused: Option<&Refused>) -> Plan {
    let considered = considered::Considered::of(facts, pod);
    let inputs = Inputs {
        facts,
        pod,
        observation: &considered.observation,
    };
    let plan = match refused {
        Some(refused) => refused::next(&inputs, refused),
        None => next_for_running(&inputs),
    };
    match considered.is_ahead {
        true => considered::ahead_of_the_lists(plan, facts),
        false => plan,
    }
}

fn next_for_running(inputs: &Inputs<'_>) -> Plan {
    let started_at = started_at(inputs.pod, inputs.facts.noted_start, inputs.observation);
    let deadline = match deadline(inputs.pod, started_at) {
        Some(deadline) if deadline <= inputs.now() => {
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

/// What decisions about a pod that is to run are made from.
#[derive(Clone, Copy, Debug)]
struct Inputs<'a> {
    facts: &'a Facts<'a>,
    pod: &'a Pod,
    /// As `considered` puts it together.
    observation: &'a Observation,
}

impl Inputs<'_> {
    fn now(&self) -> UnixNanos {
        self.facts.now.wall
    }

    /// The kill of this instance that was begun.
    fn kill_of(&self, container: &Container) -> Option<KillReason> {
        self.facts.known.kill_reason(&container.id)
    }
}

#[cfg(test)]
mod tests;
