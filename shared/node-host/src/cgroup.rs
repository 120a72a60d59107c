//! cgroups of pods: how they are called, and making, finding and removing them.
//!
//! Only the levels above containers are ours: `kubepods`, one for each QoS class, one
//! for each pod. Those of containers belong to the runtime.

mod cgroupfs;
mod held;
mod hierarchy;
mod limits;
pub(crate) mod pod_cgroups;

use std::path::Path;

use node_config::{CgroupDriver, NodeConfig};
use node_layout::CgroupNaming;
use pod::QosClass;
use pod::resources::PodCgroupResources;

use crate::error::IoContext;
use crate::error::NodeError;
use crate::host::FoundCgroup;
use crate::shared::SystemPaths;

use limits::LimitSettings;

pub(crate) use cgroupfs::Cgroupfs;
pub(crate) use hierarchy::Hierarchies;
pub(crate) use pod_cgroups::{AllPodsLimits, PodCgroups, Removal};

/// Where the kernel shows the node's mounts.
const MOUNT_TABLE: &str = "self/mountinfo";

/// Whether the node's cgroups are of version 2.
pub(crate) fn is_unified(proc_dir: &Path) -> bool {
    let mounts = std::fs::read_to_string(proc_dir.join(MOUNT_TABLE)).unwrap_or_default();
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
    match config.cgroup_driver {
        CgroupDriver::Cgroupfs => {
            let table = system.proc_dir.join(MOUNT_TABLE);
            let mounts = std::fs::read_to_string(&table).context("read", &table)?;
            let hierarchies = Hierarchies::detect(&mounts)
                .map_err(|error| NodeError::refused(&table, error.to_string()))?;
            let period = config.cpu_cfs_quota_period.as_micros();
            let settings = LimitSettings {
                cpu_quota: config.cpu_cfs_quota,
                cpu_period_micros: u64::try_from(period).unwrap_or(u64::MAX),
                pids: u64::try_from(config.pod_pids_limit)
                    .ok()
                    .filter(|limit| *limit > 0),
                memory_qos: config.memory_qos.is_some(),
            };
            let is_unified = matches!(hierarchies, Hierarchies::Unified { .. });
            if settings.memory_qos && !is_unified {
                tracing::warn!("MemoryQoS has no effect: cgroups are of version 1");
            }
            if config.single_process_oom_kill == Some(false) && !is_unified {
                tracing::warn!(
                    "singleProcessOOMKill: false has no effect: cgroups are of version 1"
                );
            }
            let naming = CgroupNaming::new(config);
            Ok(Box::new(Cgroupfs::new(
                naming,
                hierarchies,
                settings,
                system,
            )))
        }
        CgroupDriver::Systemd => Err(NodeError::refused(
            "cgroupDriver",
            "systemd is not supported yet, use cgroupfs",
        )),
    }
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

    fn pods(&self) -> Result<Vec<FoundCgroup>, NodeError> {
        Ok(Vec::new())
    }
}
