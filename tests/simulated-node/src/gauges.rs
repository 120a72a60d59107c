//! How much is used, as a test says.

use std::path::Path;

use async_trait::async_trait;
use node_host::{Gauges, NodeError};
use node_layout::{FilesystemUsage, MachineCounters, MachineUsage, PodFilesUsage};
use pod::PodIdentity;

use crate::{HALF_FULL, IDLE, MemoryHost};

#[async_trait]
impl Gauges for MemoryHost {
    async fn machine_usage(&self) -> Result<MachineUsage, NodeError> {
        Ok(self.state().machine_usage.unwrap_or(IDLE))
    }

    async fn machine_counters(&self) -> Result<MachineCounters, NodeError> {
        Ok(MachineCounters::default())
    }

    async fn filesystem_usage(&self, _path: Option<&Path>) -> Result<FilesystemUsage, NodeError> {
        let shown = &mut self.state().filesystem_usage;
        let next = match shown.len() {
            0 | 1 => shown.front().copied(),
            _ => shown.pop_front(),
        };
        Ok(next.unwrap_or(HALF_FULL))
    }

    async fn pod_files_usage(
        &self,
        pod: &PodIdentity,
        _empty_dirs: &[String],
    ) -> Result<PodFilesUsage, NodeError> {
        self.wait_while_hanging(pod.uid()).await;
        let state = self.state();
        Ok(state.pod_files.get(pod.uid()).cloned().unwrap_or_default())
    }

    async fn pod_memory(&self, pod_uid: &str) -> Result<Option<u64>, NodeError> {
        Ok(self.state().pod_memory.get(pod_uid).copied())
    }
}
