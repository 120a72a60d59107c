//! How the pods of a node that shuts down are ended, and what is told of that. When, and
//! which, is decided in `node_shutdown`.

use std::time::Duration;

use pod::PodIdentity;
use pod::node_shutdown::{REJECTED, REJECTED_MESSAGE, TERMINATED, TERMINATED_MESSAGE};
use pod_lifecycle::{EvictionRequest, KillRequest, TerminationCause};

use crate::events::Events;

fn kill(grace: Duration, reason: &str, message: &str) -> KillRequest {
    let eviction = EvictionRequest {
        reason: reason.to_owned(),
        message: message.to_owned(),
        is_disruption: true,
    };
    KillRequest::evict(grace, eviction)
}

/// How a pod is ended that ran when the node was to shut down.
pub(crate) fn termination(grace: Duration) -> KillRequest {
    kill(grace, TERMINATED, TERMINATED_MESSAGE)
}

/// How a pod is ended that came while the node shuts down.
pub(crate) fn rejection() -> KillRequest {
    kill(Duration::ZERO, REJECTED, REJECTED_MESSAGE)
}

/// Whether a pod was ended because it came while the node shuts down. It may be one that had
/// ended long before: a process that is started meanwhile does not look.
pub(crate) fn is_rejection(cause: &TerminationCause) -> bool {
    cause
        .failure()
        .is_some_and(|(reason, _)| reason == REJECTED)
}

/// Tells that one was.
pub(crate) fn tell_rejection(events: &Events, pod: &PodIdentity) {
    tracing::info!(%pod, "the pod is rejected: the node shuts down");
    events.warning(pod, "", REJECTED, REJECTED_MESSAGE);
}
