//! What is known of one pod, from its worker and from its steps.

use std::collections::{BTreeMap, BTreeSet};

use bulkhead_api::v1;
use pod::PodIdentity;
use pod_lifecycle::instance_resources::InstanceResources;
use pod_lifecycle::observation::Observation;
use pod_lifecycle::{DesiredPod, Termination};

/// What a worker says of its pod.
#[derive(Clone, Debug)]
pub(crate) struct WorkerView {
    /// Which pod.
    pub identity: PodIdentity,
    /// The desired pod, if there is one.
    pub desired: Option<DesiredPod>,
    /// The worker's phase.
    pub phase: v1::WorkerPhase,
    /// The termination, once one was asked for.
    pub termination: Option<Termination>,
    /// Why the pod does not get the CPU and memory that it is to have, if it has to wait.
    pub pending_resize: Option<v1::PendingResize>,
}

/// What a step found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Findings {
    /// What the runtime has.
    pub observation: Observation,
    /// Instances that run and whose postStart hooks have not ended, by id: they do not
    /// count as started yet.
    pub in_post_start: BTreeSet<String>,
    /// Why containers that should exist do not run.
    pub waiting: Vec<Waiting>,
    /// Instances that are left of earlier rounds: they decide nothing any more. By id.
    pub left_of_earlier: BTreeSet<String>,
    /// Instances that were stopped to be started again, and have ended. By id.
    pub restarted_after_kill: BTreeSet<String>,
    /// What instances run with, by id, as far as that is known.
    pub resources: BTreeMap<String, InstanceResources>,
    /// Some are being given something else; with what went wrong, or nothing.
    pub resize: Option<String>,
    /// Whether the node policy refuses the pod.
    pub is_refused: bool,
    /// What went wrong, or nothing.
    pub sync_error: String,
    /// What was done and why, for people.
    pub last_plan: String,
    /// Whether the runtime was asked.
    pub is_observed: bool,
}

/// Why a container that should exist does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Its name.
    pub name: String,
    /// ContainerCreating, CrashLoopBackOff, ErrImagePull ...
    pub reason: String,
    /// For people.
    pub message: String,
}
