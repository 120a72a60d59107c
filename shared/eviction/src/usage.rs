//! [`PodUsage`]: what a pod uses of memory, disks and process ids.

use std::collections::{BTreeMap, BTreeSet};

use node_layout::TreeSize;

use crate::disks::Part;
use crate::signal::Resource;

/// What a container uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerUsage {
    /// Memory that is in use and cannot be dropped (working set), in bytes.
    pub memory: u64,
    /// What it has written in its own layer.
    pub layer: TreeSize,
    /// Its logs.
    pub logs: TreeSize,
}

/// What a pod uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    /// By container name.
    pub containers: BTreeMap<String, ContainerUsage>,
    /// Memory of its cgroup: with what its ended containers left in volumes in memory. 0
    /// where nobody knows.
    pub cgroup_memory: u64,
    /// Its `emptyDir` volumes on disk, by name.
    pub volumes: BTreeMap<String, TreeSize>,
    /// Those of them that lie too deep to be measured: they take more than is said here.
    pub too_deep: BTreeSet<String>,
    /// Other files in its directory: its hosts file, termination messages and `configMap`
    /// volumes.
    pub other: TreeSize,
    /// Its files take more than is said here: they could not all be measured.
    pub is_partial: bool,
    /// Processes of all its containers.
    pub processes: u64,
}

impl PodUsage {
    /// Its memory: of its cgroup, and of all its containers at least.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let of_containers = self.containers.values().map(|it| it.memory).sum();
        self.cgroup_memory.max(of_containers)
    }

    /// Bytes or inodes of these parts of it.
    #[must_use]
    pub fn on_disk(&self, parts: &[Part], resource: Resource) -> u64 {
        let mut sum = TreeSize::default();
        for part in parts {
            match part {
                Part::Layers => self.containers.values().for_each(|it| sum += it.layer),
                Part::Logs => self.containers.values().for_each(|it| sum += it.logs),
                Part::Directory => {
                    self.volumes.values().for_each(|it| sum += *it);
                    sum += self.other;
                }
            }
        }
        match resource {
            Resource::Inodes => sum.inodes,
            Resource::Memory | Resource::EphemeralStorage | Resource::Pids => sum.bytes,
        }
    }

    /// Bytes of all that it has on the node's disks.
    #[must_use]
    pub fn ephemeral_storage(&self) -> u64 {
        let parts = [Part::Layers, Part::Logs, Part::Directory];
        self.on_disk(&parts, Resource::EphemeralStorage)
    }
}
