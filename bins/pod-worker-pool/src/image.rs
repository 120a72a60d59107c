//! Images of containers: pulled by their policy, at most so many at a time, each only
//! once for all who wait for it; and left alone for a while after a failure.
//!
//! Not here: collecting images that nobody needs, and credentials of registries.

mod decision;
mod reference;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::{UnixNanos, WallClock};
use cri::{ContainerRuntime, RuntimeError, v1};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use pod::core::Container;
use pod::{Pod, PodExt};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::config::ImageUser;

pub use decision::PullPolicy;
pub use reference::{ReferenceError, with_default_tag};

use decision::{Decision, PullFailures, decide};

/// An image that is on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// What CreateContainer is given.
    pub id: String,
    /// Whom it wants to run as.
    pub user: ImageUser,
}

/// What a container's pull policy asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// Nothing: the image is there.
    Image(Image),
    /// That it is pulled.
    ToPull(PullRequest),
}

/// An image to pull.
#[derive(Debug, Clone, PartialEq)]
pub struct PullRequest {
    pod_uid: String,
    /// As the pod's author wrote it.
    stated: String,
    spec: v1::ImageSpec,
    sandbox: Option<v1::PodSandboxConfig>,
}

impl PullRequest {
    /// The request, for a sandbox that is known.
    #[must_use]
    pub fn in_sandbox(self, sandbox: v1::PodSandboxConfig) -> PullRequest {
        PullRequest {
            sandbox: Some(sandbox),
            ..self
        }
    }
}

/// Why a container waits for its image: the reason in its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFailure {
    /// The name is none.
    InvalidImageName,
    /// The runtime does not say whether it has it.
    ImageInspectError,
    /// It is not there, and may not be pulled.
    ErrImageNeverPull,
    /// It could not be pulled.
    ErrImagePull,
    /// It could not be pulled, and is left alone for a while.
    ImagePullBackOff,
}

impl ImageFailure {
    /// The word in the container's status.
    pub fn as_str(self) -> &'static str {
        match self {
            ImageFailure::InvalidImageName => "InvalidImageName",
            ImageFailure::ImageInspectError => "ImageInspectError",
            ImageFailure::ErrImageNeverPull => "ErrImageNeverPull",
            ImageFailure::ErrImagePull => "ErrImagePull",
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
pub struct ImageError {
    /// The reason in the container's status.
    pub failure: ImageFailure,
    /// The message in the container's status.
    pub message: String,
    /// When it is worth trying again, if that is known.
    pub retry_at: Option<UnixNanos>,
}

/// What happens on the way, for the pod's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageEvent {
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

/// A pull that others can wait for too. It goes on while anybody does, and is given up
/// when the last one has.
type Pull = Shared<PullFuture>;

type PullFuture = BoxFuture<'static, Result<Pulled, RuntimeError>>;

#[derive(Debug, Clone)]
struct Pulled {
    reference: String,
    /// Without the time that it waited for its turn.
    took: Duration,
}

/// Makes sure of images.
pub struct Images {
    runtime: Arc<dyn ContainerRuntime>,
    clock: WallClock,
    turns: Arc<Semaphore>,
    pulls: Mutex<HashMap<String, WeakShared<PullFuture>>>,
    failures: Mutex<PullFailures>,
}

impl fmt::Debug for Images {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Images").finish_non_exhaustive()
    }
}

impl Images {
    /// Images of this runtime, with at most so many pulls at a time (at least one).
    pub fn new(
        runtime: Arc<dyn ContainerRuntime>,
        max_parallel_pulls: u32,
        clock: WallClock,
    ) -> Images {
        let turns = usize::try_from(max_parallel_pulls).unwrap_or(usize::MAX);
        Images {
            runtime,
            clock,
            turns: Arc::new(Semaphore::new(turns.clamp(1, Semaphore::MAX_PERMITS))),
            pulls: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// Finds out what a container's pull policy asks for: the image that is there, or
    /// that it is [pulled](Images::pull).
    ///
    /// # Errors
    /// When the container cannot have its image now.
    pub async fn find(
        &self,
        pod: &Pod,
        container: &Container,
        event: &(dyn Fn(ImageEvent) + Send + Sync),
    ) -> Result<Found, ImageError> {
        let stated = container.image.as_deref().unwrap_or_default();
        let name = with_default_tag(stated).map_err(|error| {
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
        let policy = PullPolicy::of(container.image_pull_policy.as_deref(), &name);
        let annotations = pod.metadata.annotations.clone().unwrap_or_default();
        let spec = v1::ImageSpec {
            image: name,
            annotations,
            ..v1::ImageSpec::default()
        };
        let present = self.inspect(&spec, stated, event).await?;
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
                let message = format!("Container image \"{stated}\" already present on machine");
                event(ImageEvent::normal("Pulled", message));
                Ok(Found::Image(image))
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
                    message: format!("{message}: {}: {failure}", ImageFailure::ErrImagePull),
                    retry_at: Some(until),
                })
            }
            (Decision::Pull, _) => Ok(Found::ToPull(PullRequest {
                pod_uid: pod.uid().to_owned(),
                stated: stated.to_owned(),
                spec,
                sandbox: None,
            })),
        }
    }

