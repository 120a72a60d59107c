//! How a node is laid out as a kubelet lays it out: where files of pods are, how their
//! cgroups are called, what of the machine is for pods, and how the kernel writes paths of
//! mounts. Pure: nothing here reads the machine, which is what `node-host` does.

mod capacity;
mod cgroups;
mod id_ranges;
mod mount_path;
pub mod paths;
mod usage;

pub use capacity::{DiskUsage, MachineIdentity, NodeCapacity};

pub use cgroups::CgroupNaming;
pub use id_ranges::{IdRange, IdRangeChoice, IdRangeError, choose_id_range, id_range_file};
pub use mount_path::mount_path;
pub use usage::{FilesystemUsage, MachineCounters, MachineUsage, PodFilesUsage, TreeSize};
