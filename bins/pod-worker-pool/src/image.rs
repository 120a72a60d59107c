//! Images of containers: pulled by their policy, at most so many at a time, each only
//! once for all who wait for it; and left alone for a while after a failure.
//!
//! Not here: collecting images that nobody needs.

mod access;
mod credentials;
mod decision;
mod programs;
mod pulled;
mod queue;
mod rate;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clock::{UnixNanos, WallClock};
use cri::quirks::FailedPull;
use cri::{Runtime, RuntimeError, RuntimeReads, v1};
use cri_requests::ImageUser;
use node_config::ImageVerification;
use pod::core::Container;
use pod::{ImageReference, Pod, PodExt};
use pull_credentials::{Credential, Keyring};
use tokio::time::Instant;

use access::may_have;
use decision::{Decision, PullFailures, decide};
use pulled::{NotIntended, PullIntent};
use queue::{PullQueue, locked};

pub(crate) use credentials::NodeCredentials;
pub(crate) use decision::PullPolicy;
pub(crate) use programs::CredentialPrograms;
pub(crate) use pulled::{PulledImages, PulledWriter};
pub(crate) use queue::PullLimits;

/// Most credentials that are tried for one pull: a registry may lock out who is refused often.
const MAX_CREDENTIALS: usize = 16;

/// An image that is on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// What CreateContainer is given.
    pub id: String,
    /// Whom it wants to run as.
    pub user: ImageUser,
}

impl Image {
    fn of(found: v1::Image) -> Image {
        Image {
            user: ImageUser::of(&found),
            id: found.id,
        }
    }
}

/// What a container's pull policy asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Found {
    /// Nothing: the image is there.
    Image(Image),
    /// That it is pulled.
    ToPull(PullRequest),
}

/// An image to pull.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PullRequest {
    pod_uid: String,
    /// As the pod's author wrote it.
    stated: String,
    spec: v1::ImageSpec,
    /// Where it is, as credentials name it.
    repository: String,
    /// What has the name now.
    before: Option<String>,
    /// The pod's own credentials.
    secrets: Keyring,
}

impl PullRequest {
    /// The same, with what the pod has to pull by: it is tried before the node's.
    pub(crate) fn by(self, secrets: Keyring) -> PullRequest {
        PullRequest { secrets, ..self }
    }
}

/// Why a container waits for its image: the reason in its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageFailure {
    /// The name is none.
    InvalidImageName,
    /// The runtime does not say whether it has it.
    ImageInspectError,
    /// It is not there, and may not be pulled.
    ErrImageNeverPull,
    /// It could not be pulled.
    ErrImagePull,
    /// It could not be pulled: the runtime says that the registry cannot be reached.
    RegistryUnavailable,
    /// It could not be pulled: the runtime says that its signature is not as it must be.
    SignatureValidationFailed,
    /// It could not be pulled, and is left alone for a while.
    ImagePullBackOff,
}

impl ImageFailure {
    /// The word in the container's status.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ImageFailure::InvalidImageName => "InvalidImageName",
            ImageFailure::ImageInspectError => "ImageInspectError",
            ImageFailure::ErrImageNeverPull => "ErrImageNeverPull",
            ImageFailure::ErrImagePull => "ErrImagePull",
            ImageFailure::RegistryUnavailable => "RegistryUnavailable",
            ImageFailure::SignatureValidationFailed => "SignatureValidationFailed",
            ImageFailure::ImagePullBackOff => "ImagePullBackOff",
        }
    }
}

impl fmt::Display for ImageFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A container's image is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ImageError {
    /// The reason in the container's status.
    pub failure: ImageFailure,
    /// The message in the container's status.
    pub message: String,
    /// When it is worth trying again, if that is known.
    pub retry_at: Option<UnixNanos>,
}

