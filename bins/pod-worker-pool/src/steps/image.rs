//! Making sure of a container's image, and of those of its volumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use cri::v1;
use local_objects::Objects;
use pod::core::Container as ContainerSpec;
use pull_credentials::{Keyring, PodSecrets};

use super::context::StepContext;
use super::error::Retry;
use super::pulls::{self, PodPulls};
use super::start_error::StartError;
use super::target::{Target, spec_of};
use crate::image::{Found, Image, ImageError, ImageEvent, ImageFailure};

/// Makes sure of a container's image, by its pull policy. There is none while it
/// is being pulled: the doorbell rings for the pod when that has ended.
pub(super) async fn prepare_image(
    context: &StepContext,
    target: &Target<'_>,
    name: &str,
    sandbox_config: &v1::PodSandboxConfig,
    objects: &Objects,
    pulls: &PodPulls,
) -> Result<Option<Image>, StartError> {
    let spec = spec_of(target, name)?;
    let about = (name, &*spec);
    prepare(context, target, about, sandbox_config, objects, pulls).await
}

/// The images of the volumes that a container mounts, with the volumes' names.
pub(super) type VolumeImages = BTreeMap<String, Image>;

/// Their ids, by the volumes' names.
pub(super) fn ids(images: &VolumeImages) -> BTreeMap<String, String> {
    let images = images.iter();
    let ids = images.map(|(volume, image)| (volume.clone(), image.id.clone()));
    ids.collect()
}

/// Makes sure of the images of a container's volumes, as of its own.
pub(super) async fn prepare_volume_images(
    context: &StepContext,
    target: &Target<'_>,
    name: &str,
    sandbox_config: &v1::PodSandboxConfig,
    objects: &Objects,
    pulls: &PodPulls,
) -> Result<Option<VolumeImages>, StartError> {
    let spec = spec_of(target, name)?;
    let mut found = VolumeImages::new();
    let mut outcome = Ok(true);
    for volume in cri_requests::image_volumes(target.pod, &spec) {
        let wanted = pulls::for_volume(name, &volume);
        let about = (name, &wanted);
        match prepare(context, target, about, sandbox_config, objects, pulls).await {
            Ok(Some(image)) => {
                found.insert(volume.name.to_owned(), image);
            }
            Ok(None) => outcome = outcome.map(|_| false),
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    if matches!(outcome, Ok(true)) {
        return Ok(Some(found));
    }
    keep_volume_images(target, name, found, pulls)?;
    outcome.map(|_| None)
}

/// Keeps images of volumes for the next try of the same start.
pub(super) fn keep_volume_images(
    target: &Target<'_>,
    name: &str,
    mut images: VolumeImages,
    pulls: &PodPulls,
) -> Result<(), StartError> {
    let spec = spec_of(target, name)?;
    for volume in cri_requests::image_volumes(target.pod, &spec) {
        if let Some(image) = images.remove(volume.name) {
            pulls.keep(&pulls::for_volume(name, &volume), image);
        }
    }
    Ok(())
}

/// Makes sure of an image for a container: that of `spec`, which is the container's or
/// stands for a volume of it.
async fn prepare(
    context: &StepContext,
    target: &Target<'_>,
    (name, spec): (&str, &ContainerSpec),
    sandbox_config: &v1::PodSandboxConfig,
    objects: &Objects,
    pulls: &PodPulls,
) -> Result<Option<Image>, StartError> {
    if pulls.is_under_way(&spec.name) {
        return Ok(None);
    }
    if let Some(pulled) = pulls.take_ended(&spec.name) {
        return pulled.map(Some);
    }
    let record = recorder(context, target, name);
    // A Secret that is not as it should be is told of when the image is pulled.
    let secrets =
        || PodSecrets::of(target.pod, objects).map_or_else(|_| Keyring::default(), |it| it.keyring);
    let find = context.images.find(target.pod, spec, &secrets, &record);
    let found = find.await;
    let request = match found.map_err(failed)? {
        Found::Image(image) => return Ok(Some(image)),
        Found::ToPull(request) => request,
    };
    let secrets = PodSecrets::of(target.pod, objects).map_err(|error| {
        let failure = ImageFailure::ErrImagePull.as_str();
        let message = telemetry::chain(&error);
        StartError::new(failure, message, Retry::LATER).announced_as(failure)
    })?;
    if !secrets.missing.is_empty() {
        // The kubelet's words.
        let message = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may \
             not succeed.",
            secrets.missing.join(", ")
        );
        let reason = "FailedToRetrieveImagePullSecret";
        let events = &context.events;
        events.warning(target.identity, name, reason, &message);
    }
    let request = request.by(secrets.keyring);
    let images = Arc::clone(&context.images);
    let sandbox = Some(sandbox_config.clone());
    let pull = async move {
        let pulled = images.pull(request, sandbox, &record).await;
        pulled.map_err(failed)
    };
    let doorbell = context.doorbell.clone();
    let pod_uid = target.identity.uid().to_owned();
    pulls.begin(spec, pull, move || doorbell.ring(&pod_uid));
    Ok(None)
}

/// Tells people what happens to the image.
fn recorder(
    context: &StepContext,
    target: &Target<'_>,
    name: &str,
) -> impl Fn(ImageEvent) + Send + Sync + 'static {
    let events = context.events.clone();
    let (pod, name) = (target.identity.clone(), name.to_owned());
    move |event: ImageEvent| {
        if event.warning {
            events.warning(&pod, &name, event.reason, &event.message);
        } else {
            events.normal(&pod, &name, event.reason, &event.message);
        }
    }
}

fn failed(error: ImageError) -> StartError {
    let retry = match (error.failure, error.retry_at) {
        (ImageFailure::ImagePullBackOff, Some(at)) => Retry::at(at),
        // Soon, to show that it is left alone now; that then says until when.
        (_, Some(_)) => Retry::SOON,
        (_, None) => Retry::LATER,
    };
    let reason = error.failure.as_str();
    StartError::new(reason, error.message, retry).announced_as(reason)
}
