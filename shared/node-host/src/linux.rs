//! The real node. Everything that touches files runs on threads for blocking work: a
//! file system that hangs holds up the pod that is on it and nobody else.
//!
//! What is done to the volumes of one pod is done one after the other, even when who
//! asked for the first thing waits for it no longer: they are not unmounted while they
//! are still being set up. So is what is done to the pod beside its volumes, which
//! those that hang do not hold up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use cri_requests::ResolvConf;
use node_config::NodeConfig;
use node_layout::{
    DiskUsage, FilesystemUsage, IdRange, MachineCounters, MachineIdentity, MachineUsage,
    NodeCapacity, PodFilesUsage,
};
use node_policy::HostPathRules;
use pod::identity::{check_container_name, check_uid};
use pod::resources::{MEMORY, PodCgroupResources};
use pod::{Pod, PodIdentity, QosClass};
use pod_volumes::{MountedVolume, SubPath, Volume};

use crate::blocking::joined;
use crate::cgroup::{self, Removal};
use crate::error::NodeError;
use crate::host::{
    Cgroups, ContainerFiles, Gauges, LogChange, LogFile, LogSize, LogTarget, Logs, Machine,
    PodDirectories, Volumes,
};
use crate::shared::{Shared, SystemPaths};
use crate::{counters, gauges, id_ranges, machine, pod_files, pod_logs, rotated_logs};

/// Waits between attempts to remove a pod's cgroup: what was killed takes a moment to
/// end. About half a second in all; then the next housekeeping tries again.
const CGROUP_REMOVAL_WAITS: [Duration; 7] = [
    Duration::from_millis(4),
    Duration::from_millis(8),
    Duration::from_millis(16),
    Duration::from_millis(32),
    Duration::from_millis(64),
    Duration::from_millis(128),
    Duration::from_millis(256),
];

/// The turn of garbage collection's looks at the whole node.
const COLLECTION: &str = "node/collection";

/// The turn of looks at what the machine has.
const CAPACITY: &str = "node/capacity";

/// The turn of adoptions of cgroups.
const ADOPTIONS: &str = "node/adoptions";

/// The turn of choices of ids for pods: one sees what the one before it has written.
const ID_RANGES: &str = "node/id-ranges";

/// The turn of looks at the sizes of logs.
const LOG_SIZES: &str = "node/log-sizes";

/// The turn of what is done to a pod's logs. Not the pod's own: its volumes may hang
/// where its logs do not.
fn logs_key(pod: &PodIdentity) -> String {
    format!("logs/{}", pod.uid())
}

/// The turn of the compressions beside one log.
fn compression_key(log: &LogTarget) -> String {
    let LogTarget {
        pod,
        container,
        attempt,
    } = log;
    format!("compression/{}/{container}/{attempt}", pod.uid())
}

/// The node that this process runs on.
pub struct LinuxNode {
    shared: Arc<Shared>,
    /// One for each pod whose volumes something is being done to, by its UID, and one
    /// for each of the things beside them, whose keys contain a slash as no UID does.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl std::fmt::Debug for LinuxNode {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LinuxNode").finish_non_exhaustive()
    }
}

impl LinuxNode {
    /// The node as it is configured. Fails when it has no usable cgroups.
    pub fn new(config: &NodeConfig) -> Result<LinuxNode, NodeError> {
        LinuxNode::with_system(config, SystemPaths::default())
    }

    pub(super) fn with_system(
        config: &NodeConfig,
        system: SystemPaths,
    ) -> Result<LinuxNode, NodeError> {
        let cgroups = cgroup::driver(config, &system)?;
        let shared = Shared {
            root_dir: config.directories.root_dir.clone(),
            pod_logs_dir: config.directories.pod_logs(),
            log_links_dir: config.directories.container_log_links(),
            unified_cgroups: cgroup::is_unified(&system.proc_dir),
            system,
            resolv_conf: config.resolv_conf.clone(),
            config: config.clone(),
            cgroups,
        };
        Ok(LinuxNode {
            shared: Arc::new(shared),
            turns: Mutex::default(),
        })
    }

