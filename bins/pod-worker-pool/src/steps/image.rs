//! Making sure of a container's image.

use cri::v1;

use super::start::{StartError, spec_of};
use super::sync::Target;
use super::{Retry, Steps};
use crate::image::{Image, ImageError, ImageEvent, ImageFailure};

impl Steps {
    /// Makes sure of a container's image, by its pull policy.
    pub(super) async fn prepare_image(
        &self,
        target: &Target<'_>,
        name: &str,
        sandbox_config: &v1::PodSandboxConfig,
    ) -> Result<Image, StartError> {
        let spec = spec_of(target, name)?;
        let record = |event: ImageEvent| {
            let pod = target.identity;
            if event.warning {
                self.events.warning(pod, name, event.reason, &event.message);
            } else {
                self.events.normal(pod, name, event.reason, &event.message);
            }
        };
        self.images
            .ensure(target.pod, spec, Some(sandbox_config), &record)
            .await
            .map_err(failed)
    }
}

fn failed(error: ImageError) -> StartError {
    let retry = match (error.failure, error.retry_at) {
        // Soon, to show that it is left alone now; that then says until when.
        (ImageFailure::ErrImagePull, Some(_)) => Retry::SOON,
        (_, Some(at)) => Retry::at(at),
        (_, None) => Retry::LATER,
    };
    let reason = error.failure.as_str();
    StartError::new(reason, error.message, retry).announced_as(reason)
}
