//! Making a pod's volumes, as the plan says.

use pod_volumes::{ReadyVolume, Volume};

use super::context::Steps;
use super::error::{Retry, StepError};
use super::memory::Memory;
use super::target::Target;

/// Makes volumes or finds them made, and notes where they are.
pub(super) async fn make(
    steps: &Steps,
    target: &Target<'_>,
    volumes: &[Volume],
    memory: &mut Memory,
) -> Result<(), StepError> {
    if volumes.is_empty() {
        return Ok(());
    }
    let rules = steps.policy.host_path_rules(target.identity.uid());
    let rules = rules.ok_or_else(|| {
        // By a policy that came during this step: the next one says which rule.
        StepError::new("the node policy refuses the pod", Retry::SOON)
    })?;
    let made = steps
        .host
        .make_volumes(target.identity, target.pod, volumes, &rules);
    let mut made = made.await.map_err(|error| {
        let message = telemetry::chain(&error);
        steps
            .events
            .warning(target.identity, "", "FailedMount", &message);
        StepError::new(message, Retry::LATER)
    })?;
    for Volume { name, spec } in volumes {
        if let Some(mounted) = made.remove(name) {
            let spec = spec.clone();
            memory
                .volumes
                .insert(name.clone(), ReadyVolume { spec, mounted });
        }
    }
    Ok(())
}
