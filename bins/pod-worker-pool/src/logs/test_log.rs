//! A node that has nothing but logs, in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use node_host::{LogChange, LogFile, LogSize, LogTarget, Logs, NodeError};
use pod::PodIdentity;

/// A log file. Clones are the same file.
#[derive(Debug, Clone)]
pub(super) struct MemoryLog {
    bytes: Arc<Mutex<Vec<u8>>>,
    is_compressed: bool,
}

impl MemoryLog {
    pub(super) fn new(bytes: &[u8]) -> MemoryLog {
        MemoryLog {
            bytes: Arc::new(Mutex::new(bytes.to_vec())),
            is_compressed: false,
        }
    }

    /// One that does not tell how big it is.
    pub(super) fn compressed(bytes: &[u8]) -> MemoryLog {
        MemoryLog {
            is_compressed: true,
            ..MemoryLog::new(bytes)
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
    async fn size(&self) -> Result<Option<u64>, NodeError> {
        let size = self.bytes.lock().unwrap().len() as u64;
        Ok((!self.is_compressed).then_some(size))
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
    /// What was rotated of it, by name.
    pub(super) rotated: Arc<Mutex<BTreeMap<String, MemoryLog>>>,
}

impl LogNode {
    /// There is a file beside the log.
    pub(super) fn add(&self, name: &str, log: MemoryLog) {
        self.rotated.lock().unwrap().insert(name.to_owned(), log);
    }

    /// Renames the log.
    pub(super) fn set_aside(&self, name: &str) {
        let log = self.current.lock().unwrap().take();
        let mut rotated = self.rotated.lock().unwrap();
        rotated.extend(log.map(|log| (name.to_owned(), log)));
    }

    /// Compresses a file.
    pub(super) fn compress(&self, name: &str) {
        let mut rotated = self.rotated.lock().unwrap();
        let log = rotated.remove(name).unwrap();
        let bytes = log.bytes.lock().unwrap();
        rotated.insert(format!("{name}.gz"), MemoryLog::compressed(&bytes));
    }
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
        Ok(self.rotated.lock().unwrap().keys().cloned().collect())
    }

    async fn open_rotated_log(
        &self,
        _log: &LogTarget,
        name: &str,
    ) -> Result<Option<Box<dyn LogFile>>, NodeError> {
        let log = self.rotated.lock().unwrap().get(name).cloned();
        Ok(log.map(|log| Box::new(log) as Box<dyn LogFile>))
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