    /// Does something on a thread for blocking work.
    async fn run<Value: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> Result<Value, NodeError> + Send + 'static,
    ) -> Result<Value, NodeError> {
        let shared = Arc::clone(&self.shared);
        joined(tokio::task::spawn_blocking(move || work(&shared)).await)
    }

    /// Does something to a pod's volumes, after whatever else is being done to them.
    async fn run_on_volumes<Value: Send + 'static>(
        &self,
        pod_uid: &str,
        work: impl FnOnce(&Shared) -> Result<Value, NodeError> + Send + 'static,
    ) -> Result<Value, NodeError> {
        check_uid(pod_uid)?;
        self.run_in_turn(pod_uid, work).await
    }

    /// Does something to a pod that volumes which hang must not hold up: to its cgroup, or
    /// to its files beside them.
    async fn run_beside_volumes<Value: Send + 'static>(
        &self,
        pod_uid: &str,
        work: impl FnOnce(&Shared) -> Result<Value, NodeError> + Send + 'static,
    ) -> Result<Value, NodeError> {
        check_uid(pod_uid)?;
        let key = format!("beside-volumes/{pod_uid}");
        self.run_in_turn(&key, work).await
    }

    /// Does something after whatever else is being done in the same turn: what is
    /// asked for again and again, while the file system hangs, takes one thread.
    async fn run_in_turn<Value: Send + 'static>(
        &self,
        key: &str,
        work: impl FnOnce(&Shared) -> Result<Value, NodeError> + Send + 'static,
    ) -> Result<Value, NodeError> {
        let turn = self.turn(key).lock_owned().await;
        let shared = Arc::clone(&self.shared);
        // The turn goes with the work: it ends when that does, not when we are dropped.
        let work = move || {
            let outcome = work(&shared);
            drop(turn);
            outcome
        };
        joined(tokio::task::spawn_blocking(work).await)
    }

    fn turn(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(key.to_owned()).or_default())
    }
}

#[async_trait]
impl Machine for LinuxNode {
    async fn capacity(&self) -> Result<NodeCapacity, NodeError> {
        self.run_in_turn(CAPACITY, machine::capacity).await
    }

    async fn identity(&self) -> Result<MachineIdentity, NodeError> {
        self.run(|node| Ok(machine::identity(node))).await
    }

    async fn resolv_conf(&self) -> Result<Option<ResolvConf>, NodeError> {
        self.run(machine::resolv_conf).await
    }

    async fn hosts_file(&self) -> Result<String, NodeError> {
        self.run(machine::hosts_file).await
    }

    async fn disk_usage(&self, path: &Path) -> Result<DiskUsage, NodeError> {
        let path = path.to_owned();
        let key = format!("disk/{}", path.display());
        self.run_in_turn(&key, move |_| machine::disk_usage(&path))
            .await
    }
}

#[async_trait]
impl Gauges for LinuxNode {
    async fn machine_usage(&self) -> Result<MachineUsage, NodeError> {
        self.run(|node| gauges::machine(&node.system)).await
    }

    async fn machine_counters(&self) -> Result<MachineCounters, NodeError> {
        self.run(|node| counters::of_machine(&node.system)).await
    }

    async fn filesystem_usage(&self, path: Option<&Path>) -> Result<FilesystemUsage, NodeError> {
        let path = path.unwrap_or(&self.shared.root_dir).to_owned();
        let key = format!("filesystem/{}", path.display());
        self.run_in_turn(&key, move |_| gauges::filesystem(&path))
            .await
    }

    async fn pod_files_usage(
        &self,
        pod: &PodIdentity,
        empty_dirs: &[String],
    ) -> Result<PodFilesUsage, NodeError> {
        let (identity, empty_dirs) = (pod.clone(), empty_dirs.to_vec());
        // In no turn of the pod: measuring many files must not hold up its end.
        let key = format!("usage/{}", pod.uid());
        self.run_in_turn(&key, move |node| {
            gauges::pod_files(node, &identity, &empty_dirs)
        })
        .await
    }

    async fn pod_memory(&self, pod_uid: &str) -> Result<Option<u64>, NodeError> {
        let uid = pod_uid.to_owned();
        self.run(move |node| node.cgroups.working_set(&uid)).await
    }
}

#[async_trait]
impl Cgroups for LinuxNode {
    async fn ensure_qos_cgroups(&self) -> Result<(), NodeError> {
        self.run(|node| {
            let all_pods = machine::limits_of_all_pods(node)?;
            node.cgroups.ensure_classes(&all_pods)
        })
        .await
    }

    async fn ensure_pod_cgroup(
        &self,
        pod_uid: &str,
        qos: QosClass,
        resources: PodCgroupResources,
    ) -> Result<(), NodeError> {
        let uid = pod_uid.to_owned();
        self.run_beside_volumes(pod_uid, move |node| {
            node.cgroups.ensure_pod(&uid, qos, &resources)
        })
        .await
    }

    async fn adopt_pod_cgroup(
        &self,
        pod_uid: &str,
        resources: PodCgroupResources,
    ) -> Result<(), NodeError> {
        let uid = pod_uid.to_owned();
        // Not in the turn of its volumes, which may hang.
        self.run_in_turn(ADOPTIONS, move |node| {
            node.cgroups.adopt_pod(&uid, &resources)
        })
        .await
    }