    /// Forgets the failures of a pod that is gone.
    pub fn forget_pod(&self, pod_uid: &str) {
        locked(&self.failures).forget_pod(pod_uid);
    }

    async fn inspect(
        &self,
        spec: &v1::ImageSpec,
        stated: &str,
        event: &(dyn Fn(ImageEvent) + Send + Sync),
    ) -> Result<Option<Image>, ImageError> {
        match self.runtime.image_status(spec.clone()).await {
            Ok(found) => Ok(found.map(|found| Image {
                user: ImageUser::of(&found),
                id: found.id,
            })),
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

    /// Pulls an image, or waits for a pull of it that is under way. Cancelling it gives
    /// a pull up that nobody else waits for.
    ///
    /// # Errors
    /// When the container cannot have its image now.
    pub async fn pull(
        &self,
        request: PullRequest,
        event: &(dyn Fn(ImageEvent) + Send + Sync),
    ) -> Result<Image, ImageError> {
        let PullRequest {
            pod_uid,
            stated,
            spec,
            sandbox,
        } = request;
        event(ImageEvent::normal(
            "Pulling",
            format!("Pulling image \"{stated}\""),
        ));
        let begun = Instant::now();
        let pulled = match self.join_pull(&spec, sandbox).await {
            Ok(pulled) => pulled,
            Err(error) => {
                let message = error.message;
                event(ImageEvent::warning(
                    "Failed",
                    format!("Failed to pull image \"{stated}\": {message}"),
                ));
                let now = self.clock.now();
                let retry_at = locked(&self.failures).failed(&pod_uid, &stated, &message, now);
                let failure = ImageFailure::ErrImagePull;
                return Err(ImageError {
                    failure,
                    message,
                    retry_at: Some(retry_at),
                });
            }
        };
        locked(&self.failures).succeeded(&pod_uid, &stated);
        let message = format!(
            "Successfully pulled image \"{stated}\" in {:?} ({:?} including waiting)",
            pulled.took,
            begun.elapsed()
        );
        event(ImageEvent::normal("Pulled", message));
        let spec = v1::ImageSpec {
            image: pulled.reference,
            ..spec
        };
        self.inspect(&spec, &stated, event).await?.ok_or_else(|| {
            let message = format!("image \"{stated}\" is gone right after it was pulled");
            self.refused(ImageFailure::ErrImagePull, message, "Failed", event)
        })
    }

    /// Joins the pull of this image that is under way, or begins one.
    fn join_pull(&self, spec: &v1::ImageSpec, sandbox: Option<v1::PodSandboxConfig>) -> Pull {
        let mut pulls = locked(&self.pulls);
        pulls.retain(|_, pull| pull.upgrade().is_some_and(|pull| pull.peek().is_none()));
        if let Some(pull) = pulls.get(&spec.image).and_then(WeakShared::upgrade) {
            return pull;
        }
        let runtime = Arc::clone(&self.runtime);
        let turns = Arc::clone(&self.turns);
        let spec = spec.clone();
        let name = spec.image.clone();
        let pull = async move {
            // The semaphore is never closed; without it the pull would just not wait.
            let _turn = turns.acquire_owned().await;
            let begun = Instant::now();
            let reference = runtime.pull_image(spec, None, sandbox).await?;
            Ok(Pulled {
                reference,
                took: begun.elapsed(),
            })
        };
        let pull = pull.boxed().shared();
        pulls.extend(pull.downgrade().map(|weak| (name, weak)));
        pull
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

/// What is guarded stays usable if a holder panicked: it is only ever changed whole.
fn locked<Value>(mutex: &Mutex<Value>) -> MutexGuard<'_, Value> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
