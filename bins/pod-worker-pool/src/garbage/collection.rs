//! [`Collection`]: what a round works with, and what it looks at.

use std::collections::BTreeMap;
use std::sync::Arc;

use clock::WallClock;
use cri::{Runtime, v1};
use node_config::ImageSettings;
use node_host::NodeHost;
use tokio::sync::OwnedMutexGuard;

use super::left::Left;
use super::plan::WantedPods;
use crate::events::Events;
use crate::image::PulledImages;
use crate::locks::PodLocks;
use crate::pool::{PoolHandle, WorkerSummary};
use crate::record::Records;
use crate::relist::{Relist, Relister};
use crate::removed_pods::RemovedPods;
use crate::turns::Turns;

/// Removals at once: enough to clear up after a crash loop, too few to slow the
/// start of pods.
pub(super) const PARALLEL_REMOVALS: usize = 4;

/// What a collection works with.
pub(crate) struct Collection {
    /// The container runtime; heavy calls wait for their turn.
    pub runtime: Runtime,
    /// The same without waiting for turns, for callers that hold one already.
    pub runtime_at_once: Runtime,
    /// The turns.
    pub turns: Turns,
    /// Files, mounts and cgroups.
    pub host: Arc<dyn NodeHost>,
    /// Lists the runtime.
    pub relister: Relister,
    /// Knows the workers.
    pub pool: PoolHandle,
    /// Records of pods: what the next run needs.
    pub records: Records,
    /// Keeps steps and removals of one pod apart.
    pub locks: PodLocks,
    /// Keeps two removals of one container apart, by its id: a second one would wait for
    /// a runtime that hangs with the first.
    pub removals: PodLocks,
    /// Pods that their source has removed, whatever other sources deliver.
    pub removed_pods: RemovedPods,
    /// What cannot be removed.
    pub left: Left,
    /// What is told of what cannot be freed.
    pub events: Events,
    /// When images are collected.
    pub images: ImageSettings,
    /// What is known of those that were pulled, which goes with them.
    pub pulled: PulledImages,
    /// Wall time.
    pub clock: WallClock,
}

impl std::fmt::Debug for Collection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Collection").finish_non_exhaustive()
    }
}

impl Collection {
    pub(super) async fn look(&self) -> Option<(Arc<Relist>, BTreeMap<String, WorkerSummary>)> {
        // The runtime first: what is started in between has a worker then.
        let relist = match self.relister.all().await {
            Ok(relist) => relist,
            Err(error) => {
                tracing::debug!(%error, "no garbage is collected: the runtime does not answer");
                self.left.note("all containers", &error);
                return None;
            }
        };
        let workers = self.pool.summaries().await.ok()?;
        Some((relist, workers))
    }

    /// Keeps the steps of a pod away while what it left is removed; `None` if that is
    /// no garbage any more: the round may have begun long ago, and the pod have come
    /// back.
    pub(super) async fn still_garbage(
        &self,
        uid: &str,
        wanted: &WantedPods<'_>,
    ) -> Option<OwnedMutexGuard<()>> {
        let lock = self.locks.try_lock(uid)?;
        let workers = self.pool.summaries().await.ok()?;
        let wanted = WantedPods {
            workers: &workers,
            ..*wanted
        };
        wanted.contents_are_garbage(uid).then_some(lock)
    }

    pub(super) async fn status_of(&self, id: &str) -> Option<v1::ContainerStatus> {
        let status = self.runtime.reads.container_status(id).await;
        status
            .inspect_err(|error| tracing::debug!(id, %error, "no status"))
            .ok()
    }
}
