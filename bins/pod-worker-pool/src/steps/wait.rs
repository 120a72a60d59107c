//! The step of a static pod whose name another one holds: nothing of it may run.

use pod_lifecycle::DesiredPod;
use pod_lifecycle::plan::{Goal, Plan, ProbeVerdicts};

use super::context::StepContext;
use super::error::{Retry, StepError};
use super::job::Outcome;
use super::memory::Memory;
use super::{sandbox, stop};

/// Stops what there is of a pod. When it is its turn, it gets a new sandbox.
pub(super) async fn wait(
    context: &StepContext,
    desired: &DesiredPod,
    memory: &mut Memory,
) -> Outcome {
    match stop_waiting_pod(context, desired, memory).await {
        Ok(()) => Outcome::Settled { wake_at: None },
        Err(error) => {
            let uid = desired.identity().uid();
            context.publisher.failed(uid, &error.message);
            Outcome::Failed(error)
        }
    }
}

async fn stop_waiting_pod(
    context: &StepContext,
    desired: &DesiredPod,
    memory: &mut Memory,
) -> Result<(), StepError> {
    let pod = desired
        .decode()
        .map_err(|error| StepError::new(telemetry::chain(&error), Retry::LATER))?;
    let identity = desired.identity();
    let observation = context.observe(identity, Some(&pod), memory).await?;
    let no_probes = ProbeVerdicts::default();
    match context.plan_for(Goal::Wait(&pod), &no_probes, &observation, memory) {
        Plan::Work(work) if work.has_nothing_to_do_now() => Ok(()),
        Plan::StopPod(stop) => {
            stop::stop_containers(context, identity, &stop.containers, memory).await?;
            sandbox::stop_sandboxes(context, &stop.sandboxes, memory).await
        }
        other => Err(StepError::out_of_place(&other)),
    }
}
