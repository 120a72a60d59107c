//! The step of a static pod whose name another one holds: nothing of it may run.
//!
//! This life has started nothing of it. But the runtime may still carry out a
//! RunPodSandbox of an earlier one, whose sandbox would keep an address and ports of
//! the node from others.

use super::sync::Target;
use super::{Memory, Outcome, Retry, StepError, Steps};
use crate::worker::DesiredPod;

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
        let target = Target {
            identity: desired.identity(),
            pod: &pod,
            noted_start: memory.record.started_at,
        };
        let observation = self
            .observer
            .observe(target.identity, Some(target.pod), &mut memory.cache)
            .await?;
        if observation.is_alive() {
            self.stop_all(&target, &observation, memory).await?;
        }
        Ok(())
    }
}
