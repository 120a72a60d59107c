//! What to do next with a pod, as the plan gives it: the kubelet's `podActions`.

use std::time::Duration;

use clock::UnixNanos;
use pod::PodIdentity;
use pod::accessors::ContainerKind;
use pod_volumes::Volume;

use super::go_duration::go_duration;
use crate::hook::Hook;
use crate::instance_resources::InstanceResources;
use crate::stop::KillReason;
use crate::termination::TerminationCause;

/// What to do next with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
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
        /// Volumes to make before.
        volumes: Vec<Volume>,
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

impl Plan {
    /// Whether it makes a sandbox or a container, and so needs what those are made from.
    #[must_use]
    pub fn makes_something(&self) -> bool {
        match self {
            Plan::NewSandbox { .. } => true,
            Plan::Work(work) => work.creates(),
            _ => false,
        }
    }
}

/// What to do in a sandbox that can be used. Nothing to do now: the pod is as desired, or
/// waits for a back-off, a pull or a hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Instances to stop; comes before everything else.
    pub stops: Vec<ContainerStop>,
    /// Volumes to make before anything is started.
    pub volumes: Vec<Volume>,
    /// Instances to give other resources; when nothing is to be stopped, and before
    /// anything is started.
    pub resizes: Vec<Resize>,
    /// postStart hooks to begin.
    pub post_starts: Vec<PostStartHook>,
    /// Instances to start, in this order where hooks make it matter.
    pub starts: Vec<Start>,
    /// Volumes of files to look at on the disk, and to write again where they differ; only
    /// when nothing is to be stopped or started.
    pub refreshes: Vec<Volume>,
    /// Containers that wait after a crash.
    pub waits: Vec<RestartWait>,
    /// Containers that wait for their images.
    pub pulls: Vec<String>,
    /// When to plan again even if nothing happens.
    pub wake_at: Option<UnixNanos>,
}

impl Work {
    pub(super) fn of_stops(stops: Vec<ContainerStop>) -> Work {
        Work {
            stops,
            ..Work::default()
        }
    }

    /// Whether there is nothing to do now. There may be something to wait for.
    #[must_use]
    pub fn has_nothing_to_do_now(&self) -> bool {
        !self.stops_starts_or_begins_hooks() && self.resizes.is_empty() && self.refreshes.is_empty()
    }

    pub(super) fn stops_starts_or_begins_hooks(&self) -> bool {
        !(self.stops.is_empty() && self.starts.is_empty() && self.post_starts.is_empty())
    }

    /// Whether it makes a container. Stops come first, and are looked at before anything is
    /// started. An instance that was made already has all that it needs.
    pub(super) fn creates(&self) -> bool {
        let mut starts = self.starts.iter();
        self.stops.is_empty() && starts.any(|start| matches!(start.how, StartHow::Create(_)))
    }

    pub(super) fn wake(&mut self, at: UnixNanos) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

/// An instance to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStop {
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
    /// What comes before its SIGTERM, within the grace; absent when that has been done.
    pub pre_stop: Option<Hook>,
    /// Instances that are to have ended, or to be removed, before its SIGTERM, while its
    /// grace lasts.
    pub after: Vec<String>,
}

/// An instance to give other resources while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resize {
    /// The instance.
    pub container_id: String,
    /// Its container.
    pub name: String,
    /// What it runs with.
    pub from: InstanceResources,
    /// What it is to run with.
    pub to: InstanceResources,
}

/// A postStart hook to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostStartHook {
    /// The instance that has been started.
    pub container_id: String,
    /// Its container.
    pub name: String,
    /// What is run.
    pub hook: Hook,
}

/// How an instance is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopHow {
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
pub struct Start {
    /// Its name.
    pub name: String,
    /// The sandbox that it starts in.
    pub sandbox_id: String,
    /// Which kind it is.
    pub kind: ContainerKind,
    /// How.
    pub how: StartHow,
    /// Whether it has a postStart hook. Then it is started in a step of its own after it
    /// was made, and those after it wait until the hook has ended, as in the kubelet.
    pub has_post_start: bool,
}

/// How a container comes to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartHow {
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
pub struct NewInstance {
    /// Its number, and how often the container was started before.
    pub restart_count: u32,
    /// What to note on it: how long the start after its exit waits.
    pub restart_wait: Duration,
    /// How often all containers of the pod were started again before.
    pub round: u32,
    /// Instances that never ran and are in its way.
    pub discard: Vec<Discard>,
}

/// An instance that is removed before another one is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discard {
    /// Its id.
    pub container_id: String,
    /// Whether its start was begun and given up; else nobody has asked for it, or it
    /// may be under way.
    pub start_was_abandoned: bool,
}

/// A container that is not started yet because it crashed before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartWait {
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
    pub fn message(&self, pod: &PodIdentity) -> String {
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

/// Why a sandbox cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It does not run.
    NotReady,
    /// The pod changed between the node's network and its own.
    NetworkChanged,
    /// It should have an address and has none.
    NoAddress,
    /// It was made for another version of the pod, of which nothing runs.
    OfAnotherVersion,
}

/// What of a pod is to be stopped, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopPod {
    /// Instances that run, or may.
    pub containers: Vec<ContainerStop>,
    /// Instances that were created and not started, to be removed: their start may be
    /// under way.
    pub created: Vec<CreatedContainer>,
    /// Sandboxes, those included that run no more: they may still hold an address.
    pub sandboxes: Vec<String>,
}

/// An instance that was created and, as far as lists show, not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedContainer {
    /// The instance.
    pub container_id: String,
    /// Its container.
    pub name: String,
}

/// What to clear away of a pod of which nothing is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanUp {
    /// Whether its directory goes too. That of a pod that has ended by itself stays
    /// while its source has it: termination messages are in there.
    pub removes_directory: bool,
    /// Whether nothing but its record tells that the pod has ended. That has to be
    /// written before anybody may take the pod for ended, or the next process would
    /// start it again; but for a shutdown of the node, which waits for no disk.
    pub must_be_recorded: bool,
}

impl CleanUp {
    /// What goes of a pod that was terminated for this.
    #[must_use]
    pub fn after(cause: &TerminationCause) -> CleanUp {
        CleanUp {
            removes_directory: cause.permits_recreation(),
            must_be_recorded: cause.is_known_by_record_alone(),
        }
    }
}

impl StopPod {
    pub(super) fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.created.is_empty() && self.sandboxes.is_empty()
    }
}
