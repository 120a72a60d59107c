//! Why an input of the registry is refused.

use pod::wire::WireError;

/// Why an input is refused. The rest goes on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// It names no pod, or a malformed one.
    #[error("the pod in the message is invalid")]
    Pod(#[from] WireError),
    /// There are too many pods.
    #[error("there are {} pods already, no more are taken", ipc::limits::MAX_PODS)]
    TooManyPods,
    /// A list of pods that is still to be made, or does not say when it was made.
    #[error("a list of pods was made at some time since the machine was booted, until now")]
    ListOfNoTime,
    /// A pod that has been told to end, and has not as far as we know, cannot be rejected yet.
    #[error("pod {uid} still ends here; once it has ended it can be rejected")]
    StillEnds {
        /// The pod.
        uid: String,
    },
    /// A pod that runs cannot be rejected.
    #[error("pod {uid} already runs here; only a pod that has not started can be rejected")]
    AlreadyRuns {
        /// The pod.
        uid: String,
    },
}
