//! Dead containers of pods that have workers, or had one that is forgotten, outside of a
//! round of everything.

use std::collections::HashSet;

use super::collection::Collection;
use super::containers::remove_containers;
use super::plan::{self, DeadContainer, WantedPods};

/// Removes dead containers of one pod.
pub(super) async fn collect_containers(with: &Collection, uid: &str) {
    remove_dead(with, |container| container.pod.uid() == uid).await;
}

/// Removes dead containers of all these pods, and waits for those that a round
/// removes already.
pub(super) async fn free_containers(with: &Collection) {
    for id in remove_dead(with, |_| true).await {
        drop(with.removals.lock(&id).await);
    }
}

/// Removes those dead containers of these pods that are meant; the ids of all.
async fn remove_dead(with: &Collection, is_meant: impl Fn(&DeadContainer) -> bool) -> Vec<String> {
    let Some((relist, workers)) = with.look().await else {
        return Vec::new();
    };
    let desired = HashSet::new();
    let wanted = WantedPods {
        workers: &workers,
        desired: &desired,
        // Of any other pod without a worker nobody can say that it is not wanted.
        sources_ready: false,
        removed_pods: &with.removed_pods,
    };
    let mut dead = plan::containers(&relist, &wanted);
    dead.retain(is_meant);
    let ids = dead.iter().map(|container| container.id.clone()).collect();
    remove_containers(with, dead, &wanted).await;
    ids
}
