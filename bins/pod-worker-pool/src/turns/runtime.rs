//! [`RuntimeInTurns`]: changes at a runtime, of which the heavy ones are made in turns.
//!
//! StopContainer never waits: a SIGTERM is not to be late. Execs do not either. A pull does
//! not, since most of it is waiting for a registry; pulls have a queue of their own.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri::{Runtime, RuntimeChanges, RuntimeError, RuntimeErrorKind, v1};
use turns::{Call, Purpose};

use super::{Turns, Withdrawn};
use crate::relist::Owners;

/// A runtime whose heavy calls wait for their turn. The deadline of a call begins
/// with its turn.
pub(crate) struct RuntimeInTurns {
    runtime: Arc<dyn RuntimeChanges>,
    turns: Turns,
    owners: Owners,
    /// What all calls are made for; absent where it depends on the pod.
    purpose: Option<Purpose>,
}

impl RuntimeInTurns {
    /// The same runtime, with its changes in turns.
    pub(crate) fn over(
        runtime: &Runtime,
        turns: &Turns,
        owners: &Owners,
        purpose: Option<Purpose>,
    ) -> Runtime {
        Runtime {
            reads: Arc::clone(&runtime.reads),
            changes: Arc::new(RuntimeInTurns {
                runtime: Arc::clone(&runtime.changes),
                turns: turns.clone(),
                owners: owners.clone(),
                purpose,
            }),
            sessions: Arc::clone(&runtime.sessions),
        }
    }

    async fn in_turn<T>(
        &self,
        method: &'static str,
        kind: Call,
        pod: Option<&str>,
        call: impl Future<Output = Result<T, RuntimeError>> + Send,
    ) -> Result<T, RuntimeError> {
        let turn = self.turns.take(kind, pod, self.purpose).await;
        let _turn = turn.map_err(|Withdrawn| {
            let kind = RuntimeErrorKind::Unavailable;
            RuntimeError::new(method, kind, "it was withdrawn before its turn came")
        })?;
        call.await
    }
}

fn uid_of(config: &v1::PodSandboxConfig) -> Option<String> {
    let metadata = config.metadata.as_ref();
    metadata.map(|metadata| metadata.uid.clone())
}

#[async_trait]
impl RuntimeChanges for RuntimeInTurns {
    async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<String, RuntimeError> {
        let pod = uid_of(&config);
        let call = self.runtime.run_pod_sandbox(config, runtime_handler);
        self.in_turn("RunPodSandbox", Call::RunSandbox, pod.as_deref(), call)
            .await
    }

    async fn stop_pod_sandbox(&self, sandbox_id: &str) -> Result<(), RuntimeError> {
        let call = self.runtime.stop_pod_sandbox(sandbox_id);
        let pod = self.owners.pod_of(sandbox_id);
        self.in_turn("StopPodSandbox", Call::StopSandbox, pod.as_deref(), call)
            .await
    }

    async fn remove_pod_sandbox(&self, sandbox_id: &str) -> Result<(), RuntimeError> {
        let call = self.runtime.remove_pod_sandbox(sandbox_id);
        let pod = self.owners.pod_of(sandbox_id);
        self.in_turn(
            "RemovePodSandbox",
            Call::RemoveSandbox,
            pod.as_deref(),
            call,
        )
        .await
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, RuntimeError> {
        let pod = uid_of(&sandbox_config);
        let call = self
            .runtime
            .create_container(sandbox_id, config, sandbox_config);
        self.in_turn(
            "CreateContainer",
            Call::CreateContainer,
            pod.as_deref(),
            call,
        )
        .await
    }

    async fn start_container(&self, container_id: &str) -> Result<(), RuntimeError> {
        let call = self.runtime.start_container(container_id);
        let pod = self.owners.pod_of(container_id);
        self.in_turn("StartContainer", Call::StartContainer, pod.as_deref(), call)
            .await
    }

    async fn stop_container(
        &self,
        container_id: &str,
        grace: Duration,
    ) -> Result<(), RuntimeError> {
        self.runtime.stop_container(container_id, grace).await
    }

    async fn remove_container(&self, container_id: &str) -> Result<(), RuntimeError> {
        let call = self.runtime.remove_container(container_id);
        let pod = self.owners.pod_of(container_id);
        self.in_turn(
            "RemoveContainer",
            Call::RemoveContainer,
            pod.as_deref(),
            call,
        )
        .await
    }

    async fn delete_task(&self, container_id: &str) -> Result<bool, RuntimeError> {
        self.runtime.delete_task(container_id).await
    }

    async fn update_container_resources(
        &self,
        container_id: &str,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        self.runtime
            .update_container_resources(container_id, resources)
            .await
    }

    async fn exec_sync(
        &self,
        container_id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, RuntimeError> {
        self.runtime.exec_sync(container_id, command, timeout).await
    }

    async fn reopen_container_log(&self, container_id: &str) -> Result<(), RuntimeError> {
        self.runtime.reopen_container_log(container_id).await
    }

    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, RuntimeError> {
        self.runtime.pull_image(image, auth, sandbox_config).await
    }

    async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), RuntimeError> {
        let call = self.runtime.remove_image(image);
        self.in_turn("RemoveImage", Call::RemoveImage, None, call)
            .await
    }

    async fn update_runtime_config(&self, config: v1::RuntimeConfig) -> Result<(), RuntimeError> {
        self.runtime.update_runtime_config(config).await
    }
}
