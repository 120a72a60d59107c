//! What a worker does: one step at a time, each of which may be dropped at any
//! await and run again from the beginning.
//!
//! - `wait`: stop what an earlier life has left of a pod that may not run yet;
//! - `sync`: observe, plan, act, until the plan is empty;
//! - `terminate`: stop everything of the pod within its grace, and after that remove
//!   what it had on the node.
//!
//! When and which step runs is decided by the worker's state (`Worker`) and the
//! actor (`pool`).

mod calls;
mod containers;
mod error;
mod image;
mod pulls;
mod sandbox;
mod start;
mod start_time;
mod stop;
mod sync;
mod terminate;
mod unstarted;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ::turns::Purpose;
use backoff::Curve;
use clock::{UnixNanos, WallClock};
use cri::ContainerRuntime;
use cri_requests::NodeFacts;
use node_host::NodeHost;
use pod::{Pod, PodIdentity};
use pod_lifecycle::known::Known;
use pod_lifecycle::observation::Observation;
use pod_lifecycle::plan::{self, Facts, FailedProbes, Goal, Plan, Settings};
use pod_lifecycle::record::Record;
use pod_lifecycle::{DesiredPod, Subject, Termination, TerminationCause};

use crate::doorbell::Doorbell;
use crate::events::Events;
use crate::image::Images;
use crate::observe::{Cache, Observer};
use crate::policy::NodePolicy;
use crate::publisher::Publisher;
use crate::record::Records;
use crate::told_ends::ToldEnds;
use crate::turns::Turns;

use pulls::PodPulls;

pub(crate) use calls::Calls;
pub(crate) use error::{Pause, Retry, StepError};
pub(crate) use unstarted::LifeBegin;

/// How long the runtime may take to undo a call that was given up, its name still
/// held: containerd gives that a minute.
const UNDOING: Duration = Duration::from_secs(60);

/// How long a RunPodSandbox may hold a name.
const SANDBOX_NAME_IS_HELD: Duration = cri::RUN_POD_SANDBOX_DEADLINE.saturating_add(UNDOING);

/// How long a CreateContainer may hold a name.
const INSTANCE_NAME_IS_HELD: Duration = cri::DEFAULT_DEADLINE.saturating_add(UNDOING);

/// What steps work with; shared by all pods.
pub(crate) struct Steps {
    /// The container runtime.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// Turns at the runtime, which it takes by itself.
    pub turns: Turns,
    /// Files, mounts and cgroups.
    pub host: Arc<dyn NodeHost>,
    /// Asks the runtime about a pod.
    pub observer: Observer,
    /// Ends that the runtime told of before its lists show them.
    pub told_ends: ToldEnds,
    /// Pulls images.
    pub images: Arc<Images>,
    /// Rings when a pull has ended.
    pub doorbell: Doorbell,
    /// What requests are made from.
    pub facts: NodeFacts,
    /// What pods may be on this node.
    pub policy: NodePolicy,
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

impl Job {
    fn uid(&self) -> &str {
        match self {
            Job::Wait(pod) | Job::Sync(pod, _) | Job::CleanUp(pod, _) => pod.identity().uid(),
            Job::Terminate(subject, _) => subject.identity().uid(),
        }
    }

    fn is_critical(&self) -> bool {
        match self {
            Job::Wait(pod)
            | Job::Sync(pod, _)
            | Job::CleanUp(pod, _)
            | Job::Terminate(Subject::Desired(pod), _) => pod.is_critical(),
            Job::Terminate(Subject::RuntimeOnly(_), _) => false,
        }
    }

    fn purpose(&self) -> Purpose {
        match self {
            Job::Sync(..) => Purpose::Run,
            Job::Wait(..) | Job::Terminate(..) | Job::CleanUp(..) => Purpose::End,
        }
    }
}

impl Steps {
    /// Runs a step.
    pub(crate) async fn run(&self, job: &Job, memory: &mut Memory) -> Outcome {
        self.turns
            .step_begins(job.uid(), job.is_critical(), job.purpose());
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

impl Steps {
    /// What the runtime has of a pod now, and what its events told.
    async fn observe(
        &self,
        identity: &PodIdentity,
        pod: Option<&Pod>,
        memory: &mut Memory,
    ) -> Result<Observation, StepError> {
        let Memory { known, cache, .. } = memory;
        let observed = self.observer.observe(identity, pod, known, cache);
        let mut observation = observed.await?;
        observation.told_ends = self.told_ends.of(&observation);
        Ok(observation)
    }

    /// What to do next with a pod.
    fn plan_for(
        &self,
        goal: Goal<'_>,
        failed_probes: &FailedProbes,
        observation: &Observation,
        memory: &Memory,
    ) -> Plan {
        plan::plan(&Facts {
            goal,
            observation,
            known: &memory.known,
            pulls: &memory.pulls.under_way(),
            calls_under_way: memory.calls.are_under_way(),
            failed_probes,
            noted_start: memory.record.started_at,
            settings: Settings {
                restart_curve: self.restart_curve,
                sandbox_name_is_held: SANDBOX_NAME_IS_HELD,
                instance_name_is_held: INSTANCE_NAME_IS_HELD,
            },
            now: self.moment(),
        })
    }

    /// Writes the record, as far as it goes.
    async fn save_record(&self, identity: &PodIdentity, memory: &Memory) {
        if let Err(error) = self.records.save(identity, &memory.record).await {
            // The kill goes on: a full disk, or one that hangs, must not keep a pod
            // alive. What is lost is that the next process would know of it; of a pod
            // that must stay ended `close_record` makes sure.
            tracing::warn!(pod = %identity, error = telemetry::chain(&error), "not recorded");
        }
    }
}

/// What the steps of one pod remember. All but the record can be lost.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// What the plan is made from beside what the runtime shows.
    known: Known,
    /// What the next process needs of it.
    record: Record,
    cache: Cache,
    /// Calls that make something and are under way.
    calls: Calls,
    /// Stops of containers that are under way; no step waits for those of another.
    stop_calls: Calls,
    /// Pulls of images that are under way; no step waits for them.
    pulls: PodPulls,
    /// Why containers do not run: reason and message by name.
    reasons: BTreeMap<String, (String, String)>,
    /// What people were told, so that they are told once.
    announced: BTreeSet<Announcement>,
}

/// What people are told once of an instance, by its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Announcement {
    /// The start after its exit waits.
    BackOff(String),
    /// It is stopped with its pod.
    Stopping(String),
}

impl Memory {
    /// A memory that knows which kills were begun.
    #[must_use]
    pub(crate) fn new(record: Record) -> Memory {
        Memory {
            known: Known::of_record(&record),
            record,
            ..Memory::default()
        }
    }

    /// Puts what is known into the record; whether that changed it.
    fn brings_record_up_to_date(&mut self) -> bool {
        let before = self.record.clone();
        self.known.write_to(&mut self.record);
        self.record != before
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
