//! Removing what pods leave behind: dead containers and sandboxes, logs,
//! directories, volumes, cgroups and records of pods that are gone, and images that
//! nobody uses once the disk gets full.
//!
//! Runs on order, one round at a time, beside the workers. What to remove is
//! decided in `plan`; nothing of a pod that has a worker is removed while a step
//! of it runs. `files` removes what is on the node, `disk` images; containers and
//! sandboxes are removed here.

mod disk;
mod files;
mod images;
mod plan;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clock::WallClock;
use cri::quirks::{self, FailedStart};
use cri::{ContainerRuntime, RuntimeError, v1};
use futures_util::{StreamExt, stream};
use node_config::ImageSettings;
use node_host::NodeHost;
use tokio::sync::{Notify, OwnedMutexGuard};

use crate::abandoned_start;
use crate::events::Events;
use crate::locks::PodLocks;
use crate::observe;
use crate::pool::{PoolHandle, WorkerSummary};
use crate::record::Records;
use crate::relist::{Relist, Relister};

use disk::ImageCollection;
use plan::{DeadContainer, Known};

/// Removals at once: enough to clear up after a crash loop, too few to slow the
/// start of pods.
const PARALLEL_REMOVALS: usize = 4;

/// Grace of a container of unknown state whose pod is gone: its own grace was over
/// when the pod was stopped.
const UNKNOWN_STATE_GRACE: Duration = Duration::from_secs(2);

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
                collection.collect_containers_of(&uid).await;
            }
            if let Some((desired, sources_ready)) = pending.everything
                && let Some(relist) = collection.collect(&desired, sources_ready).await
            {
                images.run(&collection, &collection.clock, &relist).await;
            }
        }
    }
}

/// What a collection works with.
pub(crate) struct Collection {
    /// The container runtime.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// Files, mounts and cgroups.
    pub host: Arc<dyn NodeHost>,
    /// Lists the runtime.
    pub relister: Relister,
    /// Knows the workers.
    pub pool: PoolHandle,
    /// Kills that were begun.
    pub records: Records,
    /// Keeps steps and removals of one pod apart.
    pub locks: PodLocks,
    /// What is told of what cannot be freed.
    pub events: Events,
    /// When images are collected.
    pub images: ImageSettings,
    /// Wall time.
    pub clock: WallClock,
}

impl std::fmt::Debug for Collection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Collection").finish_non_exhaustive()
    }
}

impl Collection {
    async fn look(&self) -> Option<(Arc<Relist>, BTreeMap<String, WorkerSummary>)> {
        // The runtime first: what is started in between has a worker then.
        let relist = match self.relister.all().await {
            Ok(relist) => relist,
            Err(error) => {
                tracing::debug!(%error, "no garbage is collected: the runtime does not answer");
                return None;
            }
        };
        let workers = self.pool.summaries().await.ok()?;
        Some((relist, workers))
    }

