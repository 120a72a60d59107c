//! A node in memory behind the traits of `node-host`: it remembers what was done to it,
//! fails and hangs on order. The tests of pod-worker-pool and the simulation share it.

mod gauges;
mod logind;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use cri_requests::ResolvConf;
use node_config::UserNamespaceSettings;
use node_host::{
    Cgroups, ContainerFiles, LogChange, LogFile, LogSize, LogTarget, Logs, Machine, NodeError,
    PodDirectories, Volumes,
};
use node_layout::{
    DiskUsage, FilesystemUsage, IdRange, IdRangeChoice, MachineIdentity, MachineUsage,
    NodeCapacity, PodFilesUsage, choose_id_range, id_range_file, paths,
};
use node_policy::HostPathRules;
use pod::resources::PodCgroupResources;
use pod::{Pod, PodIdentity, QosClass};
use pod_volumes::{Files, MountedVolume, SubPath, Volume, VolumeSpec};
use simulated_runtime::{Met, SimulatedRuntime};

pub use logind::SimulatedLogind;

/// Where the pods' directories are, which exist in memory alone: the node's
/// configuration names it as root directory.
pub const ROOT_DIR: &str = "/simulated";

const MEMORY_BYTES: u64 = 8 << 30;
const STORAGE_BYTES: u64 = 100 << 30;

/// What the machine has.
pub const CAPACITY: NodeCapacity = NodeCapacity {
    cpu_millis: 4000,
    memory_bytes: MEMORY_BYTES,
    swap_bytes: 0,
    ephemeral_storage_bytes: STORAGE_BYTES,
    huge_pages: BTreeMap::new(),
    unified_cgroups: false,
    page_bytes: 4096,
    kernel_release: String::new(),
    app_armor: false,
    selinux: false,
};

/// A machine that has little to do.
pub const IDLE: MachineUsage = MachineUsage {
    memory_capacity_bytes: MEMORY_BYTES,
    memory_available_bytes: MEMORY_BYTES / 2,
    max_processes: 32_768,
    processes: 100,
};

/// A disk that is half full.
pub const HALF_FULL: FilesystemUsage = FilesystemUsage {
    device: 1,
    capacity_bytes: STORAGE_BYTES,
    available_bytes: STORAGE_BYTES / 2,
    inodes: 1 << 20,
    inodes_free: 1 << 19,
};

/// The disk of the node: a tenth of it is ten of the simulated runtime's images.
pub const DISK_BYTES: u64 = simulated_runtime::IMAGE_BYTES * 100;

/// What a simulated node has. It outlives all processes.
#[derive(Debug, Default)]
pub struct MemoryHost(Mutex<NodeState>);

/// Whose containers run there, and what was taken from some that did.
#[derive(Debug, Default)]
pub struct Watch {
    runtime: Option<SimulatedRuntime>,
    /// What was taken from pods whose containers ran.
    pub violations: Vec<String>,
}

impl Watch {
    /// Notes that something is taken from a pod.
    fn note(&mut self, what: &str, pod_uid: &str) {
        let containers = self.runtime.iter().flat_map(SimulatedRuntime::containers);
        let mut running = containers.filter(|it| it.running && it.pod_uid == pod_uid);
        if let Some(one) = running.next() {
            let name = one.name;
            let violation = format!("{what} of {pod_uid} was removed while {name} ran");
            self.violations.push(violation);
        }
    }
}

/// What was done to a simulated node, and how it behaves.
#[derive(Debug, Default)]
pub struct NodeState {
    /// Pods that have directories, by UID.
    pub directories: BTreeSet<String>,
    /// The files of pods with user namespaces of their own, by UID.
    pub id_ranges: BTreeMap<String, String>,
    /// Pods whose volumes are set up, by UID.
    pub volumes: BTreeSet<String>,
    /// Pods that have cgroups, by UID.
    pub cgroups: BTreeSet<String>,
    /// What pods request of CPU whose cgroups were adopted, in thousandths of a core, by UID.
    pub adopted_cgroups: BTreeMap<String, i64>,
    /// What those were given, one after the other, by UID.
    pub cgroup_resources: BTreeMap<String, Vec<PodCgroupResources>>,
    /// The highest attempt of each container that has a log, by pod.
    pub logs: BTreeMap<PodIdentity, BTreeMap<String, u32>>,
    /// The files of logs of which a test says something; any other is empty.
    pub log_files: BTreeMap<LogTarget, LogFiles>,
    /// Whether no volume can be set up.
    pub volumes_fail: bool,
    /// Whether the cgroups of all pods together cannot be made.
    pub class_cgroups_fail: bool,
    /// No logs of a whole pod can be removed.
    pub pod_logs_fail: bool,
    /// Files in volumes, by the pod's UID and the volume's name.
    pub files: BTreeMap<(String, String), Files>,
    /// Pods with a volume on a file system that hangs.
    pub hanging: BTreeSet<String>,
    /// Whether the disk hangs on which exited containers have left their messages.
    pub messages_hang: bool,
    /// Pods whose logs take for ever to be compressed, by UID.
    pub compressing: BTreeSet<String>,
    /// What the gauges show instead of a machine with half of everything free.
    pub machine_usage: Option<MachineUsage>,
    /// The same for the disk with the pods' directories, on which images lie too: one
    /// after the other, the last one again and again.
    pub filesystem_usage: VecDeque<FilesystemUsage>,
    /// What the files of pods take, by UID.
    pub pod_files: BTreeMap<String, PodFilesUsage>,
    /// What the cgroups of pods have of memory, by UID; of any other nobody can tell.
    pub pod_memory: BTreeMap<String, u64>,
    /// Whether the disk is nine tenths full; else it is half full.
    pub disk_is_full: bool,
    /// Who sees that nothing is taken from containers that run.
    pub watch: Watch,
}