/// What happens on the way, for the pod's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageEvent {
    /// Whether something went wrong.
    pub warning: bool,
    /// The event's reason.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl ImageEvent {
    fn normal(reason: &'static str, message: String) -> ImageEvent {
        ImageEvent {
            warning: false,
            reason,
            message,
        }
    }

    fn warning(reason: &'static str, message: String) -> ImageEvent {
        ImageEvent {
            warning: true,
            reason,
            message,
        }
    }
}

/// What an image is to be pulled by.
struct Credentials {
    /// In the order in which they are tried.
    all: Vec<Credential>,
    /// Those that every pod has.
    of_node: Vec<Credential>,
}

/// Makes sure of images.
pub(crate) struct Images {
    runtime: Arc<dyn RuntimeReads>,
    clock: WallClock,
    credentials: NodeCredentials,
    programs: CredentialPrograms,
    verification: ImageVerification,
    pulled: PulledImages,
    queue: PullQueue,
    failures: Mutex<PullFailures>,
}

impl fmt::Debug for Images {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Images").finish_non_exhaustive()
    }
}

impl Images {
    /// Images of this runtime, with so many pulls at most, by these credentials and by
    /// those that programs give; and what is known of those that were pulled, of which pods
    /// get some only if they may pull them.
    pub(crate) fn new(
        runtime: Runtime,
        limits: PullLimits,
        (credentials, programs): (NodeCredentials, CredentialPrograms),
        (verification, pulled): (ImageVerification, PulledImages),
        clock: WallClock,
    ) -> Images {
        Images {
            queue: PullQueue::new(runtime.changes, limits),
            runtime: runtime.reads,
            clock,
            credentials,
            programs,
            verification,
            pulled,
            failures: Mutex::default(),
        }
    }

    /// Finds out what a container's pull policy asks for: the image that is there, or
    /// that it is [pulled](Images::pull). One that is there and that the pod may not have is
    /// the same to it as one that is not there; `secrets` are what the pod has to pull by.
    ///
    /// # Errors
    /// When the container cannot have its image now.
    pub(crate) async fn find(
        &self,
        pod: &Pod,
        container: &Container,
        secrets: &(dyn Fn() -> Keyring + Send + Sync),
        event: &(dyn Fn(ImageEvent) + Send + Sync),
    ) -> Result<Found, ImageError> {
        let stated = container.image.as_deref().unwrap_or_default();
        let reference = ImageReference::parse(stated).map_err(|error| {
            let message = format!(
                "Failed to apply default image tag \"{stated}\": couldn't parse image reference \
                 \"{stated}\": {error}"
            );
            self.refused(
                ImageFailure::InvalidImageName,
                message,
                "InspectFailed",
                event,
            )
        })?;
        let policy = PullPolicy::of(container.image_pull_policy.as_deref(), reference);
        let annotations = pod.metadata.annotations.clone().unwrap_or_default();
        let spec = v1::ImageSpec {
            image: reference.with_default_tag(),
            annotations,
            ..v1::ImageSpec::default()
        };
        let present = self.inspect(&spec, stated, event).await?;
        let before = present.as_ref().map(|image| image.id.clone());
        let repository = reference.repository();
        let present = present.filter(|image| self.may_have(image, &repository, secrets));
        let now = self.clock.now();
        let decision = {
            let failures = locked(&self.failures);
            decide(
                policy,
                present.is_some(),
                failures.get(pod.uid(), stated),
                now,
            )
        };
        match (decision, present) {
            (Decision::Use, Some(image)) => {
                let message = format!(
                    "Container image \"{stated}\" already present on machine and can be \
                     accessed by the pod"
                );
                event(ImageEvent::normal("Pulled", message));
                Ok(Found::Image(Image::of(image)))
            }
            (Decision::Use | Decision::Refuse, _) => {
                let message = format!(
                    "Container image \"{stated}\" is not present with pull policy of Never"
                );
                let failure = ImageFailure::ErrImageNeverPull;
                Err(self.refused(failure, message, "ErrImageNeverPull", event))
            }
            (Decision::BackOff { until, failure }, _) => {
                let message = format!("Back-off pulling image \"{stated}\"");
                event(ImageEvent::normal("BackOff", message.clone()));
                Err(ImageError {
                    failure: ImageFailure::ImagePullBackOff,
                    message: format!("{message}: {failure}"),
                    retry_at: Some(until),
                })
            }
            (Decision::Pull, _) => Ok(Found::ToPull(PullRequest {
                pod_uid: pod.uid().to_owned(),
                stated: stated.to_owned(),
                spec,
                repository,
                before,
                secrets: Keyring::default(),
            })),
        }
    }

