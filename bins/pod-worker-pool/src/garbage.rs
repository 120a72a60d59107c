//! Removing what pods leave behind: dead containers and sandboxes, logs,
//! directories, volumes, cgroups and records of pods that are gone, and images that
//! nobody uses once the disk gets full.
//!
//! Runs on order, one round at a time, beside the workers. What to remove is
//! decided in `plan`; nothing of a pod that has a worker is removed while a step
//! of it runs. `containers` removes containers and sandboxes, `files` what is on the
//! node, `disk` images.

mod collection;
mod containers;
mod disk;
mod files;
mod images;
mod plan;

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt, stream};
use tokio::sync::{Notify, oneshot};

use collection::PARALLEL_REMOVALS;
use disk::ImageCollection;
use plan::Known;

pub(crate) use collection::Collection;

/// What to collect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Dead containers of one pod.
    Containers {
        /// The pod.
        pod_uid: String,
    },
    /// Everything that nothing needs.
    Everything {
        /// Pods that are wanted.
        desired: HashSet<String>,
        /// Whether that is all of them; else only what belongs to known pods is
        /// removed.
        sources_ready: bool,
    },
}

#[derive(Debug, Default)]
struct Pending {
    pods: BTreeSet<String>,
    everything: Option<(HashSet<String>, bool)>,
    /// Who waits for space: whether unused images are to go too, and who is told.
    space: Vec<(bool, oneshot::Sender<()>)>,
}

/// Takes orders. Clones share them; the newest order for everything replaces the
/// one before.
#[derive(Clone, Debug, Default)]
pub(crate) struct GarbageCollector(Arc<(Mutex<Pending>, Notify)>);

impl GarbageCollector {
    /// Queues an order.
    pub(crate) fn order(&self, order: Order) {
        let (pending, ordered) = &*self.0;
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        match order {
            // Bounded: sync-loop names pods of its own, and there are only so many.
            Order::Containers { pod_uid } if pending.pods.len() < ipc::limits::MAX_PODS => {
                pending.pods.insert(pod_uid);
            }
            Order::Containers { .. } => {}
            Order::Everything {
                desired,
                sources_ready,
            } => pending.everything = Some((desired, sources_ready)),
        }
        ordered.notify_one();
    }

    /// Has dead containers that no pod needs removed, and unused images too if asked for,
    /// and waits for that.
    pub(crate) async fn free_space(&self, images: bool) {
        let (done, freed) = oneshot::channel();
        {
            let (pending, ordered) = &*self.0;
            let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
            pending.space.push((images, done));
            ordered.notify_one();
        }
        // Without a collector nothing is freed, which who asked will see.
        let _ = freed.await;
    }

    async fn next(&self) -> Pending {
        let (pending, ordered) = &*self.0;
        ordered.notified().await;
        std::mem::take(&mut *pending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Carries orders out for ever.
    pub(crate) async fn run(self, collection: Collection) {
        let mut images = ImageCollection::new(&collection.images);
        loop {
            let pending = self.next().await;
            for uid in pending.pods {
                collect_containers(&collection, Some(&uid)).await;
            }
            if !pending.space.is_empty() {
                collect_containers(&collection, None).await;
                let wants_images = pending.space.iter().any(|(images, _)| *images);
                // Removed containers use no image any more.
                if wants_images && let Some((relist, _)) = collection.look().await {
                    images.remove_unused(&collection, &relist).await;
                }
                for (_, waiting) in pending.space {
                    let _ = waiting.send(());
                }
            }
            if let Some((desired, sources_ready)) = pending.everything {
                collect(&collection, &desired, sources_ready).await;
                // The removals may take minutes, in which pods start with other images.
                if let Some((relist, _)) = collection.look().await {
                    images.run(&collection, &relist).await;
                }
            }
        }
    }
}

/// Removes dead containers of one pod, or of all that have workers.
async fn collect_containers(with: &Collection, of: Option<&str>) {
    let Some((relist, workers)) = with.look().await else {
        return;
    };
    let desired = HashSet::new();
    let known = Known {
        workers: &workers,
        desired: &desired,
        // Of a pod without a worker nobody can say that it is not wanted.
        sources_ready: false,
    };
    let mut dead = plan::containers(&relist, &known);
    dead.retain(|container| of.is_none_or(|uid| container.pod.uid() == uid));
    containers::remove_containers(with, dead, &known).await;
}

/// Collects what pods left.
async fn collect(with: &Collection, desired: &HashSet<String>, sources_ready: bool) {
    let Some((relist, workers)) = with.look().await else {
        return;
    };
    let known = Known {
        workers: &workers,
        desired,
        sources_ready,
    };
    let dead = plan::containers(&relist, &known);
    let removed = containers::remove_containers(with, dead, &known).await;
    let sandboxes = plan::sandboxes(&relist, &known, &removed);
    stream::iter(sandboxes)
        .for_each_concurrent(PARALLEL_REMOVALS, |id| async move {
            containers::remove_sandbox(with, &id).await;
        })
        .await;
    if sources_ready {
        files::collect_files(with, &relist, &known).await;
    }
    files::prune_log_links(with).await;
}

#[cfg(test)]
mod tests;
