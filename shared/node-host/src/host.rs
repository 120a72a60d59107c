//! The seam to the machine: everything that pod-worker-pool does to files, mounts and
//! cgroups of its node goes through these traits, so that a whole node can be simulated.
//!
//! The operations are those of a pod's life, not system calls: each is idempotent,
//! checks the names that it is given, and may be killed half-way and called again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use cri_requests::ResolvConf;
use node_layout::{
    DiskUsage, FilesystemUsage, IdRange, MachineCounters, MachineIdentity, MachineUsage,
    NodeCapacity, PodFilesUsage,
};
use node_policy::HostPathRules;
use pod::resources::PodCgroupResources;
use pod::{Pod, PodIdentity, QosClass};
use pod_volumes::{MountedVolume, SubPath, Volume};

use crate::error::NodeError;

/// Where a container that is about to be created writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerFiles {
    /// A fresh, empty file for its termination message.
    pub termination_log: PathBuf,
}

/// The log of one instance of a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogTarget {
    /// The pod.
    pub pod: PodIdentity,
    /// The container.
    pub container: String,
    /// How often it was started before the instance whose log this is.
    pub attempt: u32,
}

/// A step of a log's rotation. Rotated files are beside the log, called as it with a dot
/// and what is given here: `20261120-101500`, or `20261120-101500.gz`.
///
/// Each may be cut short by a kill and made again, and is fine when it was made before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogChange {
    /// Removes a file.
    Remove(String),
    /// Puts the compressed form of a file, its name with `.gz` added, in its place. While it
    /// is being compressed, that of its name with `.tmp` added, other steps can be made;
    /// a file that is removed meanwhile stays so.
    Compress(String),
    /// Renames the log to this. The runtime goes on writing there until it is told to
    /// open the log anew. Refused if there is a file of this name.
    SetAside(String),
    /// Renames this back to the log, unless there is a log again.
    PutBack(String),
}

/// One opened log file. It stays the same file while others rotate it.
#[async_trait]
pub trait LogFile: Send + Sync {
    /// Bytes in it now.
    async fn size(&self) -> Result<u64, NodeError>;

    /// At most `length` bytes of what the container wrote from `offset` on; fewer at its
    /// end.
    async fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, NodeError>;

    /// Tells this file from one that took its place under its name.
    fn identity(&self) -> (u64, u64);
}

/// Bytes of a log now; `None`: there is no such log.
pub type LogSize = Result<Option<u64>, NodeError>;

/// What the machine has and how it is configured.
#[async_trait]
pub trait Machine: Send + Sync {
    /// What the machine has.
    async fn capacity(&self) -> Result<NodeCapacity, NodeError>;

    /// Which machine it is.
    async fn identity(&self) -> Result<MachineIdentity, NodeError>;

    /// The node's resolv.conf as it is now; `None` when it is configured to have none.
    async fn resolv_conf(&self) -> Result<Option<ResolvConf>, NodeError>;

    /// The node's own hosts file, for pods on its network.
    async fn hosts_file(&self) -> Result<String, NodeError>;

    /// How full the file system is that `path` is on.
    async fn disk_usage(&self, path: &Path) -> Result<DiskUsage, NodeError>;
}

/// How much is used, of the machine and by pods.
#[async_trait]
pub trait Gauges: Send + Sync {
    /// How much of the machine's memory and processes is used.
    async fn machine_usage(&self) -> Result<MachineUsage, NodeError>;

    /// What the machine has used since it was booted.
    async fn machine_counters(&self) -> Result<MachineCounters, NodeError>;

    /// How much is used of the file system that `path` is on; `None`: that of the pods'
    /// directories.
    async fn filesystem_usage(&self, path: Option<&Path>) -> Result<FilesystemUsage, NodeError>;

    /// How much a pod's logs, its hosts file, its termination messages, its `configMap`
    /// volumes and these of its `emptyDir` volumes take. Follows no link and enters no mount;
    /// what is not there takes nothing. Of very many files the answer says how much they take
    /// at least, and that it is partial: it takes no longer than 20 s.
    async fn pod_files_usage(
        &self,
        pod: &PodIdentity,
        empty_dirs: &[String],
    ) -> Result<PodFilesUsage, NodeError>;

    /// The memory that a pod has in use, with what its ended containers left in volumes in
    /// memory; `None` where the pod has no cgroup.
    async fn pod_memory(&self, pod_uid: &str) -> Result<Option<u64>, NodeError>;
}

/// cgroups of pods.
#[async_trait]
pub trait Cgroups: Send + Sync {
    /// Makes the cgroups of all pods and of the QoS classes.
    async fn ensure_qos_cgroups(&self) -> Result<(), NodeError>;

    /// Makes a pod's cgroup, or gives one that exists these limits.
    async fn ensure_pod_cgroup(
        &self,
        pod_uid: &str,
        qos: QosClass,
        resources: PodCgroupResources,
    ) -> Result<(), NodeError>;

    /// Tells what a pod requests whose cgroup an earlier process has made: its QoS class
    /// gets its CPU shares by that. Changes nothing of the pod's own.
    async fn adopt_pod_cgroup(
        &self,
        pod_uid: &str,
        resources: PodCgroupResources,
    ) -> Result<(), NodeError>;

    /// Removes a pod's cgroup wherever it is, and kills what is left in it.
    async fn remove_pod_cgroup(&self, pod_uid: &str) -> Result<(), NodeError>;

