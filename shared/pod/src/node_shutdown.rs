//! How a pod's status says that the node was shut down (the kubelet's words,
//! `nodeshutdown_manager.go`). It says so until the node boots again.

/// Reason of a pod that was ended for it.
pub const TERMINATED: &str = "Terminated";

/// Message of a pod that was ended for it.
pub const TERMINATED_MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// Reason of a pod that came meanwhile and was not started.
pub const REJECTED: &str = "NodeShutdown";

/// Message of a pod that came meanwhile and was not started.
pub const REJECTED_MESSAGE: &str = "Pod was rejected as the node is shutting down.";

/// Whether a pod with this reason has failed for a shutdown of the node, and starts again
/// with its next boot.
#[must_use]
pub fn is_reason(reason: &str) -> bool {
    matches!(reason, TERMINATED | REJECTED)
}
