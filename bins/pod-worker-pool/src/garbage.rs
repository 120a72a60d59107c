//! Removing what pods leave behind: dead containers and sandboxes, logs,
//! directories, volumes, cgroups and records of pods that are gone, and images that
//! nobody uses once the disk gets full.
//!
//! Runs on order, one round at a time, beside the workers. What to remove is
//! decided in `plan`; nothing of a pod that has a worker is removed while a step
//! of it runs. `containers` removes containers and sandboxes, `files` what is on the
//! node, `disk` images; `space` does so beside the rounds where somebody waits for space.

mod collection;
mod containers;
mod dead;
mod disk;
mod files;
mod images;
mod left;
mod needed_images;
mod plan;
mod space;

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use containers::SandboxRemovals;
use disk::ImageCollection;
use left::Left;
use plan::WantedPods;
use space::SpaceOrders;

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
}

/// Takes orders. Clones share them; the newest order for everything replaces the
/// one before.
#[derive(Clone, Debug, Default)]
pub(crate) struct GarbageCollector {
    rounds: Arc<(Mutex<Pending>, Notify)>,
    space: SpaceOrders,
    left: Left,
}

impl GarbageCollector {
    /// Queues an order.
    pub(crate) fn order(&self, order: Order) {
        let (pending, ordered) = &*self.rounds;
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

    /// What cannot be removed, for `bulkhead status`; empty if all can.
    pub(crate) fn status_line(&self) -> String {
        self.left.status_line()
    }

    /// Where a collection notes it.
    pub(crate) fn left(&self) -> Left {
        self.left.clone()
    }

    /// Has dead containers that no pod needs removed, and unused images too if asked for,
    /// and waits for that, but not for a removal that hangs.
    pub(crate) async fn free_space(&self, images: bool) {
        self.space.free(images).await;
    }

    async fn next(&self) -> Pending {
        let (pending, ordered) = &*self.rounds;
        ordered.notified().await;
        std::mem::take(&mut *pending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Carries orders out for ever.
    pub(crate) async fn run(self, collection: Collection) {
        let images = tokio::sync::Mutex::new(ImageCollection::new(&collection.images));
        let collection = Arc::new(collection);
        tokio::join!(
            // Before pods pull: what comes later is new.
            async { images.lock().await.begin(&collection).await },
            self.rounds(&collection, &images),
            self.space.serve(&collection, &images),
        );
    }

    async fn rounds(&self, with: &Arc<Collection>, images: &tokio::sync::Mutex<ImageCollection>) {
        let mut sandboxes = SandboxRemovals::default();
        loop {
            let pending = self.next().await;
            for uid in pending.pods {
                dead::collect_containers(with, &uid).await;
            }
            if let Some((desired, sources_ready)) = pending.everything {
                collect(with, &mut sandboxes, &desired, sources_ready).await;
                self.left.end();
                images.lock().await.run(with).await;
            }
        }
    }
}

/// Collects what pods left.
async fn collect(
    with: &Arc<Collection>,
    removals: &mut SandboxRemovals,
    desired: &HashSet<String>,
    sources_ready: bool,
) {
    let Some((relist, workers)) = with.look().await else {
        return;
    };
    let wanted = WantedPods {
        workers: &workers,
        desired,
        sources_ready,
        removed_pods: &with.removed_pods,
    };
    let dead = plan::containers(&relist, &wanted);
    let removed = containers::remove_containers(with, dead, &wanted).await;
    let sandboxes = plan::sandboxes(&relist, &wanted, &removed);
    containers::remove_sandboxes(with, removals, sandboxes).await;
    let left = files::collect_files(with, &relist, &wanted, &removed).await;
    files::prune_log_links(with).await;
    let Some(left) = left else {
        return;
    };
    let recorded = with.records.uids();
    with.removed_pods.retain(|uid| {
        relist.pods.contains_key(uid) || recorded.contains(uid) || left.contains(uid)
    });
}

#[cfg(test)]
mod tests;
