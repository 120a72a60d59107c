//! Why an input of the registry is refused.

use pod::wire::WireError;

use super::{MAX_KEPT_BYTES, MAX_OBSERVED_BYTES};

/// Why an input is refused. The rest goes on.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It names no pod, or a malformed one.
    #[error("the pod in the message is invalid")]
    Pod(#[from] WireError),
    /// There are too many pods.
    #[error("there are {} pods already, no more are taken", ipc::limits::MAX_PODS)]
    TooManyPods,
    /// The pods that the pool has are too large together.
    #[error("all pods may have {MAX_KEPT_BYTES} bytes together")]
    TooLarge,
    /// What is observed of all pods is too much together.
    #[error("what is observed of all pods may take {MAX_OBSERVED_BYTES} bytes together")]
    TooMuchObserved,
    /// A list of pods that is still to be made, or does not say when it was made.
    #[error("a list of pods was made at some time since the machine was booted, until now")]
    ListOfNoTime,
    /// A pod that runs cannot be rejected.
    #[error("pod {uid} already runs here; only a pod that has not started can be rejected")]
    AlreadyRuns {
        /// The pod.
        uid: String,
    },
}