/// The sizes of a log's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogFiles {
    /// Of the log itself; `None` while it is not there.
    pub current: Option<u64>,
    /// Of those beside it, by what follows its name and a dot.
    pub rotated: BTreeMap<String, u64>,
}

impl NodeState {
    fn make_volumes(
        &mut self,
        identity: &PodIdentity,
        volumes: &[Volume],
    ) -> Result<(), NodeError> {
        if self.volumes_fail {
            return Err(NodeError::Volume {
                volume: "data".to_owned(),
                reason: "no such disk".to_owned(),
            });
        }
        self.volumes.insert(identity.uid().to_owned());
        for Volume { name, spec } in volumes {
            let key = (identity.uid().to_owned(), name.clone());
            match spec {
                VolumeSpec::Files(files) => self.files.insert(key, files.clone()),
                VolumeSpec::Impossible(reason) => {
                    return Err(NodeError::Volume {
                        volume: name.clone(),
                        reason: reason.clone(),
                    });
                }
                _ => continue,
            };
        }
        Ok(())
    }
}

/// Where things of a pod are on the node in memory: nothing is written there.
fn own_directory(pod_uid: &str) -> PathBuf {
    paths::pod(Path::new(ROOT_DIR), pod_uid)
}

fn simulated_failure() -> NodeError {
    NodeError::CheckFailed {
        message: "simulated failure of the node".to_owned(),
    }
}

impl MemoryHost {
    /// What there is, to look at and to change.
    pub fn state(&self) -> MutexGuard<'_, NodeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on what is taken from pods whose containers run in `runtime` is noted.
    pub fn watch(&self, runtime: SimulatedRuntime) {
        self.state().watch.runtime = Some(runtime);
    }

    /// Does something to the node, with which something may go wrong.
    async fn effect<T>(
        &self,
        work: impl FnOnce(&mut NodeState) -> Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        let runtime = self.state().watch.runtime.clone();
        let Some(runtime) = runtime else {
            return work(&mut self.state());
        };
        let met = runtime.meet_mishap().await;
        match met {
            Met::Failure => return Err(simulated_failure()),
            Met::EarlyDeath => match runtime.kill_caller().await {},
            Met::Nothing | Met::Loss | Met::LateDeath => {}
        }
        let result = work(&mut self.state());
        match met {
            Met::Loss => Err(simulated_failure()),
            Met::LateDeath => match runtime.kill_caller().await {},
            Met::Nothing | Met::Failure | Met::EarlyDeath => result,
        }
    }

    /// UIDs of the pods that have a cgroup or a directory.
    #[must_use]
    pub fn pods(&self) -> BTreeSet<String> {
        let state = self.state();
        state.cgroups.union(&state.directories).cloned().collect()
    }

