//! Removing what the runtime has of a pod of which nothing runs: its instances and its
//! sandboxes.

use std::collections::BTreeMap;

use cri::v1::ContainerState;
use cri::{ContainerRuntime, RuntimeError, v1};
use pod::PodIdentity;
use pod_lifecycle::stop::MINIMUM_SIGTERM_GRACE;

use crate::abandoned_start;
use crate::relist::{self, listed_pod};

/// Removes all of a pod that was stopped. Its sandboxes go last: they tell what it was
/// started with, so that whoever finds a rest of it takes it for that.
///
/// # Errors
/// When the runtime refuses to remove one, or does not answer.
pub(crate) async fn remove_instances(
    runtime: &dyn ContainerRuntime,
    pod: &PodIdentity,
) -> Result<(), RuntimeError> {
    let (sandboxes, containers) = relist::list(runtime, Some(pod.uid())).await?;
    for container in containers.iter().filter(|it| is_of(pod, &it.labels)) {
        or_gone(remove_instance(runtime, container).await)?;
    }
    for sandbox in sandboxes.iter().filter(|it| is_of(pod, &it.labels)) {
        // One that was made late holds an address.
        or_gone(runtime.stop_pod_sandbox(&sandbox.id).await)?;
        or_gone(runtime.remove_pod_sandbox(&sandbox.id).await)?;
    }
    Ok(())
}

/// What a call of an earlier process has started since is stopped first.
async fn remove_instance(
    runtime: &dyn ContainerRuntime,
    container: &v1::Container,
) -> Result<(), RuntimeError> {
    let may_run = matches!(
        container.state(),
        ContainerState::ContainerRunning | ContainerState::ContainerUnknown
    );
    if may_run {
        let stopped = runtime.stop_container(&container.id, MINIMUM_SIGTERM_GRACE);
        or_gone(stopped.await)?;
    }
    abandoned_start::remove_ended(runtime, &container.id).await
}

fn is_of(pod: &PodIdentity, labels: &BTreeMap<String, String>) -> bool {
    listed_pod(labels).is_some_and(|listed| listed.uid() == pod.uid())
}

fn or_gone(done: Result<(), RuntimeError>) -> Result<(), RuntimeError> {
    match done {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
