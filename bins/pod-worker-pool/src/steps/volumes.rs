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
    steps
        .host
        .set_up_volumes(target.identity, target.pod)
        .await
        .map_err(|error| {
            let message = telemetry::chain(&error);
            steps
                .events
                .warning(target.identity, "", "FailedMount", &message);
            StepError::new(message, Retry::LATER)
        })
}
