//! cgroups of pods: how they are called, and making, finding and removing them.
//!
//! Only the levels above containers are ours: `kubepods`, one for each QoS class, one
//! for each pod. Those of containers belong to the runtime.

mod cgroupfs;
mod files;
mod held;
mod hierarchy;
mod limits;
mod memory;
pub(crate) mod pod_cgroups;
mod slices;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use node_config::{CgroupDriver, NodeConfig, SYSTEM_BUS};
use node_layout::CgroupNaming;
use pod::QosClass;
use pod::resources::PodCgroupResources;

use crate::error::IoContext;
use crate::error::NodeError;
use crate::shared::SystemPaths;

use limits::LimitSettings;
use slices::SystemdSlices;

pub(crate) use cgroupfs::Cgroupfs;
pub(crate) use hierarchy::Hierarchies;
pub(crate) use pod_cgroups::{AllPodsLimits, PodCgroups, Removal};

/// Where the kernel shows the node's mounts.
const MOUNT_TABLE: &str = "self/mountinfo";

/// Whether the node's cgroups are of version 2.
pub(crate) fn is_unified(proc_dir: &Path) -> bool {
    let mounts = std::fs::read(proc_dir.join(MOUNT_TABLE)).unwrap_or_default();
    matches!(
        Hierarchies::detect(&mounts),
        Ok(Hierarchies::Unified { .. })
    )
}

/// The driver that a node is configured to have.
pub(crate) fn driver(
    config: &NodeConfig,
    system: &SystemPaths,
) -> Result<Box<dyn PodCgroups>, NodeError> {
    if !config.cgroups_per_qos {
        return Ok(Box::new(NoCgroups));
    }
    let table = system.proc_dir.join(MOUNT_TABLE);
    let mounts = std::fs::read(&table).context("read", &table)?;
    let hierarchies = Hierarchies::detect(&mounts)
        .map_err(|error| NodeError::refused(&table, error.to_string()))?;
    let settings = LimitSettings::of(config);
    if matches!(hierarchies, Hierarchies::Legacy { .. }) {
        if config.memory_qos.is_some() {
            tracing::warn!("MemoryQoS has no effect: cgroups are of version 1");
        }
        if config.single_process_oom_kill == Some(false) {
            tracing::warn!("singleProcessOOMKill: false has no effect: cgroups are of version 1");
        }
    }
    let cgroups = Cgroupfs::new(CgroupNaming::new(config), hierarchies, settings, system);
    Ok(Box::new(match config.cgroup_driver {
        CgroupDriver::Cgroupfs => cgroups,
        CgroupDriver::Systemd => {
            cgroups.with_slices(Arc::new(SystemdSlices::at(Path::new(SYSTEM_BUS))))
        }
    }))
}

/// A node that is configured to have no cgroups for pods.
struct NoCgroups;

impl PodCgroups for NoCgroups {
    fn ensure_classes(&self, _all_pods: &AllPodsLimits) -> Result<(), NodeError> {
        Ok(())
    }

    fn ensure_pod(
        &self,
        _pod_uid: &str,
        _qos: QosClass,
        _resources: &PodCgroupResources,
    ) -> Result<(), NodeError> {
        Ok(())
    }

    fn adopt_pod(&self, _pod_uid: &str, _resources: &PodCgroupResources) -> Result<(), NodeError> {
        Ok(())
    }

    fn remove_pod(&self, _pod_uid: &str) -> Result<Removal, NodeError> {
        Ok(Removal::Done)
    }

    fn pods(&self) -> Result<BTreeSet<String>, NodeError> {
        Ok(BTreeSet::new())
    }

    fn working_set(&self, _pod_uid: &str) -> Result<Option<u64>, NodeError> {
        Ok(None)
    }
}
