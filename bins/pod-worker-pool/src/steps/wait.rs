//! The step of a static pod whose name another one holds: nothing of it may run.

use pod_lifecycle::DesiredPod;
use pod_lifecycle::plan::{FailedProbes, Goal, Plan};

use super::{Memory, Outcome, Retry, StepError, Steps};

impl Steps {
    /// Stops what there is of a pod. When it is its turn, it gets a new sandbox.
    pub(super) async fn wait(&self, desired: &DesiredPod, memory: &mut Memory) -> Outcome {
        match self.stop_waiting_pod(desired, memory).await {
            Ok(()) => Outcome::Settled { wake_at: None },
            Err(error) => {
                let uid = desired.identity().uid();
                self.publisher.failed(uid, &error.message);
                Outcome::Failed(error)
            }
        }
    }

    async fn stop_waiting_pod(
        &self,
        desired: &DesiredPod,
        memory: &mut Memory,
    ) -> Result<(), StepError> {
        let pod = desired
            .decode()
            .map_err(|error| StepError::new(telemetry::chain(&error), Retry::LATER))?;
        let identity = desired.identity();
        let observation = self.observe(identity, Some(&pod), memory).await?;
        let no_probes = FailedProbes::default();
        match self.plan_for(Goal::Wait(&pod), &no_probes, &observation, memory) {
            Plan::Work(work) if work.is_empty() => Ok(()),
            Plan::StopPod(stop) => {
                self.stop_containers(identity, &stop.containers, memory)
                    .await?;
                self.stop_sandboxes(&stop.sandboxes, memory).await
            }
            other => Err(StepError::out_of_place(&other)),
        }
    }
}
