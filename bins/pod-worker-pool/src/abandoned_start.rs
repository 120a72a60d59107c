//! Removes instances whose start containerd abandoned, because whoever asked for it
//! died, and the process that kept its connection open died too.
//!
//! containerd can abandon a start at any moment. If that is after it has made a task and
//! before its CRI service knows of it, the service cannot remove the container until
//! containerd is started again. So the task is deleted first.

use cri::quirks::failed_start;
use cri::{Runtime, RuntimeChanges, RuntimeError, RuntimeErrorKind};

/// Removes such an instance, with what is left of its start.
///
/// # Errors
/// When the runtime refuses still, or does not answer.
pub(crate) async fn remove(runtime: &dyn RuntimeChanges, id: &str) -> Result<(), RuntimeError> {
    match runtime.remove_container(id).await {
        Err(refused) if refused.is_refusal() => remove_refused(runtime, id, refused).await,
        answered => answered,
    }
}

/// Removes an instance that has ended, or never ran: of one of which the start failed a
/// task may be left.
///
/// # Errors
/// As those of [`remove`].
pub(crate) async fn remove_ended(runtime: &Runtime, id: &str) -> Result<(), RuntimeError> {
    let refused = match runtime.changes.remove_container(id).await {
        Err(error) if error.is_refusal() => error,
        answered => return answered,
    };
    let status = runtime.reads.container_status(id).await;
    match status.ok().as_ref().and_then(failed_start) {
        Some(_) => remove_refused(&*runtime.changes, id, refused).await,
        None => Err(refused),
    }
}

/// The same after the runtime has refused to remove it.
///
/// # Errors
/// As those of [`remove`].
async fn remove_refused(
    runtime: &dyn RuntimeChanges,
    id: &str,
    refused: RuntimeError,
) -> Result<(), RuntimeError> {
    match runtime.delete_task(id).await {
        Ok(true) => {
            tracing::info!(id, %refused, "deleted what was left of an abandoned start");
            runtime.remove_container(id).await
        }
        Ok(false) => Err(refused),
        Err(error) if error.kind == RuntimeErrorKind::Unimplemented => Err(refused),
        Err(error) => Err(error),
    }
}
