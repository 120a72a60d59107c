//! Pulls of one pod's images, which go on beside its steps.
//!
//! A pull may take an hour. A step that waited for one would keep the containers
//! whose images are there from being started, and restarted, and told of. So a step
//! begins a pull and leaves it to itself; the doorbell asks for another step when it
//! has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cri_requests::ImageVolume;
use pod::core::Container as ContainerSpec;
use pod::{Pod, ephemeral};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio_util::task::AbortOnDropHandle;

use super::error::Retry;
use super::start_error::StartError;
use crate::image::Image;

type Pulled = Result<Image, StartError>;

/// Pulls of one pod, by container, and by container and volume for images that are mounted
/// into one: at most one for each. Clones share them; they end with the last clone.
#[derive(Clone, Debug, Default)]
pub(super) struct PodPulls(Arc<Mutex<BTreeMap<String, PodPull>>>);

#[derive(Debug)]
struct PodPull {
    wanted: Wanted,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    Awaited {
        receiver: oneshot::Receiver<Pulled>,
        /// Ends with the last who is interested.
        _task: AbortOnDropHandle<()>,
    },
    Here(Pulled),
}

/// What of a container's spec a pull is for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    image: Option<String>,
    policy: Option<String>,
}

/// Between the names of a container and of a volume; neither has one.
const BETWEEN: char = '/';

/// What stands for a container that has the image of a volume of it: the image and its
/// policy, under a name of their own.
pub(super) fn for_volume(container: &str, volume: &ImageVolume<'_>) -> ContainerSpec {
    ContainerSpec {
        name: format!("{container}{BETWEEN}{}", volume.name),
        image: volume.source.reference.clone(),
        image_pull_policy: volume.source.pull_policy.clone(),
        ..ContainerSpec::default()
    }
}

/// The container that waits for a pull, by the pull's name.
fn container_of(name: &str) -> &str {
    name.split_once(BETWEEN)
        .map_or(name, |(container, _)| container)
}

/// What a pull of this name is for, if the pod has it.
fn wanted(pod: &Pod, name: &str) -> Option<Wanted> {
    let container = ephemeral::any_container(pod, container_of(name))?;
    let Some((_, volume)) = name.split_once(BETWEEN) else {
        return Some(Wanted::of(&container));
    };
    let mut volumes = cri_requests::image_volumes(pod, &container).into_iter();
    let volume = volumes.find(|found| found.name == volume)?;
    Some(Wanted::of(&for_volume(&container.name, &volume)))
}

impl Wanted {
    fn of(spec: &ContainerSpec) -> Wanted {
        Wanted {
            image: spec.image.clone(),
            policy: spec.image_pull_policy.clone(),
        }
    }
}

impl PodPull {
    fn is_under_way(&mut self) -> bool {
        let Answer::Awaited { receiver, .. } = &mut self.answer else {
            return false;
        };
        let pulled = match receiver.try_recv() {
            Ok(pulled) => pulled,
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Closed) => Err(StartError::new(
                "ErrImagePull",
                "internal error: see the log of pod-worker-pool",
                Retry::LATER,
            )),
        };
        self.answer = Answer::Here(pulled);
        false
    }
}

impl PodPulls {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, PodPull>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a pull for a container. It is to ring the doorbell after its answer,
    /// which is what `ended` is for.
    pub(super) fn begin(
        &self,
        spec: &ContainerSpec,
        pull: impl Future<Output = Pulled> + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) {
        let (answer, answered) = oneshot::channel();
        let task = tokio::spawn(async move {
            // Nobody wants it any more when the pod's steps are over. And nothing is
            // awaited after it: who has the answer lets go of the task.
            let _ = answer.send(pull.await);
            ended();
        });
        let pull = PodPull {
            wanted: Wanted::of(spec),
            answer: Answer::Awaited {
                receiver: answered,
                _task: AbortOnDropHandle::new(task),
            },
        };
        self.lock().insert(spec.name.clone(), pull);
    }

    /// Keeps an image for the next try of the same start, which need not pull it
    /// again.
    pub(super) fn keep(&self, spec: &ContainerSpec, image: Image) {
        let pull = PodPull {
            wanted: Wanted::of(spec),
            answer: Answer::Here(Ok(image)),
        };
        self.lock().insert(spec.name.clone(), pull);
    }

    /// Whether a container's image is being pulled.
    pub(super) fn is_under_way(&self, container: &str) -> bool {
        let mut pulls = self.lock();
        pulls.get_mut(container).is_some_and(PodPull::is_under_way)
    }

    /// Containers of which an image is being pulled: their own, or one for a volume.
    pub(super) fn under_way(&self) -> BTreeSet<String> {
        let mut pulls = self.lock();
        let under_way = pulls.iter_mut().filter_map(|(name, pull)| {
            let is_under_way = pull.is_under_way();
            is_under_way.then(|| container_of(name).to_owned())
        });
        under_way.collect()
    }

    /// What the pull for a container came to, if it has ended.
    pub(super) fn take_ended(&self, container: &str) -> Option<Pulled> {
        if self.is_under_way(container) {
            return None;
        }
        match self.lock().remove(container)?.answer {
            Answer::Here(pulled) => Some(pulled),
            Answer::Awaited { .. } => None,
        }
    }

    /// Forgets what pulls for a container came to, those of its volumes too.
    pub(super) fn forget_ended(&self, container: &str) {
        self.lock()
            .retain(|name, pull| container_of(name) != container || pull.is_under_way());
    }

    /// Gives up pulls of images that the pod does not want any more.
    pub(super) fn retain_wanted(&self, pod: &Pod) {
        self.lock()
            .retain(|name, pull| wanted(pod, name).is_some_and(|wanted| wanted == pull.wanted));
    }

    /// Gives up all of them.
    pub(super) fn give_up(&self) {
        self.lock().clear();
    }
}
