//! What a simulated runtime shows of its sandboxes and containers: to callers of
//! the CRI, and to tests. Nothing changes here.

use std::sync::Arc;

use clock::UnixNanos;
use cri::v1::{
    Container, ContainerConfig, ContainerState, ContainerStatus, ImageSpec, LinuxPodSandboxStatus,
    Namespace, PodIp, PodSandbox, PodSandboxConfig, PodSandboxNetworkStatus, PodSandboxState,
    PodSandboxStatus,
};

use super::State;

/// A sandbox, as a test sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxView {
    /// Its id.
    pub id: String,
    /// UID of its pod.
    pub pod_uid: String,
    /// Whether it is ready.
    pub ready: bool,
    /// What it was made from.
    pub config: Arc<PodSandboxConfig>,
}

/// A container, as a test sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerView {
    /// Its id.
    pub id: String,
    /// UID of its pod.
    pub pod_uid: String,
    /// Its name in the pod.
    pub name: String,
    /// Whether it runs.
    pub running: bool,
    /// What it was made from.
    pub config: Arc<ContainerConfig>,
}

/// What there is to see.
pub(crate) trait Shown {
    fn list_sandboxes(&self) -> Vec<PodSandbox>;
    fn sandbox_status(&self, id: &str) -> Option<PodSandboxStatus>;
    fn list_containers(&self, now: UnixNanos) -> Vec<Container>;
    fn container_status(&self, id: &str, now: UnixNanos) -> Option<ContainerStatus>;
    fn sandbox_views(&self) -> Vec<SandboxView>;
    fn container_views(&self) -> Vec<ContainerView>;
}

impl Shown for State {
    fn list_sandboxes(&self) -> Vec<PodSandbox> {
        let mut sandboxes: Vec<_> = self.sandboxes.iter().collect();
        sandboxes.sort_by_key(|(_, sandbox)| std::cmp::Reverse(sandbox.sequence));
        sandboxes
            .into_iter()
            .map(|(id, sandbox)| PodSandbox {
                id: id.clone(),
                metadata: sandbox.config.metadata.clone(),
                state: sandbox.state.into(),
                created_at: sandbox.created_at.0,
                labels: sandbox.config.labels.clone(),
                annotations: sandbox.config.annotations.clone(),
                runtime_handler: String::new(),
            })
            .collect()
    }

    fn sandbox_status(&self, id: &str) -> Option<PodSandboxStatus> {
        let sandbox = self.sandboxes.get(id)?;
        let options = sandbox
            .config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref())
            .and_then(|context| context.namespace_options.clone());
        let on_host = options
            .as_ref()
            .is_some_and(|options| options.network() == cri::v1::NamespaceMode::Node);
        let ip = if on_host {
            String::new()
        } else {
            sandbox.ip.clone()
        };
        Some(PodSandboxStatus {
            id: id.to_owned(),
            metadata: sandbox.config.metadata.clone(),
            state: sandbox.state.into(),
            created_at: sandbox.created_at.0,
            network: Some(PodSandboxNetworkStatus {
                ip,
                additional_ips: Vec::<PodIp>::new(),
            }),
            linux: Some(LinuxPodSandboxStatus {
                namespaces: Some(Namespace { options }),
            }),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: String::new(),
        })
    }

    fn list_containers(&self, now: UnixNanos) -> Vec<Container> {
        let mut containers: Vec<_> = self.containers.iter().collect();
        containers.sort_by_key(|(_, container)| std::cmp::Reverse(container.sequence));
        containers
            .into_iter()
            .map(|(id, container)| Container {
                id: id.clone(),
                pod_sandbox_id: container.sandbox.clone(),
                metadata: container.config.metadata.clone(),
                image: container.config.image.clone(),
                image_ref: container.config.image.clone().unwrap_or_default().image,
                state: container.shown_state(now).into(),
                created_at: container.created_at.0,
                labels: container.config.labels.clone(),
                annotations: container.config.annotations.clone(),
            })
            .collect()
    }

    fn container_status(&self, id: &str, now: UnixNanos) -> Option<ContainerStatus> {
        let container = self.containers.get(id)?;
        let mut exit = (
            container.finished_at.0,
            container.exit_code,
            container.reason,
        );
        if container.hides_its_exit(now) {
            exit = (0, 0, "");
        }
        let (finished_at, exit_code, reason) = exit;
        let image = container.config.image.clone().unwrap_or_default().image;
        let log_directory = self
            .sandboxes
            .get(&container.sandbox)
            .map(|sandbox| sandbox.config.log_directory.clone())
            .unwrap_or_default();
        Some(ContainerStatus {
            id: id.to_owned(),
            metadata: container.config.metadata.clone(),
            state: container.shown_state(now).into(),
            created_at: container.created_at.0,
            started_at: container.started_at.0,
            finished_at,
            exit_code,
            image: Some(ImageSpec {
                image: self
                    .images
                    .get(&image)
                    .and_then(|image| image.repo_tags.first().cloned())
                    .unwrap_or_else(|| image.clone()),
                ..ImageSpec::default()
            }),
            image_ref: image,
            reason: reason.to_owned(),
            message: container.message.clone(),
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
            mounts: container.config.mounts.clone(),
            log_path: format!("{log_directory}/{}", container.config.log_path),
            resources: None,
            stop_signal: container.config.stop_signal,
        })
    }

    fn sandbox_views(&self) -> Vec<SandboxView> {
        self.sandboxes
            .iter()
            .map(|(id, sandbox)| SandboxView {
                id: id.clone(),
                pod_uid: sandbox.config.metadata.clone().unwrap_or_default().uid,
                ready: sandbox.state == PodSandboxState::SandboxReady,
                config: Arc::clone(&sandbox.config),
            })
            .collect()
    }

    fn container_views(&self) -> Vec<ContainerView> {
        self.containers
            .iter()
            .map(|(id, container)| {
                let (pod_uid, name) = self.names_of(id);
                ContainerView {
                    id: id.clone(),
                    pod_uid,
                    name,
                    running: container.state == ContainerState::ContainerRunning,
                    config: Arc::clone(&container.config),
                }
            })
            .collect()
    }
}
