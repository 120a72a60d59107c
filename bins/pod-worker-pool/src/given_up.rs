//! Removing instances whose start was given up: the one who asked for it died, and
//! whoever kept its connection.
//!
//! containerd gives a start up at any moment. At the wrong one a task is left that its
//! CRI service does not know of, and that keeps the container from being removed until
//! containerd is started again.

use cri::{ContainerRuntime, RuntimeError, RuntimeErrorKind};

/// Removes such an instance, with what is left of its start.
///
/// # Errors
/// When the runtime refuses still, or does not answer.
pub(crate) async fn remove(runtime: &dyn ContainerRuntime, id: &str) -> Result<(), RuntimeError> {
    match runtime.remove_container(id).await {
        Err(refused) if refused.kind == RuntimeErrorKind::Other => {
            remove_refused(runtime, id, refused).await
        }
        answered => answered,
    }
}

/// The same after the runtime has refused to remove it.
///
/// # Errors
/// As those of [`remove`].
pub(crate) async fn remove_refused(
    runtime: &dyn ContainerRuntime,
    id: &str,
    refused: RuntimeError,
) -> Result<(), RuntimeError> {
    match runtime.delete_task(id).await {
        Ok(true) => {
            tracing::info!(id, %refused, "deleted what was left of a start that was given up");
            runtime.remove_container(id).await
        }
        Ok(false) => Err(refused),
        Err(error) if error.kind == RuntimeErrorKind::Unimplemented => Err(refused),
        Err(error) => Err(error),
    }
}
