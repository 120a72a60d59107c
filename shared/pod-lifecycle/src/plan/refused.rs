//! A pod that the node policy refuses, or of which another version runs: what runs of it
//! runs on, unless the policy ends it, and nothing new is made.

use super::actions::{Plan, Work};
use super::facts::{Inputs, NOT_APPLIED_REASON, REFUSED_REASON, Refused};
use crate::stop::KillReason;
use crate::termination::TerminationCause;

/// What is left of the plan for such a pod. Nothing is stopped that could not be started
/// again: of the stops there remain those of instances beside a newer one. A pod that has
/// ended, or of which nothing runs, is none that runs.
pub(super) fn what_is_left(plan: Plan, inputs: &Inputs<'_>, refused: &Refused) -> Plan {
    let has_ended = matches!(plan, Plan::End(_));
    if refused.ends_what_runs && inputs.observation.is_alive() && !has_ended {
        return Plan::End(TerminationCause::Evicted {
            reason: REFUSED_REASON.to_owned(),
            message: refused.message.clone(),
            is_disruption: false,
        });
    }
    match plan {
        Plan::Work(work) => Plan::Work(Work {
            starts: Vec::new(),
            post_starts: Vec::new(),
            resizes: Vec::new(),
            stops: work
                .stops
                .into_iter()
                .filter(|stop| stop.reason == Some(KillReason::Superseded))
                .collect(),
            ..work
        }),
        Plan::NewSandbox { .. } => Plan::Work(Work::default()),
        // The version that runs may have other containers.
        Plan::End(TerminationCause::Completed) if refused.reason == NOT_APPLIED_REASON => {
            Plan::Work(Work::default())
        }
        plan => plan,
    }
}
