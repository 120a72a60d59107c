//! [`Signal`]: what of a node is watched, by the names of a `KubeletConfiguration`, and
//! [`Resource`]: what a pod uses up of it.

use std::fmt;

use crate::condition::NodeCondition;

/// What of a node is watched. Their order is that in which shortages are dealt with:
/// memory first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Memory that nobody uses.
    MemoryAvailable,
    /// Bytes free on the disk with the pods' directories.
    NodefsAvailable,
    /// Inodes free there.
    NodefsInodesFree,
    /// Bytes free on the disk with the images.
    ImagefsAvailable,
    /// Inodes free there.
    ImagefsInodesFree,
    /// Bytes free on the disk with the containers' own layers.
    ContainerfsAvailable,
    /// Inodes free there.
    ContainerfsInodesFree,
    /// Process ids that are free.
    PidAvailable,
}

/// What a pod uses up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Memory.
    Memory,
    /// Bytes on the node's disks.
    EphemeralStorage,
    /// Inodes on the node's disks.
    Inodes,
    /// Process ids.
    Pids,
}

impl Signal {
    /// All of them.
    pub const ALL: [Signal; 8] = [
        Signal::MemoryAvailable,
        Signal::NodefsAvailable,
        Signal::NodefsInodesFree,
        Signal::ImagefsAvailable,
        Signal::ImagefsInodesFree,
        Signal::ContainerfsAvailable,
        Signal::ContainerfsInodesFree,
        Signal::PidAvailable,
    ];

    /// Its name in a configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Signal::MemoryAvailable => "memory.available",
            Signal::NodefsAvailable => "nodefs.available",
            Signal::NodefsInodesFree => "nodefs.inodesFree",
            Signal::ImagefsAvailable => "imagefs.available",
            Signal::ImagefsInodesFree => "imagefs.inodesFree",
            Signal::ContainerfsAvailable => "containerfs.available",
            Signal::ContainerfsInodesFree => "containerfs.inodesFree",
            Signal::PidAvailable => "pid.available",
        }
    }

    /// The signal of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// What the node is said to suffer from when too little is left.
    #[must_use]
    pub fn condition(self) -> NodeCondition {
        match self.resource() {
            Resource::Memory => NodeCondition::MemoryPressure,
            Resource::EphemeralStorage | Resource::Inodes => NodeCondition::DiskPressure,
            Resource::Pids => NodeCondition::PidPressure,
        }
    }

    /// What has to be freed then.
    #[must_use]
    pub fn resource(self) -> Resource {
        match self {
            Signal::MemoryAvailable => Resource::Memory,
            Signal::NodefsAvailable | Signal::ImagefsAvailable | Signal::ContainerfsAvailable => {
                Resource::EphemeralStorage
            }
            Signal::NodefsInodesFree
            | Signal::ImagefsInodesFree
            | Signal::ContainerfsInodesFree => Resource::Inodes,
            Signal::PidAvailable => Resource::Pids,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Resource::Memory => "memory",
            Resource::EphemeralStorage => "ephemeral-storage",
            Resource::Inodes => "inodes",
            Resource::Pids => "pids",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_is_found_by_its_name() {
        for signal in Signal::ALL {
            assert_eq!(Signal::named(signal.name()), Some(signal));
        }
        for unknown in ["", "memory", "nodefs.inodes", "allocatableMemory.available"] {
            assert_eq!(Signal::named(unknown), None, "{unknown}");
        }
    }
}
