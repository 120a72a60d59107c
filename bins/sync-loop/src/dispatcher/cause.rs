//! Why a pod is looked at: for people, and as the `cause` that travels with every
//! update to pod-worker-pool.

use std::fmt;

use ipc::limits::{MAX_CAUSE_BYTES, truncate};
use pod::PodSource;

/// Why a pod is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its source delivered it for the first time.
    Added(PodSource),
    /// Its source delivered another version.
    Updated(PodSource),
    /// Its source marked it for deletion.
    MarkedForDeletion(PodSource),
    /// Its source no longer has it.
    Removed(PodSource),
    /// Its status at the source changed.
    Reconciled(PodSource),
    /// pleg saw something happen.
    LifecycleEvent {
        /// What.
        event: &'static str,
        /// The container or sandbox.
        container_id: String,
    },
    /// The stream from pleg began anew; anything may have happened.
    LifecycleSnapshot,
    /// Nothing happened for the resync period.
    Resync,
    /// A probe's verdict.
    Probe {
        /// liveness, readiness, startup.
        probe: &'static str,
        /// The container.
        container: String,
        /// Success or failure.
        success: bool,
    },
    /// It may have the CPU and memory that it is to have, or waits for another reason.
    ResizeDecided,
    /// It ran already when this process came up.
    FoundRunning,
    /// The worker pool has restarted.
    PoolRestarted,
    /// The worker pool has no worker for it.
    WorkerMissing,
    /// The runtime answers again.
    RuntimeBack,
    /// The worker pool refused it earlier.
    RetryAfterRefusal,
    /// The version that was sent is not its source's any more.
    OtherVersion,
    /// The runtime has it, no source wants it.
    Orphaned,
    /// A worker has it, no source wants it.
    WorkerNotDesired,
    /// Its termination was asked for, its worker does not know of it.
    KillForgotten,
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Added(source) => write!(formatter, "added by source {source}"),
            Cause::Updated(source) => write!(formatter, "updated by source {source}"),
            Cause::MarkedForDeletion(source) => {
                write!(formatter, "marked for deletion in source {source}")
            }
            Cause::Removed(source) => write!(formatter, "removed from source {source}"),
            Cause::Reconciled(source) => write!(formatter, "status changed in source {source}"),
            Cause::LifecycleEvent {
                event,
                container_id,
            } => write!(formatter, "{event} {container_id}"),
            Cause::LifecycleSnapshot => formatter.write_str("new stream of lifecycle events"),
            Cause::Resync => formatter.write_str("periodic resync"),
            Cause::Probe {
                probe,
                container,
                success,
            } => {
                let result = if *success { "succeeded" } else { "failed" };
                write!(formatter, "{probe} probe of container {container} {result}")
            }
            Cause::ResizeDecided => formatter.write_str("its resize was decided"),
            Cause::FoundRunning => formatter.write_str("found running"),
            Cause::PoolRestarted => formatter.write_str("the worker pool restarted"),
            Cause::WorkerMissing => formatter.write_str("it has no worker"),
            Cause::RuntimeBack => formatter.write_str("the container runtime is back"),
            Cause::RetryAfterRefusal => formatter.write_str("trying again after a refusal"),
            Cause::OtherVersion => formatter.write_str("its source has another version"),
            Cause::Orphaned => formatter.write_str("runs but no source wants it"),
            Cause::WorkerNotDesired => formatter.write_str("has a worker but no source wants it"),
            Cause::KillForgotten => {
                formatter.write_str("its termination is not known to its worker")
            }
        }
    }
}

impl Cause {
    /// The text that is sent, within [`MAX_CAUSE_BYTES`].
    #[must_use]
    pub(crate) fn text(&self) -> String {
        let mut text = self.to_string();
        truncate(&mut text, MAX_CAUSE_BYTES);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_fits_its_field() {
        let cause = Cause::LifecycleEvent {
            event: "ContainerDied",
            container_id: "é".repeat(300),
        };
        assert!(cause.text().len() <= MAX_CAUSE_BYTES);
        assert!(cause.text().starts_with("ContainerDied é"));
    }
}
