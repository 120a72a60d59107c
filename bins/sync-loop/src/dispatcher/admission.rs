//! Whether a pod may start on this node: the kubelet's checks in the kubelet's
//! order, with its reasons and messages. Pure: the node and the other pods are
//! given.
//!
//! What does not live here: when a pod is checked and when it is adopted
//! without a check (`handlers::additions`). Preemption for critical pods comes
//! with evictions.

mod node_affinity;
pub(crate) mod operating_system;
pub(crate) mod ports;
mod records;
mod resources;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use records::{AdmissionRecord, AdmissionRecords};
pub(crate) use resources::Allocatable;

use super::pod_facts::PodFacts;

/// The node, as far as admission looks at it.
#[derive(Clone, Debug)]
pub(crate) struct NodeDescription {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// Why a pod may not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The kubelet's word: `OutOfcpu`, `NodeAffinity` ...
    pub reason: String,
    /// The kubelet's sentence.
    pub message: String,
}

impl Rejection {
    /// A check of the scheduler's that this node repeats has failed.
    fn predicate(name: &str, description: &str) -> Rejection {
        Rejection {
            reason: name.to_owned(),
            message: format!("Predicate {name} failed: {description}"),
        }
    }
}

/// What a pod waits for before it can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The worker pool's first answer about the pods that run.
    WorkerPool,
    /// The container runtime, without which nobody knows what runs.
    Runtime,
    /// The capacity of the node.
    Capacity,
    /// Pods of an earlier life that may or may not still need their resources.
    OtherPods,
}

/// Whether a desired pod may run.
///
/// ```text
/// Pending --> Admitted | Remembered | Adopted | Rejected      Remembered --> Admitted
/// ```
///
/// - Pending -> Adopted: it runs already, or has a worker.
/// - Pending -> Rejected: it was rejected before, or fails a check now.
/// - Pending -> Remembered: it was admitted in an earlier life of this process.
/// - Pending -> Admitted: it passed all checks.
/// - Remembered -> Admitted: it is known by now whether it uses its resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionState {
    /// Not checked yet.
    Pending(Awaited),
    /// Passed.
    Admitted,
    /// Passed in an earlier life; whether it still runs is not known yet.
    Remembered {
        /// When it was taken up again, since the start of the process.
        since: Duration,
    },
    /// Ran already when this process learned of it; never checked.
    Adopted,
    /// Failed, for good.
    Rejected(Rejection),
}

impl Default for AdmissionState {
    fn default() -> Self {
        AdmissionState::Pending(Awaited::WorkerPool)
    }
}

impl AdmissionState {
    /// Whether the pod's worker may work for it.
    #[must_use]
    pub(crate) fn permits_running(&self) -> bool {
        matches!(
            self,
            AdmissionState::Admitted | AdmissionState::Remembered { .. } | AdmissionState::Adopted
        )
    }
}

/// Checks a pod against the node and the pods that use its resources.
///
/// # Errors
/// With the first check that fails, in the kubelet's order: operating system,
/// resources, node selector and affinity, node name, host ports.
pub(crate) fn admit(
    pod: &PodFacts,
    others: &[&PodFacts],
    node: &NodeDescription,
    allocatable: &Allocatable,
) -> Result<(), Rejection> {
    operating_system::check(pod)?;
    resources::check(pod, others, allocatable)?;
    node_affinity::check(pod, node)?;
    ports::check(pod, others)
}
