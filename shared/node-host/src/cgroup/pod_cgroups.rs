//! The seam between pods' cgroups and who makes them.

use std::collections::BTreeSet;

use pod::QosClass;
use pod::resources::PodCgroupResources;

use crate::error::NodeError;

/// How far a removal got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It is gone.
    Done,
    /// Processes in it are still ending: call again.
    Busy,
}

/// What all pods together may use. What is absent is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AllPodsLimits {
    pub(crate) cpu_shares: u64,
    pub(crate) memory_bytes: Option<i64>,
    pub(crate) pids: Option<u64>,
}

/// The seam between pods' cgroups and who makes them, if anybody does. All calls block and
/// are idempotent.
pub(crate) trait PodCgroups: Send + Sync {
    /// Makes the cgroups of all pods, with these limits, and of the classes: the
    /// burstable ones together have the shares of what their pods request, best effort the fewest.
    fn ensure_classes(&self, all_pods: &AllPodsLimits) -> Result<(), NodeError>;

    /// Makes a pod's cgroup, or gives one that exists these limits; its class follows.
    fn ensure_pod(
        &self,
        pod_uid: &str,
        qos: QosClass,
        resources: &PodCgroupResources,
    ) -> Result<(), NodeError>;

    /// Tells what a pod requests whose cgroup is there already; its class follows.
    fn adopt_pod(&self, pod_uid: &str, resources: &PodCgroupResources) -> Result<(), NodeError>;

    /// Kills what is left in a pod's cgroups, of whatever class, and removes them; the
    /// class follows.
    fn remove_pod(&self, pod_uid: &str) -> Result<Removal, NodeError>;

    /// The pods that have cgroups.
    fn pods(&self) -> Result<BTreeSet<String>, NodeError>;

    /// The memory that a pod has in use; `None` if it has no cgroup.
    fn working_set(&self, pod_uid: &str) -> Result<Option<u64>, NodeError>;
}
