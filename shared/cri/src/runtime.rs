//! The seam between Bulkhead and whatever runs containers.
//!
//! Requests and answers are the CRI's own messages; what a method returns is unwrapped
//! where the message has only one field.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{RuntimeError, RuntimeEvents, v1};

/// What runs sandboxes and containers and holds images: containerd through
/// [`CriClient`](crate::CriClient), or a simulated one in tests.
///
/// Each call has its own deadline and fails with
/// [`DeadlineExceeded`](crate::RuntimeErrorKind::DeadlineExceeded) after it; dropping
/// the future of a call cancels it on this side, the runtime may still carry it out.
#[derive(Clone)]
pub struct Runtime {
    /// What only looks.
    pub reads: Arc<dyn RuntimeReads>,
    /// What makes or changes something, or runs a command.
    pub changes: Arc<dyn RuntimeChanges>,
    /// Commands and connections that people ask for.
    pub sessions: Arc<dyn RuntimeSessions>,
}

impl<R: RuntimeReads + RuntimeChanges + RuntimeSessions + Clone + 'static> From<R> for Runtime {
    fn from(runtime: R) -> Runtime {
        Runtime {
            reads: Arc::new(runtime.clone()),
            changes: Arc::new(runtime.clone()),
            sessions: Arc::new(runtime),
        }
    }
}

/// The calls that only look.
#[async_trait]
pub trait RuntimeReads: Send + Sync {
    /// Name and version of the runtime.
    async fn version(&self) -> Result<v1::VersionResponse, RuntimeError>;

    /// Whether the runtime and its network are ready. `verbose` adds runtime-specific
    /// details to `info`.
    async fn status(&self, verbose: bool) -> Result<v1::StatusResponse, RuntimeError>;

    /// The runtime's own configuration: its cgroup driver. Unimplemented before
    /// containerd 2.0.
    async fn runtime_config(&self) -> Result<v1::RuntimeConfigResponse, RuntimeError>;

    /// State of one sandbox.
    async fn pod_sandbox_status(
        &self,
        sandbox_id: &str,
    ) -> Result<v1::PodSandboxStatus, RuntimeError>;

    /// The sandboxes that match the filter.
    async fn list_pod_sandboxes(
        &self,
        filter: v1::PodSandboxFilter,
    ) -> Result<Vec<v1::PodSandbox>, RuntimeError>;

    /// The commands that run in a container by [`exec_sync`](RuntimeChanges::exec_sync),
    /// whoever asked for them: an id for each, of the runtime's own choice.
    /// Not a call of the CRI: containerd's own, `Unimplemented` in others.
    async fn running_commands(&self, container_id: &str) -> Result<BTreeSet<String>, RuntimeError>;

    /// The containers that match the filter.
    async fn list_containers(
        &self,
        filter: v1::ContainerFilter,
    ) -> Result<Vec<v1::Container>, RuntimeError>;

    /// State of one container.
    async fn container_status(
        &self,
        container_id: &str,
    ) -> Result<v1::ContainerStatus, RuntimeError>;

    /// What the runtime adds to the status of one container for those who ask for
    /// more: texts by name, the runtime's own choice. containerd and CRI-O give the
    /// OCI specification of the container as part of the JSON named `info`.
    async fn container_info(
        &self,
        container_id: &str,
    ) -> Result<BTreeMap<String, String>, RuntimeError>;

    /// Usage of one container.
    async fn container_stats(&self, container_id: &str)
    -> Result<v1::ContainerStats, RuntimeError>;

    /// Usage of the containers that match the filter.
    async fn list_container_stats(
        &self,
        filter: v1::ContainerStatsFilter,
    ) -> Result<Vec<v1::ContainerStats>, RuntimeError>;

    /// Usage of one sandbox and its containers.
    async fn pod_sandbox_stats(
        &self,
        sandbox_id: &str,
    ) -> Result<v1::PodSandboxStats, RuntimeError>;

