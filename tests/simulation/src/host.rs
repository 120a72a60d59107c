//! Files, mounts and cgroups of a simulated node, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use pod::resources::PodCgroupResources;
use pod::{Pod, PodIdentity, QosClass};
use pod_worker_pool::node::{
    ContainerFiles, DiskUsage, FoundCgroup, LogFile, MountedVolume, NodeCapacity, NodeError,
    NodeHost, ResolvConf,
};

/// What a simulated node has of its own. It outlives all processes.
#[derive(Debug, Default)]
pub struct MemoryHost(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    cgroups: BTreeMap<String, QosClass>,
    directories: BTreeSet<String>,
    logs: BTreeMap<String, PodIdentity>,
}

impl MemoryHost {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// UIDs of the pods that have a cgroup or a directory.
    #[must_use]
    pub fn pods(&self) -> BTreeSet<String> {
        let contents = self.lock();
        contents
            .cgroups
            .keys()
            .chain(&contents.directories)
            .cloned()
            .collect()
    }
}

#[async_trait]
impl NodeHost for MemoryHost {
    async fn capacity(&self) -> Result<NodeCapacity, NodeError> {
        Ok(NodeCapacity {
            cpu_millis: 4000,
            memory_bytes: 8 << 30,
            ephemeral_storage_bytes: 100 << 30,
            huge_page_sizes: Vec::new(),
        })
    }

    async fn disk_usage(&self, _path: &Path) -> Result<DiskUsage, NodeError> {
        Ok(DiskUsage {
            capacity_bytes: 100 << 30,
            available_bytes: 50 << 30,
        })
    }

    async fn resolv_conf(&self) -> Result<Option<ResolvConf>, NodeError> {
        Ok(None)
    }

    async fn hosts_file(&self) -> Result<String, NodeError> {
        Ok("127.0.0.1 localhost\n".to_owned())
    }

    async fn ensure_qos_cgroups(&self) -> Result<(), NodeError> {
        Ok(())
    }

    async fn ensure_pod_cgroup(
        &self,
        pod_uid: &str,
        qos: QosClass,
        _resources: PodCgroupResources,
    ) -> Result<(), NodeError> {
        self.lock().cgroups.insert(pod_uid.to_owned(), qos);
        Ok(())
    }

    async fn remove_pod_cgroup(&self, pod_uid: &str) -> Result<(), NodeError> {
        self.lock().cgroups.remove(pod_uid);
        Ok(())
    }

    async fn pod_cgroups(&self) -> Result<Vec<FoundCgroup>, NodeError> {
        let contents = self.lock();
        let found = contents.cgroups.iter();
        Ok(found
            .map(|(uid, qos)| FoundCgroup {
                pod_uid: uid.clone(),
                qos: *qos,
            })
            .collect())
    }

    async fn make_pod_directories(&self, pod: &PodIdentity) -> Result<(), NodeError> {
        let mut contents = self.lock();
        contents.directories.insert(pod.uid().to_owned());
        contents.logs.insert(pod.uid().to_owned(), pod.clone());
        Ok(())
    }

    async fn set_up_volumes(
        &self,
        _identity: &PodIdentity,
        _pod: &Pod,
    ) -> Result<BTreeMap<String, MountedVolume>, NodeError> {
        Ok(BTreeMap::new())
    }

    async fn tear_down_volumes(&self, _pod_uid: &str) -> Result<(), NodeError> {
        Ok(())
    }

    async fn remove_pod_directory(&self, pod_uid: &str) -> Result<(), NodeError> {
        self.lock().directories.remove(pod_uid);
        Ok(())
    }

    async fn pod_directories(&self) -> Result<Vec<String>, NodeError> {
        Ok(self.lock().directories.iter().cloned().collect())
    }

    async fn write_hosts_file(&self, pod_uid: &str, _text: &str) -> Result<PathBuf, NodeError> {
        Ok(Path::new("/simulated/pods").join(pod_uid).join("etc-hosts"))
    }

    async fn make_container_files(
        &self,
        pod: &PodIdentity,
        container: &str,
        start_id: u32,
    ) -> Result<ContainerFiles, NodeError> {
        let directory = Path::new("/simulated/pods").join(pod.uid());
        let directory = directory.join("containers").join(container);
        Ok(ContainerFiles {
            termination_log: directory.join(format!("{start_id:08x}")),
        })
    }

    async fn read_termination_log(
        &self,
        _pod_uid: &str,
        _file: &Path,
        _limit: usize,
    ) -> Result<Vec<u8>, NodeError> {
        Ok(Vec::new())
    }

    async fn open_log(
        &self,
        _pod: &PodIdentity,
        _container: &str,
        _attempt: u32,
    ) -> Result<Option<Box<dyn LogFile>>, NodeError> {
        Ok(None)
    }

    async fn last_log_attempt(
        &self,
        _pod: &PodIdentity,
        _container: &str,
    ) -> Result<Option<u32>, NodeError> {
        Ok(None)
    }

    async fn link_log(
        &self,
        _pod: &PodIdentity,
        _container: &str,
        _container_id: &str,
        _attempt: u32,
    ) -> Result<(), NodeError> {
        Ok(())
    }

    async fn remove_log(
        &self,
        _pod: &PodIdentity,
        _container: &str,
        _container_id: &str,
        _attempt: u32,
    ) -> Result<(), NodeError> {
        Ok(())
    }

    async fn remove_pod_logs(&self, pod: &PodIdentity) -> Result<(), NodeError> {
        self.lock().logs.remove(pod.uid());
        Ok(())
    }

    async fn pod_logs(&self) -> Result<Vec<PodIdentity>, NodeError> {
        Ok(self.lock().logs.values().cloned().collect())
    }

    async fn prune_log_links(&self) -> Result<(), NodeError> {
        Ok(())
    }
}
