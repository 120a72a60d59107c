//! What a simulated runtime shows of its sandboxes and containers: to callers of
//! the CRI, and to tests. Nothing changes here.

use std::collections::BTreeMap;
use std::sync::Arc;

use clock::UnixNanos;
use cri::v1::{
    Container, ContainerConfig, ContainerFilter, ContainerState, ContainerStatus, ImageSpec,
    LinuxPodSandboxStatus, Namespace, PodIp, PodSandbox, PodSandboxConfig, PodSandboxFilter,
    PodSandboxNetworkStatus, PodSandboxState, PodSandboxStatus,
};

use super::{SimulatedContainer, SimulatedSandbox, State};

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
    /// Whether a start of it was begun and has not ended.
    pub is_starting: bool,
    /// Whether it runs.
    pub running: bool,
    /// What it was made from.
    pub config: Arc<ContainerConfig>,
}

/// What there is to see.
pub(crate) trait Shown {
    fn list_sandboxes(&self, filter: &PodSandboxFilter) -> Vec<PodSandbox>;
    fn sandbox_status(&self, id: &str) -> Option<PodSandboxStatus>;
    fn list_containers(&self, now: UnixNanos, filter: &ContainerFilter) -> Vec<Container>;
    fn container_status(&self, id: &str, now: UnixNanos) -> Option<ContainerStatus>;
    fn sandbox_views(&self) -> Vec<SandboxView>;
    fn container_views(&self) -> Vec<ContainerView>;
    /// The newest container of a name in the pod whose first sandbox has a label.
    fn newest(&self, label: (&str, &str), name: &str) -> Option<ContainerView>;
}

impl Shown for State {
    fn list_sandboxes(&self, filter: &PodSandboxFilter) -> Vec<PodSandbox> {
        let wanted = |(id, sandbox): &(&String, &SimulatedSandbox)| {
            let state = filter.state.as_ref();
            (filter.id.is_empty() || **id == filter.id)
                && state.is_none_or(|wanted| sandbox.state as i32 == wanted.state)
                && has_labels(&sandbox.config.labels, &filter.label_selector)
        };
        let mut sandboxes: Vec<_> = self.sandboxes.iter().filter(wanted).collect();
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

    fn list_containers(&self, now: UnixNanos, filter: &ContainerFilter) -> Vec<Container> {
        let wanted = |(id, container): &(&String, &SimulatedContainer)| {
            let (state, sandbox) = (filter.state.as_ref(), &filter.pod_sandbox_id);
            (filter.id.is_empty() || **id == filter.id)
                && (sandbox.is_empty() || container.sandbox == *sandbox)
                && state.is_none_or(|wanted| container.shown_state(now) as i32 == wanted.state)
                && has_labels(&container.config.labels, &filter.label_selector)
        };
        let mut containers: Vec<_> = self.containers.iter().filter(wanted).collect();
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
            user: None,
            stop_signal: container.config.stop_signal,
        })
    }

    fn sandbox_views(&self) -> Vec<SandboxView> {
        self.sandboxes
            .iter()
            .map(|(id, sandbox)| SandboxView {
                id: id.clone(),
                pod_uid: match &sandbox.config.metadata {
                    Some(metadata) => metadata.uid.clone(),
                    None => String::new(),
                },
                ready: sandbox.state == PodSandboxState::SandboxReady,
                config: Arc::clone(&sandbox.config),
            })
            .collect()
    }

    fn container_views(&self) -> Vec<ContainerView> {
        let all = self.containers.iter();
        all.map(|(id, container)| view(id, container)).collect()
    }

    fn newest(&self, (key, value): (&str, &str), name: &str) -> Option<ContainerView> {
        let mut sandboxes = self.sandboxes.values();
        let labelled =
            |it: &&SimulatedSandbox| it.config.labels.get(key).is_some_and(|it| it == value);
        let sandbox = sandboxes.find(labelled)?;
        let uid = &sandbox.config.metadata.as_ref()?.uid;
        let of_pod = self
            .containers
            .iter()
            .filter(|(_, container)| container.names() == (uid, name));
        let (id, newest) = of_pod.max_by_key(|(_, container)| {
            let metadata = container.config.metadata.as_ref();
            metadata.map(|metadata| metadata.attempt)
        })?;
        Some(view(id, newest))
    }
}

fn view(id: &str, container: &SimulatedContainer) -> ContainerView {
    let (pod_uid, name) = container.names();
    ContainerView {
        id: id.to_owned(),
        pod_uid: pod_uid.to_owned(),
        name: name.to_owned(),
        is_starting: container.is_starting,
        running: container.state == ContainerState::ContainerRunning,
        config: Arc::clone(&container.config),
    }
}

fn has_labels(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}
