//! A node that has nothing but logs, in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use pod::resources::PodCgroupResources;
use pod::{Pod, PodIdentity, QosClass};

use crate::config::{MountedVolume, ResolvConf};
use crate::node::{
    ContainerFiles, DiskUsage, FoundCgroup, LogFile, NodeCapacity, NodeError, NodeHost,
};

/// A log file. Clones are the same file.
#[derive(Debug, Clone)]
pub(super) struct MemoryLog {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl MemoryLog {
    pub(super) fn new(bytes: &[u8]) -> MemoryLog {
        MemoryLog {
            bytes: Arc::new(Mutex::new(bytes.to_vec())),
        }
    }

    pub(super) fn write(&self, text: &str) {
        self.bytes
            .lock()
            .unwrap()
            .extend_from_slice(text.as_bytes());
    }

    pub(super) fn truncate(&self) {
        self.bytes.lock().unwrap().clear();
    }
}

#[async_trait]
impl LogFile for MemoryLog {
    async fn size(&self) -> Result<u64, NodeError> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    async fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, NodeError> {
        let bytes = self.bytes.lock().unwrap();
        let offset = usize::try_from(offset).unwrap().min(bytes.len());
        Ok(bytes[offset..].iter().take(length).copied().collect())
    }

    fn identity(&self) -> (u64, u64) {
        (0, Arc::as_ptr(&self.bytes) as u64)
    }
}

/// The node; its one container's log is what `current` holds.
#[derive(Debug, Clone, Default)]
pub(super) struct LogNode {
    pub(super) current: Arc<Mutex<Option<MemoryLog>>>,
}

/// Logs are all that this node is asked for.
fn unasked<Value>() -> Result<Value, NodeError> {
    Err(NodeError::refused("/", "this node has only logs"))
}

#[async_trait]
impl NodeHost for LogNode {
    async fn open_log(
        &self,
        _pod: &PodIdentity,
        _container: &str,
        _attempt: u32,
    ) -> Result<Option<Box<dyn LogFile>>, NodeError> {
        let current = self.current.lock().unwrap().clone();
        Ok(current.map(|log| Box::new(log) as Box<dyn LogFile>))
    }

    async fn capacity(&self) -> Result<NodeCapacity, NodeError> {
        unasked()
    }

    async fn resolv_conf(&self) -> Result<Option<ResolvConf>, NodeError> {
        unasked()
    }

    async fn hosts_file(&self) -> Result<String, NodeError> {
        unasked()
    }

    async fn disk_usage(&self, _path: &Path) -> Result<DiskUsage, NodeError> {
        unasked()
    }

    async fn ensure_qos_cgroups(&self) -> Result<(), NodeError> {
        unasked()
    }

    async fn ensure_pod_cgroup(
        &self,
        _pod_uid: &str,
        _qos: QosClass,
        _resources: PodCgroupResources,
    ) -> Result<(), NodeError> {
        unasked()
    }

    async fn remove_pod_cgroup(&self, _pod_uid: &str) -> Result<(), NodeError> {
        unasked()
    }

    async fn pod_cgroups(&self) -> Result<Vec<FoundCgroup>, NodeError> {
        unasked()
    }

    async fn make_pod_directories(&self, _pod: &PodIdentity) -> Result<(), NodeError> {
        unasked()
    }

    async fn set_up_volumes(
        &self,
        _identity: &PodIdentity,
        _pod: &Pod,
    ) -> Result<BTreeMap<String, MountedVolume>, NodeError> {
        unasked()
    }

    async fn tear_down_volumes(&self, _pod_uid: &str) -> Result<(), NodeError> {
        unasked()
    }

    async fn remove_pod_directory(&self, _pod_uid: &str) -> Result<(), NodeError> {
        unasked()
    }

    async fn pod_directories(&self) -> Result<Vec<String>, NodeError> {
        unasked()
    }

    async fn write_hosts_file(&self, _pod_uid: &str, _text: &str) -> Result<PathBuf, NodeError> {
        unasked()
    }

    async fn make_container_files(
        &self,
        _pod: &PodIdentity,
        _container: &str,
        _start_id: u32,
    ) -> Result<ContainerFiles, NodeError> {
        unasked()
    }

    async fn read_termination_log(
        &self,
        _pod_uid: &str,
        _file: &Path,
        _limit: usize,
    ) -> Result<Vec<u8>, NodeError> {
        unasked()
    }

    async fn last_log_attempt(
        &self,
        _pod: &PodIdentity,
        _container: &str,
    ) -> Result<Option<u32>, NodeError> {
        unasked()
    }

    async fn link_log(
        &self,
        _pod: &PodIdentity,
        _container: &str,
        _container_id: &str,
        _attempt: u32,
    ) -> Result<(), NodeError> {
        unasked()
    }

    async fn remove_log(
        &self,
        _pod: &PodIdentity,
        _container: &str,
        _container_id: &str,
        _attempt: u32,
    ) -> Result<(), NodeError> {
        unasked()
    }

    async fn remove_pod_logs(&self, _pod: &PodIdentity) -> Result<(), NodeError> {
        unasked()
    }

    async fn pod_logs(&self) -> Result<Vec<PodIdentity>, NodeError> {
        unasked()
    }

    async fn prune_log_links(&self) -> Result<(), NodeError> {
        unasked()
    }
}
