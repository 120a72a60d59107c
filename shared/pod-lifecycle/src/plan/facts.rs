//! What a plan is made from.

use std::collections::BTreeSet;
use std::time::Duration;

use backoff::Curve;
use clock::UnixNanos;
use pod::Pod;
use pod_volumes::Content;

use crate::known::{Known, SandboxKnown};
use crate::observation::{Container, Observation};
use crate::stop::{KillReason, Moment};
use crate::termination::Termination;

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What is to become of the pod.
    pub goal: Goal<'a>,
    /// What the runtime has of it.
    pub observation: &'a Observation,
    /// What is known of it besides.
    pub known: &'a Known,
    /// Containers whose images are being pulled.
    pub pulls: &'a BTreeSet<String>,
    /// What probes say of instances.
    pub probe_verdicts: &'a ProbeVerdicts,
    /// When its first sync was, if that is noted.
    pub noted_start: Option<UnixNanos>,
    /// What files in its volumes are made from.
    pub content: Content<'a>,
    /// What is the same for all pods.
    pub settings: Settings,
    /// Now.
    pub now: Moment,
}

/// What is to become of a pod.
#[derive(Clone, Copy, Debug)]
pub enum Goal<'a> {
    /// It runs, as far as the node policy lets it.
    Run {
        /// The pod.
        pod: &'a Pod,
        /// What of it may not change while it runs, as `pod::update` has it.
        started_with: &'a str,
        /// Why the node policy lets nothing new be made for it.
        refused: Option<&'a Refused>,
    },
    /// It waits until the static pod that has its name has ended.
    Wait(&'a Pod),
    /// It ends.
    Terminate {
        /// Why, and with which grace.
        termination: &'a Termination,
        /// The pod, where it is known.
        pod: Option<&'a Pod>,
        /// Whether only the runtime has it: nobody will ask for its files to go.
        is_runtime_only: bool,
    },
    /// What it had on the node goes.
    CleanUp(&'a Termination),
}

/// Reason of a pod that the node policy refuses, in events, in the states of its
/// containers, and where it is ended for that.
pub const REFUSED_REASON: &str = "RefusedByNodePolicy";

/// Reason of events about a version of a pod that is not applied, and of containers that are
/// not started for that.
pub const NOT_APPLIED_REASON: &str = "SpecNotApplied";

/// Reason of a pod that asks for what the node does not offer (a resource claim, an extended
/// resource), in events and in the states of its containers.
pub const NOT_OFFERED_REASON: &str = "ResourcesNotOffered";

/// Nothing new is made for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// In a word.
    pub reason: &'static str,
    /// For the node policy: the rules, and the grants that would allow it.
    pub message: String,
    /// What runs of it is ended too.
    pub ends_what_runs: bool,
}

/// What is the same for all pods of a node.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Crash-loop back-off.
    pub restart_curve: Curve,
    /// How long a call can hold the name of a sandbox that lists do not show.
    pub sandbox_name_is_held: Duration,
    /// How long a call can hold the name of an instance that lists do not show.
    pub instance_name_is_held: Duration,
}

/// What probes say of instances of containers, by container id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeVerdicts {
    /// Liveness has failed.
    pub not_live: BTreeSet<String>,
    /// Startup has failed.
    pub not_started: BTreeSet<String>,
    /// Startup has succeeded.
    pub started: BTreeSet<String>,
}

/// What decisions about a pod that is to run are made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inputs<'a> {
    pub(super) facts: &'a Facts<'a>,
    pub(super) pod: &'a Pod,
    /// What of it may not change while it runs, as `pod::update` has it.
    pub(super) started_with: &'a str,
    /// What the runtime shows, failed stops set aside (`sandbox::without_failed_stops`).
    pub(super) observation: &'a Observation,
    /// Instances of earlier rounds count for nothing but their restart counts and their
    /// back-off.
    pub(super) round: u32,
}

impl Inputs<'_> {
    /// The newest instance of a container, of this round.
    pub(super) fn newest(&self, name: &str) -> Option<&Container> {
        self.of_this_round(self.observation.newest(name))
    }

    /// The newest instance of a container within one sandbox, of this round.
    pub(super) fn newest_in(&self, sandbox_id: &str, name: &str) -> Option<&Container> {
        self.of_this_round(self.observation.newest_in(sandbox_id, name))
    }

    fn of_this_round<'c>(&self, container: Option<&'c Container>) -> Option<&'c Container> {
        container.filter(|container| container.round >= self.round)
    }

    pub(super) fn now(&self) -> UnixNanos {
        self.facts.now.wall
    }

    /// The kill of this instance that was begun.
    pub(super) fn kill_of(&self, container: &Container) -> Option<KillReason> {
        self.facts.known.kill_reason(&container.id)
    }

    /// Whether an instance is in a sandbox that could not be stopped. It is not stopped
    /// by itself, since that was tried.
    pub(super) fn is_where_the_stop_failed(&self, container: &Container) -> bool {
        let sandbox = self.facts.known.sandbox(&container.sandbox_id);
        sandbox == Some(SandboxKnown::StopFailed)
    }

    /// Whether a container may still run in a sandbox that could not be stopped. Then
    /// it is not started beside that.
    pub(super) fn may_run_where_the_stop_failed(&self, name: &str) -> bool {
        let mut others = self.observation.possibly_running();
        others.any(|other| other.name == name && self.is_where_the_stop_failed(other))
    }
}
