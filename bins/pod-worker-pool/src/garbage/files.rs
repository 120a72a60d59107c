//! Removing what pods that are gone left on the node: directories, volumes, cgroups,
//! logs and records.
//!
//! A file system that hangs holds up what is on it and nothing else: a pod that a
//! step is busy with is passed over, whatever takes long is left behind, and both are
//! come back to in the next round.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::{StreamExt, future, stream};
use node_host::NodeError;
use pod::PodIdentity;

use super::collection::{Collection, PARALLEL_REMOVALS};
use super::plan::{self, WantedPods};
use crate::relist::Relist;

/// How long a round waits for one operation of the node. What takes longer goes on
/// by itself, and the next round finds it done.
const MAY_TAKE: Duration = Duration::from_secs(10);

/// Removes what pods that are gone left on the node. Answers with those of which something
/// could not be removed, unless it could not be looked for at all.
pub(super) async fn collect_files(
    with: &Collection,
    relist: &Relist,
    wanted: &WantedPods<'_>,
    removed: &HashSet<String>,
) -> Option<HashSet<String>> {
    let mut uids = with.records.uids();
    let directories = attempt(with, "pod directories", with.host.pod_directories()).await;
    let cgroups = attempt(with, "pod cgroups", with.host.pod_cgroups()).await;
    let all_found = directories.is_some() && cgroups.is_some();
    uids.extend(directories.unwrap_or_default());
    uids.extend(cgroups.unwrap_or_default());
    uids.retain(|uid| plan::is_gone(uid, relist, wanted));
    let removals = stream::iter(uids).map(|uid| async move {
        let has_containers = plan::has_containers(&uid, relist, removed);
        let is_gone = remove_files(with, &uid, wanted, has_containers).await;
        (!is_gone).then_some(uid)
    });
    let mut left: HashSet<String> = removals
        .buffer_unordered(PARALLEL_REMOVALS)
        .filter_map(future::ready)
        .collect()
        .await;

    let mut logs = attempt(with, "pod logs", with.host.pod_logs()).await?;
    logs.retain(|pod| wanted.contents_are_garbage(pod.uid()));
    let removals = stream::iter(logs).map(|pod| async move {
        let is_gone = remove_pod_logs(with, &pod, wanted).await;
        (!is_gone).then(|| pod.uid().to_owned())
    });
    let logs_left: Vec<String> = removals
        .buffer_unordered(PARALLEL_REMOVALS)
        .filter_map(future::ready)
        .collect()
        .await;
    left.extend(logs_left);
    all_found.then_some(left)
}

/// Links to logs of which nothing is left.
pub(super) async fn prune_log_links(with: &Collection) {
    attempt(with, "log links", with.host.prune_log_links()).await;
}

/// Removes the logs of one instance of a container; whether they are gone.
pub(super) async fn remove_log(
    with: &Collection,
    pod: &PodIdentity,
    name: &str,
    id: &str,
    number: u32,
) -> bool {
    let removal = with.host.remove_log(pod, name, id, number);
    attempt(with, "logs", removal).await.is_some()
}

async fn remove_pod_logs(with: &Collection, pod: &PodIdentity, wanted: &WantedPods<'_>) -> bool {
    let Some(_lock) = with.still_garbage(pod.uid(), wanted).await else {
        return false;
    };
    attempt(with, "pod logs", with.host.remove_pod_logs(pod))
        .await
        .is_some()
}

async fn remove_files(
    with: &Collection,
    uid: &str,
    wanted: &WantedPods<'_>,
    has_containers: bool,
) -> bool {
    // With the lock no step of the pod can run; without a worker none has
    // begun. A pod that comes back now waits until its old files are gone.
    let Some(_lock) = with.locks.try_lock(uid) else {
        return false;
    };
    let Ok(workers) = with.pool.summaries().await else {
        return false;
    };
    let wanted = WantedPods {
        workers: &workers,
        ..*wanted
    };
    if !wanted.is_unknown(uid) {
        return false;
    }
    let removal = async {
        with.host.tear_down_volumes(uid).await?;
        with.host.remove_pod_cgroup(uid).await?;
        with.host.remove_pod_directory(uid).await
    };
    let removed = attempt(with, "files of a pod that is gone", removal).await;
    // Without its record, a pod that comes back would take what its former containers
    // came to for its own end. The next round finds the pod by its record.
    if removed.is_some() && !has_containers {
        with.records.remove(uid);
    }
    removed.is_some()
}

/// What an operation of the node came to, unless it failed or takes too long.
pub(super) async fn attempt<Value>(
    with: &Collection,
    what: &str,
    operation: impl Future<Output = Result<Value, NodeError>>,
) -> Option<Value> {
    match tokio::time::timeout(MAY_TAKE, operation).await {
        Ok(Ok(value)) => Some(value),
        Ok(Err(error)) => {
            let error = telemetry::chain(&error);
            with.left.note(what, error);
            None
        }
        Err(_) => {
            with.left.note(what, "the file system hangs");
            None
        }
    }
}
