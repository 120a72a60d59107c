//! The configuration of a pod's sandbox.

use cri_requests::SandboxConfig;
use node_layout::IdRange;
use pod_lifecycle::annotations;
use pod_lifecycle::observation::Observation;
use pod_lifecycle::plan::{notes_start, started_at};

use super::context::StepContext;
use super::error::StepError;
use super::target::Target;

/// The configuration of the sandbox with this number and, where the pod has users of its
/// own, these ids.
pub(super) async fn sandbox_config(
    context: &StepContext,
    target: &Target<'_>,
    observation: &Observation,
    (attempt, ids): (u32, Option<IdRange>),
) -> Result<SandboxConfig, StepError> {
    let resolv_conf = context.host.resolv_conf().await?;
    let about = (resolv_conf.as_ref(), ids);
    let mut sandbox = cri_requests::pod_sandbox_config(target.pod, attempt, &context.facts, about)?;
    sandbox.config.annotations.insert(
        annotations::STARTED_WITH.to_owned(),
        target.started_with.to_owned(),
    );
    if notes_start(target.pod) {
        let started = started_at(target.pod, target.noted_start, observation);
        let started = started.unwrap_or_else(|| context.clock.now());
        sandbox.config.annotations.insert(
            annotations::POD_STARTED_AT.to_owned(),
            started.0.to_string(),
        );
    }
    Ok(sandbox)
}
