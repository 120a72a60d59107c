//! What to do with a pod now: all that is known in, what to do next out. Pure.
//!
//! Whether the pod is to run, to wait for its name, to be stopped or to be cleared away
//! is decided here, and nothing edits [`Facts`] before or the [`Plan`] after: steps
//! carry it out, look again and ask for the next, until a plan has nothing to do now. So
//! a plan need not foresee what its own actions lead to, and whoever finds the pod after a
//! crash between two of them needs no memory of the first.
//!
//! ```text
//!   to be run:
//!     deadline over, or all containers done ----------> End
//!     no sandbox that can be used --------------------> NewSandbox
//!     more than one that runs ------------------------> StopSandboxes
//!     instances of an earlier round that run ---------> Work: they are stopped
//!     init containers not done -----------------------> Work on the next of them, and
//!                                                       on sidecars before it
//!     else -------------------------------------------> Work on sidecars and containers
//!   to wait for its name:
//!     something of it is alive -----------------------> StopPod
//!     else -------------------------------------------> Work, with nothing to do
//!   to be terminated:
//!     calls that make something are under way --------> AwaitCalls
//!     something of it is alive, or holds an address --> StopPod
//!     else -------------------------------------------> Stopped, or CleanUp
//!   to be cleared away -------------------------------> CleanUp
//! ```
//!
//! `facts` are what goes in, `actions` what comes out. `sandbox`, `init`, `containers` and
//! `ephemeral` decide about those; `resize` which of them get other resources; `restart`
//! when a container is started again; `round` when all of them are; `refused` what is left
//! of that for a pod that the node policy refuses, or of which another `version` runs;
//! `stop` what stops a whole pod, and `container_stop` one container; `volumes` which
//! volumes have to be made before something is started, and which refreshed later;
//! `start_time` since when a pod counts.

mod actions;
mod container_stop;
mod containers;
mod describe;
mod ephemeral;
mod facts;
mod go_duration;
mod init;
mod refused;
mod resize;
mod restart;
mod round;
mod sandbox;
mod start_time;
mod stop;
mod version;
mod volumes;

use pod::{Pod, PodExt};

use crate::termination::TerminationCause;
use facts::Inputs;

pub use actions::{
    CleanUp, ContainerStop, CreatedContainer, Discard, NewInstance, Plan, PostStartHook, Resize,
    RestartWait, Start, StartHow, StopHow, StopPod, Unusable, Work,
};
pub use container_stop::pod_grace;
pub use containers::restarted_after_kill;
pub use describe::{Circumstances, describe, describe_termination};
pub use facts::{
    Facts, Goal, NOT_APPLIED_REASON, NOT_OFFERED_REASON, ProbeVerdicts, REFUSED_REASON, Refused,
    Settings,
};
pub use go_duration::go_duration;
pub use round::{current_round, left_of_earlier};
pub use start_time::{deadline, notes_start, started_at, started_at_source};
pub use version::{held, keeps_version, not_applied};

/// Makes the plan.
#[must_use]
pub fn plan(facts: &Facts<'_>) -> Plan {
    match facts.goal {
        Goal::Run {
            pod,
            started_with,
            refused,
        } => {
            let held = held(facts.observation, started_with);
            run(facts, (pod, started_with), refused.or(held.as_ref()))
        }
        Goal::Wait(pod) => stop::waiting(facts, pod),
        Goal::Terminate {
            termination,
            pod,
            is_runtime_only,
        } => stop::terminating(facts, termination, pod, is_runtime_only),
        Goal::CleanUp(termination) => Plan::CleanUp(CleanUp::after(&termination.cause)),
    }
}

/// The plan of a pod that is to run.
fn run(facts: &Facts<'_>, (pod, started_with): (&Pod, &str), refused: Option<&Refused>) -> Plan {
    let observation = sandbox::without_failed_stops(facts);
    let inputs = Inputs {
        facts,
        pod,
        started_with,
        observation: &observation,
        round: current_round(pod, &observation),
    };
    let plan = next_for_running(&inputs);
    let mut plan = match refused {
        Some(refused) => refused::what_is_left(plan, &inputs, refused),
        None => plan,
    };
    volumes::before_starts(&mut plan, &inputs);
    if refused.is_none() {
        volumes::refresh(&mut plan, &inputs);
    }
    plan
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
    let (of_init, progress) = match round::stops(inputs) {
        stops if stops.is_empty() => init::plan(inputs, &sandbox.id),
        stops => (Work::of_stops(stops), init::Progress::Underway),
    };
    let mut plan = match progress {
        init::Progress::Failed => return Plan::End(TerminationCause::Completed),
        init::Progress::Done => containers::plan(inputs, &sandbox.id, of_init),
        init::Progress::Underway => Plan::Work(of_init),
    };
    if let Plan::Work(work) = &mut plan {
        resize::plan(inputs, work);
        ephemeral::start(inputs, &sandbox.id, work);
        if let Some(deadline) = deadline {
            work.wake(deadline);
        }
    }
    plan
}

#[cfg(test)]
mod tests;
