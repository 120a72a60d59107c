//! Why an input of the registry is refused, and what all pods may take together.

use pod::wire::WireError;

/// Most bytes that all pods may have together: what sync-loop takes, so only a broken one
/// meets it. Each pod is kept as its source gave it and as it is published, and all that is
/// published is there twice more while it is saved: with statuses and observations of 1,900
/// pods that is 137 MiB of memory, and this process may use 224. 110 pods of 10 KiB are 1 MiB.
pub(crate) const MAX_KEPT_BYTES: usize = ipc::limits::MAX_DESIRED_BYTES;

/// Most memory that all observations may take together, each as
/// [`kept_bytes`](crate::status::kept_bytes) tells: those of 2,000 pods with three containers
/// each take half of it. Statuses have their texts again.
pub(crate) const MAX_OBSERVED_BYTES: usize = 12 << 20;

/// Why an input is refused. The rest goes on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
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
