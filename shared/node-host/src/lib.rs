//! What pod-worker-pool does to the machine: mounts, cgroups, directories and logs of
//! pods. [`NodeHost`] is the seam; [`LinuxNode`] is behind it on a real node, and
//! `simulated-node` in tests.
//!
//! Where things are and how they are called is `node-layout`.

mod blocking;
mod cgroup;
mod counters;
mod descriptor;
mod directory;
mod error;
mod gauges;
mod host;
mod huge_pages;
mod id_ranges;
mod linux;
mod machine;
mod opened_log;
mod pod_files;
mod pod_logs;
mod rotated_logs;
mod shared;
mod tree_size;
mod volume;

pub use error::NodeError;
pub use host::{
    Cgroups, ContainerFiles, Gauges, LogChange, LogFile, LogSize, LogTarget, Logs, Machine,
    NodeHost, PodDirectories, Volumes,
};
pub use linux::LinuxNode;

#[cfg(test)]
mod test_rules;