    fn may_have(&self, image: &v1::Image, repository: &str, secrets: &dyn Fn() -> Keyring) -> bool {
        let record = self.pulled.record_of(image);
        let shown = || self.pulled.proofs(&secrets().lookup(repository));
        may_have(&self.verification, repository, record.as_ref(), shown)
    }

    /// Forgets the failures of a pod that is gone.
    pub(crate) fn forget_pod(&self, pod_uid: &str) {
        locked(&self.failures).forget_pod(pod_uid);
    }

    async fn inspect(
        &self,
        spec: &v1::ImageSpec,
        stated: &str,
        event: &(dyn Fn(ImageEvent) + Send + Sync),
    ) -> Result<Option<v1::Image>, ImageError> {
        match self.runtime.image_status(spec.clone()).await {
            Ok(found) => Ok(found),
            Err(error) => {
                let message = format!("Failed to inspect image \"{stated}\": {}", error.message);
                Err(self.refused(
                    ImageFailure::ImageInspectError,
                    message,
                    "InspectFailed",
                    event,
                ))
            }
        }
    }

    /// Pulls an image, or waits for a pull of it that is under way. `sandbox` is the
    /// pod's. Cancelling it gives a pull up that nobody else waits for.
    ///
    /// # Errors
    /// When the container cannot have its image now.
    pub(crate) async fn pull(
        &self,
        request: PullRequest,
        sandbox: Option<v1::PodSandboxConfig>,
        event: &(dyn Fn(ImageEvent) + Send + Sync),
    ) -> Result<Image, ImageError> {
        let stated = &request.stated;
        event(ImageEvent::normal(
            "Pulling",
            format!("Pulling image \"{stated}\""),
        ));
        let begun = Instant::now();
        let credentials = self.credentials(&request, event).await;
        let intent = match self.intent(&request, &credentials).await {
            Ok(intent) => intent,
            Err(error) => {
                // The kubelet's words.
                let error = telemetry::chain(&error);
                let message = format!(
                    "Failed to record image pull intent for container image \"{stated}\": {error}"
                );
                event(ImageEvent::warning("Failed", message.clone()));
                return Err(self.left_alone(&request, ImageFailure::ErrImagePull, message));
            }
        };
        let (joined, has_begun) = self.queue.join(&request.spec, credentials.all, sandbox);
        let intent = intent.map(|it| it.counts_once(has_begun));
        let pulled = match joined.await {
            Ok(pulled) => pulled,
            Err(error) => {
                match intent {
                    Some(intent) if error.is_no_answer() => intent.unanswered(),
                    Some(intent) => intent.answered(),
                    None => {}
                }
                event(ImageEvent::warning(
                    "Failed",
                    format!("Failed to pull image \"{stated}\": {}", error.message),
                ));
                let (failure, message) = why(stated, error);
                return Err(self.left_alone(&request, failure, message));
            }
        };
        locked(&self.failures).succeeded(&request.pod_uid, stated);
        let waited = begun.elapsed();
        let spec = v1::ImageSpec {
            image: pulled.reference,
            ..request.spec.clone()
        };
        let found = self.inspect(&spec, stated, event).await;
        let size = found.iter().flatten().next().map_or(0, |image| image.size);
        let message = pulled_words(stated, pulled.took, waited, size);
        event(ImageEvent::normal("Pulled", message));
        let image = found?.ok_or_else(|| {
            let message = format!("image \"{stated}\" is gone right after it was pulled");
            self.refused(ImageFailure::ErrImagePull, message, "Failed", event)
        })?;
        let of_pod = pulled.by.filter(|it| !credentials.of_node.contains(it));
        let repository = &request.repository;
        self.pulled.learn(&image.id, repository, of_pod.as_ref());
        if let Some(intent) = intent {
            intent.answered();
        }
        Ok(Image::of(image))
    }

