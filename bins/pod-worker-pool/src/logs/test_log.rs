//! A node that has nothing but logs, in memory.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use node_host::{LogChange, LogFile, LogSize, LogTarget, Logs, NodeError};
use pod::PodIdentity;

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

/// This node has only logs that are read.
fn unasked<Value>() -> Result<Value, NodeError> {
    Err(NodeError::refused("/", "logs of this node are only read"))
}

#[async_trait]
impl Logs for LogNode {
    async fn open_log(
        &self,
        _pod: &PodIdentity,
        _container: &str,
        _attempt: u32,
    ) -> Result<Option<Box<dyn LogFile>>, NodeError> {
        let current = self.current.lock().unwrap().clone();
        Ok(current.map(|log| Box::new(log) as Box<dyn LogFile>))
    }

    async fn log_sizes(&self, _logs: &[LogTarget]) -> Result<Vec<LogSize>, NodeError> {
        unasked()
    }

    async fn rotated_logs(&self, _log: &LogTarget) -> Result<Vec<String>, NodeError> {
        unasked()
    }

    async fn change_log(&self, _log: &LogTarget, _change: LogChange) -> Result<(), NodeError> {
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