    async fn collect_containers_of(&self, uid: &str) {
        let Some((relist, workers)) = self.look().await else {
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
        dead.retain(|container| container.pod.uid() == uid);
        self.remove_containers(dead, &known).await;
    }

    /// Collects what pods left; answers with what the runtime had.
    async fn collect(&self, desired: &HashSet<String>, sources_ready: bool) -> Option<Arc<Relist>> {
        let (relist, workers) = self.look().await?;
        let known = Known {
            workers: &workers,
            desired,
            sources_ready,
        };
        let dead = plan::containers(&relist, &known);
        let removed = self.remove_containers(dead, &known).await;
        let sandboxes = plan::sandboxes(&relist, &known, &removed);
        stream::iter(sandboxes)
            .for_each_concurrent(PARALLEL_REMOVALS, |id| async move {
                self.remove_sandbox(&id).await;
            })
            .await;
        if sources_ready {
            self.collect_files(&relist, &known).await;
        }
        self.prune_log_links().await;
        Some(relist)
    }

    /// Removes containers and their logs; answers with the ids of those that are
    /// gone.
    async fn remove_containers(
        &self,
        dead: Vec<DeadContainer>,
        known: &Known<'_>,
    ) -> HashSet<String> {
        let mut by_pod: BTreeMap<String, Vec<DeadContainer>> = BTreeMap::new();
        for container in dead {
            let uid = container.pod.uid().to_owned();
            by_pod.entry(uid).or_default().push(container);
        }
        let removals: Vec<_> = by_pod
            .iter()
            .map(|(uid, dead)| self.remove_containers_of(uid, dead, known))
            .collect();
        let removed: Vec<Vec<String>> = stream::iter(removals)
            .buffer_unordered(PARALLEL_REMOVALS)
            .collect()
            .await;
        removed.into_iter().flatten().collect()
    }

    async fn remove_containers_of(
        &self,
        uid: &str,
        dead: &[DeadContainer],
        known: &Known<'_>,
    ) -> Vec<String> {
        // Of a pod that lives only what its newer instances have replaced is dead.
        let is_garbage = known.contents_are_garbage(uid);
        let lock = match is_garbage {
            true => self.still_garbage(uid, known).await,
            false => None,
        };
        if is_garbage && lock.is_none() {
            return Vec::new();
        }
        let mut removed = Vec::new();
        for container in dead {
            if self.is_replaced(container).await {
                removed.extend(self.remove_container(container).await);
            }
        }
        drop(lock);
        removed
    }

    /// Keeps the steps of a pod away while what it left is removed; `None` if that is
    /// no garbage any more: the round may have begun long ago, and the pod have come
    /// back.
    async fn still_garbage(&self, uid: &str, known: &Known<'_>) -> Option<OwnedMutexGuard<()>> {
        let lock = self.locks.try_lock(uid)?;
        let workers = self.pool.summaries().await.ok()?;
        let known = Known {
            workers: &workers,
            ..*known
        };
        known.contents_are_garbage(uid).then_some(lock)
    }

    /// Whether another instance tells what a dead one told: its restart count and its
    /// back-off. One whose start was given up does not, although lists show it as
    /// ended: it is removed before the next one is made, and with both gone the
    /// back-off would begin anew. But neither is it worth keeping itself.
    async fn is_replaced(&self, container: &DeadContainer) -> bool {
        for newer in &container.replaced_by {
            let status = self.status_of(newer).await;
            if status.is_some_and(|it| observe::state_of(&it).exit().is_some()) {
                return true;
            }
        }
        if container.replaced_by.is_empty() {
            return true;
        }
        let status = self.status_of(&container.id).await;
        status.is_some_and(|it| quirks::failed_start(&it) == Some(FailedStart::Abandoned))
    }

    async fn status_of(&self, id: &str) -> Option<v1::ContainerStatus> {
        let status = self.runtime.container_status(id).await;
        status
            .inspect_err(|error| tracing::debug!(id, %error, "no status"))
            .ok()
    }

    async fn remove_container(&self, container: &DeadContainer) -> Option<String> {
        let DeadContainer {
            pod,
            name,
            id,
            attempt,
            may_run,
            replaced_by: _,
        } = container;
        if *may_run {
            // Of unknown state: it must not run on without a record.
            let stopped = self.runtime.stop_container(id, UNKNOWN_STATE_GRACE).await;
            if let Err(error) = stopped
                && !error.is_not_found()
            {
                tracing::debug!(id, %error, "container not stopped");
                return None;
            }
        }
        if let Err(error) = self.remove_with_its_task(id).await
            && !error.is_not_found()
        {
            tracing::debug!(id, %error, "dead container not removed");
            return None;
        }
        self.remove_log(pod, name, id, *attempt).await;
        Some(id.clone())
    }

    /// Of an instance that never ran a task may be left, whatever ended its start.
    async fn remove_with_its_task(&self, id: &str) -> Result<(), RuntimeError> {
        let refused = match self.runtime.remove_container(id).await {
            Err(error) if error.is_refusal() => error,
            answered => return answered,
        };
        let status = self.status_of(id).await;
        match status.as_ref().and_then(quirks::failed_start) {
            Some(FailedStart::Abandoned | FailedStart::Refused) => {
                abandoned_start::remove_refused(&*self.runtime, id, refused).await
            }
            None => Err(refused),
        }
    }

    /// A sandbox may have died by itself: stopping it first frees its address.
    async fn remove_sandbox(&self, id: &str) {
        let stopped = self.runtime.stop_pod_sandbox(id).await;
        if let Err(error) = stopped
            && !error.is_not_found()
        {
            tracing::debug!(id, %error, "dead sandbox not stopped");
            return;
        }
        if let Err(error) = self.runtime.remove_pod_sandbox(id).await
            && !error.is_not_found()
        {
            tracing::debug!(id, %error, "dead sandbox not removed");
        }
    }
}

#[cfg(test)]
mod tests;
