//! When a node is short of memory, disk or process ids, and which pod has to go then: the
//! kubelet's eviction, as pure functions over observations.
//!
//! Who looks at the node, frees what no pod needs and ends the pod that was chosen is
//! pod-worker-pool (`eviction` there). What the configuration says is `node_config`'s
//! [`EvictionSettings`](node_config::EvictionSettings).

mod candidate;
mod condition;
mod disks;
mod local_storage;
mod message;
mod observation;
mod pressure;
mod ranking;
mod reservation;
mod signal;
#[cfg(test)]
mod testing;
mod threshold;
mod usage;

pub use candidate::{Candidate, ContainerFacts, EmptyDirFacts};
pub use condition::{NewPod, NodeCondition, admit};
pub use disks::{DiskLayout, Part};
pub use local_storage::exceeded_limit;
pub use message::low_on_resource;
pub use observation::{Observation, Observations};
pub use pressure::Pressure;
pub use ranking::rank;
pub use reservation::{allocatable, hard_reservations};
pub use signal::{Resource, Signal};
pub use threshold::{Amount, Threshold, ThresholdError, thresholds};
pub use usage::{ContainerUsage, PodUsage};
