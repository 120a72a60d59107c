//! The configuration of a pod's sandbox.

use cri_requests::SandboxConfig;
use pod_lifecycle::annotations;
use pod_lifecycle::observation::Observation;
use pod_lifecycle::plan::{notes_start, started_at};

use super::context::Steps;
use super::error::StepError;
use super::target::Target;

/// The configuration of the sandbox with this number.
pub(super) async fn sandbox_config(
    steps: &Steps,
    target: &Target<'_>,
    observation: &Observation,
    attempt: u32,
) -> Result<SandboxConfig, StepError> {
    let resolv_conf = steps.host.resolv_conf().await?;
    let mut sandbox =
        cri_requests::pod_sandbox_config(target.pod, attempt, &steps.facts, resolv_conf.as_ref())?;
    sandbox.config.annotations.insert(
        annotations::STARTED_WITH.to_owned(),
        target.started_with.to_owned(),
    );
    if notes_start(target.pod) {
        let started = started_at(target.pod, target.noted_start, observation);
        let started = started.unwrap_or_else(|| steps.clock.now());
        sandbox.config.annotations.insert(
            annotations::POD_STARTED_AT.to_owned(),
            started.0.to_string(),
        );
    }
    Ok(sandbox)
}