    /// All images.
    async fn list_images(&self) -> Result<Vec<v1::Image>, RuntimeError>;

    /// The image that a reference or id stands for, if the node has it.
    async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, RuntimeError>;

    /// The file systems that hold images.
    async fn image_fs_info(&self) -> Result<Vec<v1::FilesystemUsage>, RuntimeError>;

    /// Subscribes to what happens to containers, by the best means that this runtime
    /// has, or `None` when it has none. A doorbell and nothing more: events may be
    /// lost, doubled or late.
    async fn events(&self) -> Result<Option<RuntimeEvents>, RuntimeError>;
}

/// The calls that make or change something, or run a command.
#[async_trait]
pub trait RuntimeChanges: Send + Sync {
    /// Creates and starts a sandbox and answers with its id. An empty
    /// `runtime_handler` means the default one.
    async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<String, RuntimeError>;

    /// Stops a sandbox and everything in it. Idempotent.
    async fn stop_pod_sandbox(&self, sandbox_id: &str) -> Result<(), RuntimeError>;

    /// Removes a sandbox and everything in it. Idempotent.
    async fn remove_pod_sandbox(&self, sandbox_id: &str) -> Result<(), RuntimeError>;

    /// Creates a container in a sandbox and answers with its id.
    async fn create_container(
        &self,
        sandbox_id: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, RuntimeError>;

    /// Starts a created container.
    async fn start_container(&self, container_id: &str) -> Result<(), RuntimeError>;

    /// Sends SIGTERM, and SIGKILL once `grace` is over (rounded up to whole seconds);
    /// answers when the container has exited. Idempotent.
    async fn stop_container(&self, container_id: &str, grace: Duration)
    -> Result<(), RuntimeError>;

    /// Removes a container, killing it first if it runs. Idempotent.
    async fn remove_container(&self, container_id: &str) -> Result<(), RuntimeError>;

    /// Ends and forgets what is left of a start that the runtime gave up, where that
    /// keeps the container from being removed; whether there was anything. Idempotent.
    /// Not a call of the CRI: containerd's own, `Unimplemented` in others.
    async fn delete_task(&self, container_id: &str) -> Result<bool, RuntimeError>;

    /// Changes limits of a container that exists.
    async fn update_container_resources(
        &self,
        container_id: &str,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), RuntimeError>;

    /// Runs a command in a container and waits for its end, at most `timeout`
    /// (rounded up to whole seconds). Of what it prints only the first
    /// [`MAX_EXEC_OUTPUT_BYTES`](crate::MAX_EXEC_OUTPUT_BYTES) of each stream come.
    async fn exec_sync(
        &self,
        container_id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, RuntimeError>;

    /// Makes the runtime open the container's log file anew, after a rotation.
    async fn reopen_container_log(&self, container_id: &str) -> Result<(), RuntimeError>;

    /// Pulls an image and answers with the reference to use from then on.
    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, RuntimeError>;

    /// Removes an image. Idempotent.
    async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), RuntimeError>;

    /// Tells the runtime what only the cluster knows: the networks of the node's pods.
    /// Idempotent.
    async fn update_runtime_config(&self, config: v1::RuntimeConfig) -> Result<(), RuntimeError>;
}

/// Commands and connections that people ask for. Each method but the last answers with the
/// address at which the runtime serves one session, as the runtime gives it.
#[async_trait]
pub trait RuntimeSessions: Send + Sync {
    /// A session with a command in a container.
    async fn exec(&self, request: v1::ExecRequest) -> Result<String, RuntimeError>;

    /// A session with the process of a container.
    async fn attach(&self, request: v1::AttachRequest) -> Result<String, RuntimeError>;

    /// A session with ports of a sandbox.
    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, RuntimeError>;

    /// Runs a command in a container as [`RuntimeChanges::exec_sync`] does, and answers with
    /// all that it prints.
    async fn run_command(
        &self,
        container_id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, RuntimeError>;
}
