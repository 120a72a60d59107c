//! A pod's volumes.

use std::collections::BTreeMap;

use cri_requests::MountedVolume;

use super::context::Steps;
use super::error::{Retry, StepError};
use super::target::Target;

pub(super) async fn set_up_volumes(
    steps: &Steps,
    target: &Target<'_>,
) -> Result<BTreeMap<String, MountedVolume>, StepError> {
    let rules = steps.policy.host_path_rules(target.identity.uid());
    let rules = rules.ok_or_else(|| {
        // By a policy that came during this step: the next one says which rule.
        StepError::new("the node policy refuses the pod", Retry::SOON)
    })?;
    steps
        .host
        .set_up_volumes(target.identity, target.pod, &rules)
        .await
        .map_err(|error| {
            let message = telemetry::chain(&error);
            steps
                .events
                .warning(target.identity, "", "FailedMount", &message);
            StepError::new(message, Retry::LATER)
        })
}