    /// What an image is to be pulled by: the pod's own, the node's, and what programs give.
    async fn credentials(
        &self,
        request: &PullRequest,
        event: &(dyn Fn(ImageEvent) + Send + Sync),
    ) -> Credentials {
        let PullRequest {
            stated, repository, ..
        } = request;
        let mut of_node = self.credentials.lookup(repository);
        let given = self.programs.ask(repository).await;
        for problem in given.problems {
            let message = format!(
                "Unable to get credentials for image \"{stated}\" from a program ({problem}); \
                 attempting to pull the image may not succeed."
            );
            event(ImageEvent::warning("FailedCredentialProvider", message));
        }
        of_node.extend(given.credentials);
        let mut all = request.secrets.lookup(repository);
        all.extend(of_node.iter().cloned());
        let mut known = BTreeSet::new();
        all.retain(|credential| known.insert(credential.clone()));
        all.truncate(MAX_CREDENTIALS);
        Credentials { all, of_node }
    }

    /// Saves that the image is about to be pulled, if it may come by what only pods have. If
    /// it comes by what the node has, everybody may have it, as one that nothing is known of.
    async fn intent(
        &self,
        request: &PullRequest,
        credentials: &Credentials,
    ) -> Result<Option<PullIntent>, NotIntended> {
        let mut all = credentials.all.iter();
        let Ok(reference) = ImageReference::parse(&request.stated) else {
            return Ok(None);
        };
        if all.all(|it| credentials.of_node.contains(it)) {
            return Ok(None);
        }
        let before = request.before.clone();
        self.pulled.intend(reference, before).await.map(Some)
    }

    /// A pull failed, and is left alone for a while.
    fn left_alone(
        &self,
        request: &PullRequest,
        failure: ImageFailure,
        message: String,
    ) -> ImageError {
        let told = format!("{failure}: {message}");
        let now = self.clock.now();
        let (pod_uid, stated) = (&request.pod_uid, &request.stated);
        let retry_at = locked(&self.failures).failed(pod_uid, stated, &told, now);
        ImageError {
            failure,
            message,
            retry_at: Some(retry_at),
        }
    }

    fn refused(
        &self,
        failure: ImageFailure,
        message: String,
        reason: &'static str,
        event: &(dyn Fn(ImageEvent) + Send + Sync),
    ) -> ImageError {
        event(ImageEvent::warning(reason, message.clone()));
        ImageError {
            failure,
            message,
            retry_at: None,
        }
    }
}

/// The reason of a pull that failed, and the message, both in the kubelet's words.
fn why(stated: &str, error: RuntimeError) -> (ImageFailure, String) {
    let Some((failed, more)) = error.failed_pull() else {
        return (ImageFailure::ErrImagePull, error.message);
    };
    let (failure, why) = match failed {
        FailedPull::RegistryUnavailable => (
            ImageFailure::RegistryUnavailable,
            "the registry is unavailable",
        ),
        FailedPull::SignatureInvalid => (
            ImageFailure::SignatureValidationFailed,
            "the signature validation failed",
        ),
    };
    let message = format!("image pull failed for {stated} because {why}{more}");
    (failure, message)
}

/// The kubelet's words; it tells whole milliseconds, and 0 where the size is not known.
fn pulled_words(stated: &str, took: Duration, waited: Duration, bytes: u64) -> String {
    let whole = |it: Duration| {
        Duration::from_secs(it.as_secs()) + Duration::from_millis(it.subsec_millis().into())
    };
    format!(
        "Successfully pulled image \"{stated}\" in {:?} ({:?} including waiting). \
         Image size: {bytes} bytes.",
        whole(took),
        whole(waited)
    )
}

#[cfg(test)]
mod tests;
