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
    let refused = match runtime.remove_container(id).await {
        Err(error) if error.kind == RuntimeErrorKind::Other => error,
        answered => return answered,
    };
    match runtime.delete_task(id).await {
        Ok(()) => {
            tracing::info!(id, %refused, "deleted what was left of a start that was given up");
            runtime.remove_container(id).await
        }
        Err(error) if error.kind == RuntimeErrorKind::Unimplemented => Err(refused),
        Err(error) => Err(error),
    }
}
