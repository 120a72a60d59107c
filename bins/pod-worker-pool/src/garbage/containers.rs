//! Removing dead containers, after their logs, and dead sandboxes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use cri::quirks::{self, FailedStart};
use futures_util::{StreamExt, stream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use turns::{Call, Purpose};

use super::collection::{Collection, PARALLEL_REMOVALS};
use super::files;
use super::plan::{DeadContainer, WantedPods};
use crate::{abandoned_start, observe};

/// Grace of a container of unknown state whose pod is gone: its own grace was over
/// when the pod was stopped.
const UNKNOWN_STATE_GRACE: Duration = Duration::from_secs(2);

/// How long a round waits for sandboxes: a network plugin may hang with each of them.
const SANDBOXES_MAY_TAKE: Duration = Duration::from_secs(10);

/// Removes containers and their logs; answers with the ids of those that are
/// gone.
pub(super) async fn remove_containers(
    with: &Collection,
    dead: Vec<DeadContainer>,
    wanted: &WantedPods<'_>,
) -> HashSet<String> {
    let mut by_pod: BTreeMap<String, Vec<DeadContainer>> = BTreeMap::new();
    for container in dead {
        let uid = container.pod.uid().to_owned();
        by_pod.entry(uid).or_default().push(container);
    }
    let removals: Vec<_> = by_pod
        .iter()
        .map(|(uid, dead)| remove_containers_of(with, uid, dead, wanted))
        .collect();
    let removed: Vec<Vec<String>> = stream::iter(removals)
        .buffer_unordered(PARALLEL_REMOVALS)
        .collect()
        .await;
    removed.into_iter().flatten().collect()
}

async fn remove_containers_of(
    with: &Collection,
    uid: &str,
    dead: &[DeadContainer],
    wanted: &WantedPods<'_>,
) -> Vec<String> {
    // Of a pod that goes on only what its newer instances have replaced is dead.
    let is_garbage = wanted.contents_are_garbage(uid);
    let mut removed = Vec::new();
    for container in dead {
        let Some(_removal) = with.removals.try_lock(&container.id) else {
            continue;
        };
        // The turn first: who waits for one must not keep the pod's steps away, should
        // the pod come back meanwhile.
        let purpose = Some(Purpose::End);
        let turn = with.turns.take(Call::RemoveContainer, Some(uid), purpose);
        let Ok(_turn) = turn.await else {
            break;
        };
        let _lock = match is_garbage {
            true => match with.still_garbage(uid, wanted).await {
                Some(lock) => Some(lock),
                None => break,
            },
            false => None,
        };
        if is_replaced(with, container).await {
            removed.extend(remove_container(with, container).await);
        }
    }
    removed
}

/// Whether another instance tells what a dead one told: its restart count and its
/// back-off. One whose start the runtime abandoned does not, although lists show it as
/// ended: it is removed before the next one is made, and with both gone the
/// back-off would begin anew. But neither is it worth keeping itself.
async fn is_replaced(with: &Collection, container: &DeadContainer) -> bool {
    for newer in &container.replaced_by {
        let status = with.status_of(newer).await;
        if status.is_some_and(|it| observe::state_of(&it).exit().is_some()) {
            return true;
        }
    }
    if container.replaced_by.is_empty() {
        return true;
    }
    let status = with.status_of(&container.id).await;
    status.is_some_and(|it| quirks::failed_start(&it) == Some(FailedStart::Abandoned))
}

/// Removes a container, with a turn that its caller has.
async fn remove_container(with: &Collection, container: &DeadContainer) -> Option<String> {
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
        let runtime = &with.runtime_at_once.changes;
        let stopped = runtime.stop_container(id, UNKNOWN_STATE_GRACE).await;
        if let Err(error) = stopped
            && !error.is_not_found()
        {
            with.left.note(format_args!("container {id}"), &error);
            return None;
        }
    }
    // The log first: nobody would find what is left of it by a container that is gone.
    if !files::remove_log(with, pod, name, id, *attempt).await {
        return None;
    }
    if let Err(error) = abandoned_start::remove_ended(&with.runtime_at_once, id).await
        && !error.is_not_found()
    {
        with.left.note(format_args!("container {id}"), &error);
        return None;
    }
    Some(id.clone())
}

/// Removals of sandboxes; those that hang go on while the next round comes.
#[derive(Debug, Default)]
pub(super) struct SandboxRemovals {
    under_way: JoinSet<()>,
    /// When that of a sandbox that is still there was begun last.
    begun: HashMap<String, Instant>,
}

/// Removes sandboxes, so many at a time with those that hang since an earlier round, and
/// does not wait for any that hangs. Those come first that had no place for longest: some
/// that hang again and again must not keep the others.
pub(super) async fn remove_sandboxes(
    with: &Arc<Collection>,
    removals: &mut SandboxRemovals,
    mut ids: Vec<String>,
) {
    let SandboxRemovals { under_way, begun } = removals;
    let is_there = ids.iter().filter_map(|id| begun.remove_entry(id));
    *begun = is_there.collect();
    ids.sort_by_key(|id| begun.get(id).copied());
    let all = async {
        for id in ids {
            while under_way.len() >= PARALLEL_REMOVALS {
                under_way.join_next().await;
            }
            let Some(removal) = with.removals.try_lock(&id) else {
                continue;
            };
            begun.insert(id.clone(), Instant::now());
            let with = Arc::clone(with);
            under_way.spawn(async move {
                remove_sandbox(&with, &id).await;
                drop(removal);
            });
        }
        while under_way.join_next().await.is_some() {}
    };
    // What is not begun by then is come back to in the next round.
    if tokio::time::timeout(SANDBOXES_MAY_TAKE, all).await.is_err() {
        with.left.note("sandboxes", "removing them takes long");
    }
}

/// A sandbox may have died by itself: stopping it first frees its address.
async fn remove_sandbox(with: &Collection, id: &str) {
    let stopped = with.runtime.changes.stop_pod_sandbox(id).await;
    if let Err(error) = stopped
        && !error.is_not_found()
    {
        with.left.note(format_args!("sandbox {id}"), &error);
        return;
    }
    if let Err(error) = with.runtime.changes.remove_pod_sandbox(id).await
        && !error.is_not_found()
    {
        with.left.note(format_args!("sandbox {id}"), &error);
    }
}
