//! What a worker does: one step at a time, each of which may be dropped at any
//! await and run again from the beginning.
//!
//! - `wait`: stop what an earlier life has left of a pod that may not run yet;
//! - `sync`: observe, plan, act, until the plan is empty;
//! - `terminate`: stop everything of the pod within its grace, and after that remove
//!   what it had on the node.
//!
//! When and which step runs is decided by the worker's state (`worker`) and the
//! actor (`pool`).

mod calls;
mod containers;
mod error;
mod image;
mod kill;
mod pulls;
mod sandbox;
mod start;
mod start_time;
mod sync;
mod taken;
mod terminate;
mod unstarted;
mod unstopped;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use backoff::Curve;
use clock::{UnixNanos, WallClock};
use cri::ContainerRuntime;

use crate::config::NodeFacts;
use crate::doorbell::Doorbell;
use crate::endings::Endings;
use crate::events::Events;
use crate::image::Images;
use crate::node::NodeHost;
use crate::observe::{Cache, Observer};
use crate::plan::FailedProbes;
use crate::publisher::Publisher;
use crate::record::{Record, Records};
use crate::stop::Deadlines;
use crate::worker::{DesiredPod, Subject, Termination, TerminationCause};

use pulls::PodPulls;
use taken::TakenName;

pub(crate) use calls::Calls;
pub(crate) use error::{Pause, Retry, StepError};
pub(crate) use unstarted::LifeBegin;

/// What steps work with; shared by all pods.
pub(crate) struct Steps {
    /// The container runtime.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// Files, mounts and cgroups.
    pub host: Arc<dyn NodeHost>,
    /// Asks the runtime about a pod.
    pub observer: Observer,
    /// Ends that the runtime told of before its lists show them.
    pub endings: Endings,
    /// Pulls images.
    pub images: Arc<Images>,
    /// Rings when a pull has ended.
    pub doorbell: Doorbell,
    /// What requests are made from.
    pub facts: NodeFacts,
    /// What people are told.
    pub events: Events,
    /// What other processes are told.
    pub publisher: Publisher,
    /// Kills that were begun.
    pub records: Records,
    /// Wall time.
    pub clock: WallClock,
    /// Crash-loop back-off of containers.
    pub restart_curve: Curve,
    /// When this life of the process began.
    pub begin: LifeBegin,
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Steps").finish_non_exhaustive()
    }
}

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

impl Steps {
    /// Runs a step.
    pub(crate) async fn run(&self, job: &Job, memory: &mut Memory) -> Outcome {
        if !matches!(job, Job::Sync(..)) {
            memory.pulls.give_up();
        }
        match job {
            Job::Wait(pod) => self.wait(pod, memory).await,
            Job::Sync(pod, input) => self.sync(pod, input, memory).await,
            Job::Terminate(subject, termination) => {
                self.terminate(subject, termination, memory).await
            }
            Job::CleanUp(pod, termination) => self.clean_up(pod, termination, memory).await,
        }
    }
}

/// What the steps of one pod remember. All but the record can be lost.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    cache: Cache,
    record: Record,
    /// Until when the stops in the record may take, in this life.
    deadlines: Deadlines,
    calls: Calls,
    /// Stops of containers that are under way; no step waits for those of another.
    stop_calls: Calls,
    /// Pulls of images that are under way; no step waits for them.
    pulls: PodPulls,
    /// Why containers do not run: reason and message by name.
    reasons: BTreeMap<String, (String, String)>,
    /// Containers whose back-off was announced, by the exited instance's id.
    announced: BTreeSet<String>,
    /// Instances whose end was announced.
    stopping: BTreeSet<String>,
    /// Instances of unknown state that were stopped and are unknown still.
    unstoppable: BTreeSet<String>,
    /// Instances whose start the runtime itself refused, in this life.
    refused_starts: BTreeSet<String>,
    /// The name of the sandbox that is to be made.
    sandbox_name: TakenName,
    /// Names of instances that are to be made, by container.
    instance_names: BTreeMap<String, TakenName>,
}

impl Memory {
    /// A memory that knows which kills were begun.
    #[must_use]
    pub(crate) fn new(record: Record) -> Memory {
        Memory {
            record,
            ..Memory::default()
        }
    }
}

/// What a sync needs beside the pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct SyncInput {
    /// Instances whose probes failed.
    pub failed_probes: FailedProbes,
}

/// What a step came to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The pod is as desired for now.
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