    async fn wait_while_hanging(&self, pod_uid: &str) {
        while self.state().hanging.contains(pod_uid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[async_trait]
impl Machine for MemoryHost {
    async fn capacity(&self) -> Result<NodeCapacity, NodeError> {
        Ok(CAPACITY)
    }

    async fn identity(&self) -> Result<MachineIdentity, NodeError> {
        Ok(MachineIdentity::default())
    }

    async fn resolv_conf(&self) -> Result<Option<ResolvConf>, NodeError> {
        Ok(None)
    }

    async fn hosts_file(&self) -> Result<String, NodeError> {
        Ok("127.0.0.1 localhost\n".to_owned())
    }

    async fn disk_usage(&self, _path: &Path) -> Result<DiskUsage, NodeError> {
        let is_full = self.state().disk_is_full;
        let available_percent = if is_full { 10 } else { 50 };
        Ok(DiskUsage {
            capacity_bytes: DISK_BYTES,
            available_bytes: DISK_BYTES / 100 * available_percent,
        })
    }
}

#[async_trait]
impl Cgroups for MemoryHost {
    async fn ensure_qos_cgroups(&self) -> Result<(), NodeError> {
        match self.state().class_cgroups_fail {
            true => Err(simulated_failure()),
            false => Ok(()),
        }
    }

    async fn ensure_pod_cgroup(
        &self,
        pod_uid: &str,
        _qos: QosClass,
        resources: PodCgroupResources,
    ) -> Result<(), NodeError> {
        self.effect(|state| {
            state.cgroups.insert(pod_uid.to_owned());
            let given = state.cgroup_resources.entry(pod_uid.to_owned());
            given.or_default().push(resources);
            Ok(())
        })
        .await
    }

    async fn adopt_pod_cgroup(
        &self,
        pod_uid: &str,
        resources: PodCgroupResources,
    ) -> Result<(), NodeError> {
        let mut state = self.state();
        let millis = resources.cpu_request_millis;
        state.adopted_cgroups.insert(pod_uid.to_owned(), millis);
        Ok(())
    }

    async fn remove_pod_cgroup(&self, pod_uid: &str) -> Result<(), NodeError> {
        self.effect(|state| {
            state.watch.note("the cgroup", pod_uid);
            state.cgroups.remove(pod_uid);
            Ok(())
        })
        .await
    }

    async fn pod_cgroups(&self) -> Result<BTreeSet<String>, NodeError> {
        Ok(self.state().cgroups.clone())
    }
}

#[async_trait]
impl PodDirectories for MemoryHost {
    async fn make_pod_directories(&self, pod: &PodIdentity) -> Result<(), NodeError> {
        self.effect(|state| {
            state.directories.insert(pod.uid().to_owned());
            state.logs.entry(pod.clone()).or_default();
            Ok(())
        })
        .await
    }

    async fn remove_pod_directory(&self, pod_uid: &str) -> Result<(), NodeError> {
        self.effect(|state| {
            state.watch.note("the directory", pod_uid);
            state.directories.remove(pod_uid);
            state.id_ranges.remove(pod_uid);
            Ok(())
        })
        .await
    }

    async fn pod_directories(&self) -> Result<Vec<String>, NodeError> {
        let state = self.state();
        Ok(state.directories.iter().cloned().collect())
    }

    async fn write_hosts_file(&self, pod_uid: &str, _text: &str) -> Result<PathBuf, NodeError> {
        Ok(paths::hosts_file(Path::new(ROOT_DIR), pod_uid))
    }

    async fn pod_id_range(&self, pod_uid: &str, avoided: &[u32]) -> Result<IdRange, NodeError> {
        let mut state = self.state();
        let settings = UserNamespaceSettings::default();
        let range = match choose_id_range(&settings, pod_uid, &state.id_ranges, avoided)? {
            IdRangeChoice::Written(range) => return Ok(range),
            IdRangeChoice::New(range) => range,
        };
        let file = id_range_file(range);
        state.id_ranges.insert(pod_uid.to_owned(), file);
        Ok(range)
    }

    async fn make_container_files(
        &self,
        pod: &PodIdentity,
        container: &str,
        start_id: u32,
    ) -> Result<ContainerFiles, NodeError> {
        self.effect(|state| {
            state.logs.entry(pod.clone()).or_default();
            Ok(())
        })
        .await?;
        let termination_log = own_directory(pod.uid())
            .join("containers")
            .join(container)
            .join(start_id.to_string());
        Ok(ContainerFiles { termination_log })
    }

    async fn read_termination_log(
        &self,
        _pod_uid: &str,
        _file: &Path,
        _limit: usize,
    ) -> Result<Vec<u8>, NodeError> {
        while self.state().messages_hang {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Vec::new())
    }
}

#[async_trait]
impl Volumes for MemoryHost {
    async fn make_volumes(
        &self,
        identity: &PodIdentity,
        _pod: &Pod,
        volumes: &[Volume],
        _host_paths: &HostPathRules,
    ) -> Result<BTreeMap<String, MountedVolume>, NodeError> {
        self.wait_while_hanging(identity.uid()).await;
        self.effect(|state| state.make_volumes(identity, volumes))
            .await?;
        let volumes = volumes.iter().map(|Volume { name, spec }| {
            let place = match spec {
                VolumeSpec::HostPath(_) => paths::host_path,
                _ => paths::empty_dir,
            };
            let mounted = MountedVolume {
                host_path: place(Path::new(ROOT_DIR), identity.uid(), name),
                read_only: spec.is_read_only(),
            };
            (name.clone(), mounted)
        });
        Ok(volumes.collect())
    }

    async fn bind_sub_path(
        &self,
        identity: &PodIdentity,
        container: &str,
        sub_path: &SubPath,
    ) -> Result<PathBuf, NodeError> {
        self.wait_while_hanging(identity.uid()).await;
        let pod = paths::pod(Path::new(ROOT_DIR), identity.uid());
        let volume = pod.join(paths::VOLUME_SUBPATHS).join(&sub_path.volume);
        Ok(volume.join(container).join(sub_path.index.to_string()))
    }

    async fn read_volume_file(
        &self,
        identity: &PodIdentity,
        _volume_path: &Path,
        _path: &str,
        _limit: usize,
    ) -> Result<Option<Vec<u8>>, NodeError> {
        // What containers write is not simulated.
        self.wait_while_hanging(identity.uid()).await;
        Ok(None)
    }

    async fn tear_down_volumes(&self, pod_uid: &str) -> Result<(), NodeError> {
        self.wait_while_hanging(pod_uid).await;
        self.effect(|state| {
            state.watch.note("the volumes", pod_uid);
            state.volumes.remove(pod_uid);
            state.files.retain(|(uid, _), _| uid != pod_uid);
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl Logs for MemoryHost {
    async fn open_log(
        &self,
        _pod: &PodIdentity,
        _container: &str,
        _attempt: u32,
    ) -> Result<Option<Box<dyn LogFile>>, NodeError> {
        Ok(None)
    }

    async fn log_sizes(&self, logs: &[LogTarget]) -> Result<Vec<LogSize>, NodeError> {
        let state = self.state();
        let size = |log| match state.log_files.get(log) {
            Some(files) => Ok(files.current),
            None => Ok(Some(0)),
        };
        Ok(logs.iter().map(size).collect())
    }

    async fn rotated_logs(&self, log: &LogTarget) -> Result<Vec<String>, NodeError> {
        let state = self.state();
        let files = state.log_files.get(log);
        Ok(files.map_or(Vec::new(), |files| files.rotated.keys().cloned().collect()))
    }

    async fn change_log(&self, log: &LogTarget, change: LogChange) -> Result<(), NodeError> {
        if matches!(change, LogChange::Compress(_)) {
            while self.state().compressing.contains(log.pod.uid()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let mut state = self.state();
        let files = state.log_files.entry(log.clone()).or_default();
        match change {
            LogChange::Remove(name) => {
                files.rotated.remove(&name);
            }
            LogChange::Compress(name) => {
                if let Some(size) = files.rotated.remove(&name) {
                    files.rotated.insert(format!("{name}.gz"), size);
                }
            }
            LogChange::SetAside(name) => {
                let size = files.current.take();
                files.rotated.extend(size.map(|size| (name, size)));
            }
            LogChange::PutBack(name) => {
                if files.current.is_none() {
                    files.current = files.rotated.remove(&name);
                }
            }
        }
        Ok(())
    }

    async fn last_log_attempt(
        &self,
        pod: &PodIdentity,
        container: &str,
    ) -> Result<Option<u32>, NodeError> {
        let state = self.state();
        let logs = state.logs.get(pod);
        Ok(logs.and_then(|logs| logs.get(container).copied()))
    }

    async fn link_log(
        &self,
        pod: &PodIdentity,
        container: &str,
        _container_id: &str,
        attempt: u32,
    ) -> Result<(), NodeError> {
        // The runtime makes the log when it starts a container.
        let mut state = self.state();
        let logs = state.logs.entry(pod.clone()).or_default();
        logs.insert(container.to_owned(), attempt);
        Ok(())
    }

    async fn remove_log(
        &self,
        pod: &PodIdentity,
        container: &str,
        _container_id: &str,
        attempt: u32,
    ) -> Result<(), NodeError> {
        // Its message goes with it.
        while self.state().messages_hang {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let is_it =
            |it: &LogTarget| (&it.pod, &*it.container, it.attempt) == (pod, container, attempt);
        self.state().log_files.retain(|log, _| !is_it(log));
        Ok(())
    }

    async fn remove_pod_logs(&self, pod: &PodIdentity) -> Result<(), NodeError> {
        if self.state().pod_logs_fail {
            return Err(simulated_failure());
        }
        self.state().logs.remove(pod);
        Ok(())
    }

    async fn pod_logs(&self) -> Result<Vec<PodIdentity>, NodeError> {
        let state = self.state();
        Ok(state.logs.keys().cloned().collect())
    }

    async fn prune_log_links(&self) -> Result<(), NodeError> {
        Ok(())
    }
}