    async fn remove_pod_cgroup(&self, pod_uid: &str) -> Result<(), NodeError> {
        let mut waits = CGROUP_REMOVAL_WAITS.iter();
        loop {
            let uid = pod_uid.to_owned();
            let removal = self
                .run_beside_volumes(pod_uid, move |node| node.cgroups.remove_pod(&uid))
                .await?;
            match (removal, waits.next()) {
                (Removal::Done, _) => return Ok(()),
                (Removal::Busy, Some(wait)) => tokio::time::sleep(*wait).await,
                (Removal::Busy, None) => {
                    let reason = "processes in the pod's cgroup are still ending";
                    return Err(NodeError::refused(pod_uid, reason));
                }
            }
        }
    }

    async fn pod_cgroups(&self) -> Result<BTreeSet<String>, NodeError> {
        self.run_in_turn(COLLECTION, |node| node.cgroups.pods())
            .await
    }
}

#[async_trait]
impl PodDirectories for LinuxNode {
    async fn make_pod_directories(&self, pod: &PodIdentity) -> Result<(), NodeError> {
        let identity = pod.clone();
        self.run_beside_volumes(pod.uid(), move |node| {
            pod_files::make(node, identity.uid())?;
            pod_logs::make(node, &identity).map(drop)
        })
        .await
    }

    async fn remove_pod_directory(&self, pod_uid: &str) -> Result<(), NodeError> {
        check_uid(pod_uid)?;
        let uid = pod_uid.to_owned();
        // Volumes lie in it.
        let volumes = self.turn(pod_uid).lock_owned().await;
        self.run_beside_volumes(pod_uid, move |node| {
            let removed = pod_files::remove(node, &uid);
            drop(volumes);
            removed
        })
        .await
    }

    async fn pod_directories(&self) -> Result<Vec<String>, NodeError> {
        self.run_in_turn(COLLECTION, pod_files::list).await
    }

    async fn write_hosts_file(&self, pod_uid: &str, text: &str) -> Result<PathBuf, NodeError> {
        let (uid, text) = (pod_uid.to_owned(), text.to_owned());
        self.run_beside_volumes(pod_uid, move |node| {
            pod_files::write_hosts_file(node, &uid, &text)
        })
        .await
    }

    async fn pod_id_range(&self, pod_uid: &str, avoided: &[u32]) -> Result<IdRange, NodeError> {
        check_uid(pod_uid)?;
        let (uid, avoided) = (pod_uid.to_owned(), avoided.to_vec());
        self.run_in_turn(ID_RANGES, move |node| {
            id_ranges::of_pod(node, &uid, &avoided)
        })
        .await
    }

    async fn make_container_files(
        &self,
        pod: &PodIdentity,
        container: &str,
        start_id: u32,
    ) -> Result<ContainerFiles, NodeError> {
        check_container_name(container)?;
        let (identity, container) = (pod.clone(), container.to_owned());
        self.run_beside_volumes(pod.uid(), move |node| {
            pod_logs::make(node, &identity)?.make_child(&container, pod_logs::MODE)?;
            let uid = identity.uid();
            let termination_log = pod_files::make_termination_log(node, uid, &container, start_id)?;
            Ok(ContainerFiles { termination_log })
        })
        .await
    }

    async fn read_termination_log(
        &self,
        pod_uid: &str,
        file: &Path,
        limit: usize,
    ) -> Result<Vec<u8>, NodeError> {
        let (uid, file) = (pod_uid.to_owned(), file.to_owned());
        self.run_beside_volumes(pod_uid, move |node| {
            pod_files::read_termination_log(node, &uid, &file, limit)
        })
        .await
    }
}

#[async_trait]
impl Volumes for LinuxNode {
    async fn make_volumes(
        &self,
        identity: &PodIdentity,
        pod: &Pod,
        volumes: &[Volume],
        host_paths: &HostPathRules,
    ) -> Result<BTreeMap<String, MountedVolume>, NodeError> {
        let (uid, pod) = (identity.uid().to_owned(), pod.clone());
        let (volumes, host_paths) = (volumes.to_vec(), host_paths.clone());
        self.run_on_volumes(identity.uid(), move |node| {
            let memory = u64::try_from(machine::allocatable(node, MEMORY)?.value()).unwrap_or(0);
            pod_files::make_volumes(node, &uid, (&pod, &volumes), memory, &host_paths)
        })
        .await
    }

    async fn bind_sub_path(
        &self,
        identity: &PodIdentity,
        container: &str,
        sub_path: &SubPath,
    ) -> Result<PathBuf, NodeError> {
        check_container_name(container)?;
        let (uid, container) = (identity.uid().to_owned(), container.to_owned());
        let sub_path = sub_path.clone();
        self.run_on_volumes(identity.uid(), move |node| {
            pod_files::bind_sub_path(node, &uid, &container, &sub_path)
        })
        .await
    }