    /// The pods that have cgroups.
    async fn pod_cgroups(&self) -> Result<BTreeSet<String>, NodeError>;
}

/// Directories of pods, and the files in them that are not volumes.
#[async_trait]
pub trait PodDirectories: Send + Sync {
    /// Makes a pod's directories, that of its logs included.
    async fn make_pod_directories(&self, pod: &PodIdentity) -> Result<(), NodeError>;

    /// Removes a pod's directory with all that is in it, volumes first.
    async fn remove_pod_directory(&self, pod_uid: &str) -> Result<(), NodeError>;

    /// The pods that have directories.
    async fn pod_directories(&self) -> Result<Vec<String>, NodeError>;

    /// Writes a pod's hosts file and says where it is.
    async fn write_hosts_file(&self, pod_uid: &str, text: &str) -> Result<PathBuf, NodeError>;

    /// The ids of a pod with a user namespace of its own: those that its directory says, or
    /// else ones that no other pod has, which the directory says from then on. Pods that
    /// ask are answered one after the other. `avoided` are ids that no pod may have.
    async fn pod_id_range(&self, pod_uid: &str, avoided: &[u32]) -> Result<IdRange, NodeError>;

    /// Makes what a container writes to: its log directory and the file for its
    /// termination message, called by `start_id`, which is new for each start.
    async fn make_container_files(
        &self,
        pod: &PodIdentity,
        container: &str,
        start_id: u32,
    ) -> Result<ContainerFiles, NodeError>;

    /// At most `limit` bytes of what a container that has ended left as its termination
    /// message; empty when there is none. More than that is not kept. The file must be one
    /// that was made for the pod.
    async fn read_termination_log(
        &self,
        pod_uid: &str,
        file: &Path,
        limit: usize,
    ) -> Result<Vec<u8>, NodeError>;
}

/// Volumes of pods. Which there are to be is said by `pod_volumes`.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// Makes these volumes of a pod, or finds them made, and says where they are: all of
    /// them below the pod's directory. Paths of the node are opened as `host_paths` allows.
    async fn make_volumes(
        &self,
        identity: &PodIdentity,
        pod: &Pod,
        volumes: &[Volume],
        host_paths: &HostPathRules,
    ) -> Result<BTreeMap<String, MountedVolume>, NodeError>;

    /// Binds a part of a volume for a container that is about to be made, or finds it
    /// bound, and says where. No link that is in the volume leads out of it.
    async fn bind_sub_path(
        &self,
        identity: &PodIdentity,
        container: &str,
        sub_path: &SubPath,
    ) -> Result<PathBuf, NodeError>;

    /// What is in a file of a volume; `None` when there is none. It is below the volume,
    /// whatever links are in that, a regular file, and has at most `limit` bytes.
    async fn read_volume_file(
        &self,
        identity: &PodIdentity,
        volume_path: &Path,
        path: &str,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, NodeError>;

    /// Takes down the volumes of a pod of which nothing runs: unmounts and removes what is
    /// in them. Its hosts file goes too.
    async fn tear_down_volumes(&self, pod_uid: &str) -> Result<(), NodeError>;
}

/// Logs of containers.
#[async_trait]
pub trait Logs: Send + Sync {
    /// Opens a container's log file of one attempt; `None` when there is none.
    async fn open_log(
        &self,
        pod: &PodIdentity,
        container: &str,
        attempt: u32,
    ) -> Result<Option<Box<dyn LogFile>>, NodeError>;

    /// How big each of these logs is, in their order.
    async fn log_sizes(&self, logs: &[LogTarget]) -> Result<Vec<LogSize>, NodeError>;

    /// The files beside a log: what follows its name and a dot in theirs. In no order.
    async fn rotated_logs(&self, log: &LogTarget) -> Result<Vec<String>, NodeError>;

    /// Makes a step of a log's rotation.
    async fn change_log(&self, log: &LogTarget, change: LogChange) -> Result<(), NodeError>;

    /// The highest attempt that a container has a log of.
    async fn last_log_attempt(
        &self,
        pod: &PodIdentity,
        container: &str,
    ) -> Result<Option<u32>, NodeError>;

    /// Makes the legacy link to a container's log.
    async fn link_log(
        &self,
        pod: &PodIdentity,
        container: &str,
        container_id: &str,
        attempt: u32,
    ) -> Result<(), NodeError>;

    /// Removes the logs of one attempt of a container, rotated ones included, the legacy
    /// link, and the file for its termination message.
    async fn remove_log(
        &self,
        pod: &PodIdentity,
        container: &str,
        container_id: &str,
        attempt: u32,
    ) -> Result<(), NodeError>;

    /// Removes a pod's log directory.
    async fn remove_pod_logs(&self, pod: &PodIdentity) -> Result<(), NodeError>;

    /// The pods that have log directories.
    async fn pod_logs(&self) -> Result<Vec<PodIdentity>, NodeError>;

    /// Removes legacy links whose log is gone.
    async fn prune_log_links(&self) -> Result<(), NodeError>;
}

/// All that pod-worker-pool does to its node.
pub trait NodeHost: Machine + Gauges + Cgroups + PodDirectories + Volumes + Logs {}

impl<Host: Machine + Gauges + Cgroups + PodDirectories + Volumes + Logs> NodeHost for Host {}