    async fn read_volume_file(
        &self,
        identity: &PodIdentity,
        volume_path: &Path,
        path: &str,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, NodeError> {
        let (uid, path) = (identity.uid().to_owned(), path.to_owned());
        let volume_path = volume_path.to_owned();
        self.run_on_volumes(identity.uid(), move |node| {
            pod_files::read_volume_file(node, &uid, (&volume_path, &path), limit)
        })
        .await
    }

    async fn tear_down_volumes(&self, pod_uid: &str) -> Result<(), NodeError> {
        let uid = pod_uid.to_owned();
        self.run_on_volumes(pod_uid, move |node| {
            pod_files::tear_down_volumes(node, &uid)
        })
        .await
    }
}

#[async_trait]
impl Logs for LinuxNode {
    async fn open_log(
        &self,
        pod: &PodIdentity,
        container: &str,
        attempt: u32,
    ) -> Result<Option<Box<dyn LogFile>>, NodeError> {
        check_container_name(container)?;
        let (identity, container) = (pod.clone(), container.to_owned());
        let opened = self
            .run(move |node| pod_logs::open(node, &identity, &container, attempt))
            .await?;
        Ok(opened.map(|log| Box::new(log) as Box<dyn LogFile>))
    }

    async fn log_sizes(&self, logs: &[LogTarget]) -> Result<Vec<LogSize>, NodeError> {
        let logs = logs.to_vec();
        self.run_in_turn(LOG_SIZES, move |node| {
            Ok(logs
                .iter()
                .map(|log| rotated_logs::size(node, log))
                .collect())
        })
        .await
    }

    async fn rotated_logs(&self, log: &LogTarget) -> Result<Vec<String>, NodeError> {
        let log = log.clone();
        self.run(move |node| rotated_logs::list(node, &log)).await
    }

    async fn change_log(&self, log: &LogTarget, change: LogChange) -> Result<(), NodeError> {
        let log = log.clone();
        let mut compression = None;
        if let LogChange::Compress(name) = &change {
            // It takes its time, in which other steps are made: of this log, too.
            let turn = self.turn(&compression_key(&log)).lock_owned().await;
            let (log, name) = (log.clone(), name.clone());
            let written = self.run(move |node| {
                rotated_logs::compress(node, &log, &name)?;
                Ok(turn)
            });
            compression = Some(written.await?);
        }
        // After, or before, a removal of the log, and never in its midst.
        let key = logs_key(&log.pod);
        self.run_in_turn(&key, move |node| {
            let changed = rotated_logs::change(node, &log, &change);
            drop(compression);
            changed
        })
        .await
    }

    async fn last_log_attempt(
        &self,
        pod: &PodIdentity,
        container: &str,
    ) -> Result<Option<u32>, NodeError> {
        check_container_name(container)?;
        let (identity, container) = (pod.clone(), container.to_owned());
        self.run(move |node| pod_logs::last_attempt(node, &identity, &container))
            .await
    }

    async fn link_log(
        &self,
        pod: &PodIdentity,
        container: &str,
        container_id: &str,
        attempt: u32,
    ) -> Result<(), NodeError> {
        check_container_name(container)?;
        let (identity, container) = (pod.clone(), container.to_owned());
        let id = container_id.to_owned();
        self.run(move |node| pod_logs::link(node, &identity, &container, &id, attempt))
            .await
    }

    async fn remove_log(
        &self,
        pod: &PodIdentity,
        container: &str,
        container_id: &str,
        attempt: u32,
    ) -> Result<(), NodeError> {
        check_container_name(container)?;
        let (identity, container) = (pod.clone(), container.to_owned());
        let id = container_id.to_owned();
        let (key, name) = (logs_key(pod), container.clone());
        self.run_in_turn(&key, move |node| {
            pod_logs::remove(node, &identity, &name, &id, attempt)
        })
        .await?;
        let uid = pod.uid().to_owned();
        self.run_beside_volumes(pod.uid(), move |node| {
            pod_files::remove_termination_log(node, &uid, &container, attempt)
        })
        .await
    }

    async fn remove_pod_logs(&self, pod: &PodIdentity) -> Result<(), NodeError> {
        let identity = pod.clone();
        self.run_beside_volumes(pod.uid(), move |node| pod_logs::remove_all(node, &identity))
            .await
    }

    async fn pod_logs(&self) -> Result<Vec<PodIdentity>, NodeError> {
        self.run_in_turn(COLLECTION, pod_logs::list).await
    }

    async fn prune_log_links(&self) -> Result<(), NodeError> {
        self.run_in_turn(COLLECTION, pod_logs::prune_links).await
    }
}

#[cfg(test)]
mod tests;
