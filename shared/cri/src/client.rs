//! [`CriClient`]: the runtime at the other end of a Unix socket.
//!
//! Here: what each method asks and how long it may take. An answer is untrusted: lists are
//! bounded, ids are checked before anybody makes a path of them, and an item that fails its
//! check is left out without harm to the rest.

mod call;
mod connection;
mod deadlines;
mod exec_output;
mod sessions;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;

use crate::proto::containerd::services::events::v1::SubscribeRequest;
use crate::proto::runtime::v1;
use crate::runtime::{RuntimeChanges, RuntimeReads};
use crate::{EXEC_SYNC, EventSource, RuntimeError, RuntimeErrorKind, RuntimeEvents, events};

pub use connection::{ConnectError, CriClient, OnConnection};
pub use deadlines::{DEFAULT_DEADLINE, RUN_POD_SANDBOX_DEADLINE};
pub use exec_output::MAX_EXEC_OUTPUT_BYTES;

use call::{
    MAX_LIST_ITEMS, call, checked_id, checked_list, in_turn, required, subscribe, whole_seconds,
};
use deadlines::{PULL_IMAGE_DEADLINE, USAGE_DEADLINE};

#[async_trait]
impl RuntimeReads for CriClient {
    async fn version(&self) -> Result<v1::VersionResponse, RuntimeError> {
        let version = "v1".to_owned();
        let message = v1::VersionRequest { version };
        let mut client = self.runtime.clone();
        call("Version", DEFAULT_DEADLINE, message, |request| {
            client.version(request)
        })
        .await
    }

    async fn status(&self, verbose: bool) -> Result<v1::StatusResponse, RuntimeError> {
        let message = v1::StatusRequest { verbose };
        let mut client = self.runtime.clone();
        call("Status", DEFAULT_DEADLINE, message, |request| {
            client.status(request)
        })
        .await
    }

    async fn runtime_config(&self) -> Result<v1::RuntimeConfigResponse, RuntimeError> {
        let message = v1::RuntimeConfigRequest {};
        let mut client = self.runtime.clone();
        call("RuntimeConfig", DEFAULT_DEADLINE, message, |request| {
            client.runtime_config(request)
        })
        .await
    }

    async fn pod_sandbox_status(
        &self,
        sandbox_id: &str,
    ) -> Result<v1::PodSandboxStatus, RuntimeError> {
        const METHOD: &str = "PodSandboxStatus";
        let message = v1::PodSandboxStatusRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            verbose: false,
        };
        let mut client = self.runtime.clone();
        let answer = call(METHOD, DEFAULT_DEADLINE, message, |request| {
            client.pod_sandbox_status(request)
        })
        .await?;
        required(METHOD, answer.status)
    }

    async fn list_pod_sandboxes(
        &self,
        filter: v1::PodSandboxFilter,
    ) -> Result<Vec<v1::PodSandbox>, RuntimeError> {
        const METHOD: &str = "ListPodSandbox";
        let message = v1::ListPodSandboxRequest {
            filter: Some(filter),
        };
        let mut client = self.runtime.clone();
        let asked = call(METHOD, DEFAULT_DEADLINE, message, |request| {
            client.list_pod_sandbox(request)
        });
        let answer = in_turn(&self.lists, METHOD, DEFAULT_DEADLINE, asked).await?;
        checked_list(METHOD, answer.items, |sandbox| &sandbox.id)
    }

    async fn running_commands(&self, container_id: &str) -> Result<BTreeSet<String>, RuntimeError> {
        tasks::running_commands(&self.tasks, container_id).await
    }

    async fn list_containers(
        &self,
        filter: v1::ContainerFilter,
    ) -> Result<Vec<v1::Container>, RuntimeError> {
        const METHOD: &str = "ListContainers";
        let message = v1::ListContainersRequest {
            filter: Some(filter),
        };
        let mut client = self.runtime.clone();
        let asked = call(METHOD, DEFAULT_DEADLINE, message, |request| {
            client.list_containers(request)
        });
        let answer = in_turn(&self.lists, METHOD, DEFAULT_DEADLINE, asked).await?;
        checked_list(METHOD, answer.containers, |container| &container.id)
    }

    async fn container_status(
        &self,
        container_id: &str,
    ) -> Result<v1::ContainerStatus, RuntimeError> {
        const METHOD: &str = "ContainerStatus";
        let message = v1::ContainerStatusRequest {
            container_id: container_id.to_owned(),
            verbose: false,
        };
        let mut client = self.runtime.clone();
        let answer = call(METHOD, DEFAULT_DEADLINE, message, |request| {
            client.container_status(request)
        })
        .await?;
        required(METHOD, answer.status)
    }

    async fn container_info(
        &self,
        container_id: &str,
    ) -> Result<BTreeMap<String, String>, RuntimeError> {
        let message = v1::ContainerStatusRequest {
            container_id: container_id.to_owned(),
            verbose: true,
        };
        let mut client = self.runtime.clone();
        let answer = call("ContainerStatus", DEFAULT_DEADLINE, message, |request| {
            client.container_status(request)
        })
        .await?;
        Ok(answer.info)
    }

    async fn container_stats(
        &self,
        container_id: &str,
    ) -> Result<v1::ContainerStats, RuntimeError> {
        const METHOD: &str = "ContainerStats";
        let message = v1::ContainerStatsRequest {
            container_id: container_id.to_owned(),
        };
        let mut client = self.runtime.clone();
        let asked = call(METHOD, USAGE_DEADLINE, message, |request| {
            client.container_stats(request)
        });
        let answer = in_turn(&self.usage, METHOD, USAGE_DEADLINE, asked).await?;
        required(METHOD, answer.stats)
    }

    async fn list_container_stats(
        &self,
        filter: v1::ContainerStatsFilter,
    ) -> Result<Vec<v1::ContainerStats>, RuntimeError> {
        const METHOD: &str = "ListContainerStats";
        let message = v1::ListContainerStatsRequest {
            filter: Some(filter),
        };
        let mut client = self.runtime.clone();
        let asked = call(METHOD, USAGE_DEADLINE, message, |request| {
            client.list_container_stats(request)
        });
        let answer = in_turn(&self.usage, METHOD, USAGE_DEADLINE, asked).await?;
        checked_list(METHOD, answer.stats, |stats| {
            stats
                .attributes
                .as_ref()
                .map_or("", |attributes| &attributes.id)
        })
    }

    async fn pod_sandbox_stats(
        &self,
        sandbox_id: &str,
    ) -> Result<v1::PodSandboxStats, RuntimeError> {
        const METHOD: &str = "PodSandboxStats";
        let message = v1::PodSandboxStatsRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
        };
        let mut client = self.runtime.clone();
        let asked = call(METHOD, USAGE_DEADLINE, message, |request| {
            client.pod_sandbox_stats(request)
        });
        let answer = in_turn(&self.usage, METHOD, USAGE_DEADLINE, asked).await?;
        required(METHOD, answer.stats)
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>, RuntimeError> {
        const METHOD: &str = "ListImages";
        let message = v1::ListImagesRequest { filter: None };
        let mut client = self.images.clone();
        let answer = call(METHOD, DEFAULT_DEADLINE, message, |request| {
            client.list_images(request)
        })
        .await?;
        if answer.images.len() > MAX_LIST_ITEMS {
            let message = format!("answered with {} images", answer.images.len());
            return Err(RuntimeError::new(METHOD, RuntimeErrorKind::Other, message));
        }
        Ok(answer.images)
    }

    async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, RuntimeError> {
        const METHOD: &str = "ImageStatus";
        let message = v1::ImageStatusRequest {
            image: Some(image),
            verbose: false,
        };
        let mut client = self.images.clone();
        let answer = call(METHOD, DEFAULT_DEADLINE, message, |request| {
            client.image_status(request)
        })
        .await?;
        match answer.image {
            Some(image) if image.id.is_empty() => Err(RuntimeError::new(
                METHOD,
                RuntimeErrorKind::Other,
                "the image has no id",
            )),
            image => Ok(image),
        }
    }

    async fn image_fs_info(&self) -> Result<Vec<v1::FilesystemUsage>, RuntimeError> {
        let message = v1::ImageFsInfoRequest {};
        let mut client = self.images.clone();
        call("ImageFsInfo", DEFAULT_DEADLINE, message, |request| {
            client.image_fs_info(request)
        })
        .await
        .map(|answer| answer.image_filesystems)
    }

    async fn events(&self) -> Result<Option<RuntimeEvents>, RuntimeError> {
        const CONTAINERD: &str = "Subscribe";
        let of_containerd = |filters| {
            let mut client = self.containerd_events.clone();
            async move { client.subscribe(SubscribeRequest { filters }).await }
        };
        let mut client = self.events.clone();
        let reply = async move { client.get_container_events(v1::GetEventsRequest {}).await };
        match subscribe("GetContainerEvents", reply, events::from_cri).await {
            Ok(stream) => {
                let reply = of_containerd(events::command_filters());
                let commands = subscribe(CONTAINERD, reply, events::command_from_containerd);
                let stream = match commands.await {
                    Ok(commands) => events::both(stream, commands).boxed(),
                    // Another runtime.
                    Err(error) if error.kind == RuntimeErrorKind::Unimplemented => stream.boxed(),
                    Err(error) => return Err(error),
                };
                let source = EventSource::Cri;
                return Ok(Some(RuntimeEvents { source, stream }));
            }
            Err(error) if error.kind == RuntimeErrorKind::Unimplemented => {}
            Err(error) => return Err(error),
        }
        let reply = of_containerd(events::containerd_filters());
        match subscribe(CONTAINERD, reply, events::from_containerd).await {
            Ok(stream) => {
                let stream = stream.boxed();
                Ok(Some(RuntimeEvents {
                    source: EventSource::Containerd,
                    stream,
                }))
            }
            Err(error) if error.kind == RuntimeErrorKind::Unimplemented => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl RuntimeChanges for CriClient {
    async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<String, RuntimeError> {
        const METHOD: &str = "RunPodSandbox";
        let message = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: runtime_handler.to_owned(),
        };
        let mut client = self.runtime.clone();
        let answer = call(METHOD, RUN_POD_SANDBOX_DEADLINE, message, |request| {
            client.run_pod_sandbox(request)
        })
        .await?;
        checked_id(METHOD, answer.pod_sandbox_id)
    }

    async fn stop_pod_sandbox(&self, sandbox_id: &str) -> Result<(), RuntimeError> {
        let message = v1::StopPodSandboxRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
        };
        let mut client = self.runtime.clone();
        call("StopPodSandbox", DEFAULT_DEADLINE, message, |request| {
            client.stop_pod_sandbox(request)
        })
        .await
        .map(drop)
    }

    async fn remove_pod_sandbox(&self, sandbox_id: &str) -> Result<(), RuntimeError> {
        let message = v1::RemovePodSandboxRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
        };
        let mut client = self.runtime.clone();
        call("RemovePodSandbox", DEFAULT_DEADLINE, message, |request| {
            client.remove_pod_sandbox(request)
        })
        .await
        .map(drop)
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, RuntimeError> {
        const METHOD: &str = "CreateContainer";
        let message = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let mut client = self.runtime.clone();
        let answer = call(METHOD, DEFAULT_DEADLINE, message, |request| {
            client.create_container(request)
        })
        .await?;
        checked_id(METHOD, answer.container_id)
    }

    async fn start_container(&self, container_id: &str) -> Result<(), RuntimeError> {
        let message = v1::StartContainerRequest {
            container_id: container_id.to_owned(),
        };
        let mut client = self.runtime.clone();
        call("StartContainer", DEFAULT_DEADLINE, message, |request| {
            client.start_container(request)
        })
        .await
        .map(drop)
    }

    async fn stop_container(
        &self,
        container_id: &str,
        grace: Duration,
    ) -> Result<(), RuntimeError> {
        let timeout = whole_seconds(grace);
        let message = v1::StopContainerRequest {
            container_id: container_id.to_owned(),
            timeout,
        };
        let mut client = self.runtime.clone();
        let deadline = grace.saturating_add(DEFAULT_DEADLINE);
        call("StopContainer", deadline, message, |request| {
            client.stop_container(request)
        })
        .await
        .map(drop)
    }

    async fn remove_container(&self, container_id: &str) -> Result<(), RuntimeError> {
        let message = v1::RemoveContainerRequest {
            container_id: container_id.to_owned(),
        };
        let mut client = self.runtime.clone();
        call("RemoveContainer", DEFAULT_DEADLINE, message, |request| {
            client.remove_container(request)
        })
        .await
        .map(drop)
    }

    async fn delete_task(&self, container_id: &str) -> Result<bool, RuntimeError> {
        tasks::delete(&self.tasks, container_id).await
    }

    async fn update_container_resources(
        &self,
        container_id: &str,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        let message = v1::UpdateContainerResourcesRequest {
            container_id: container_id.to_owned(),
            linux: Some(resources),
            ..v1::UpdateContainerResourcesRequest::default()
        };
        let mut client = self.runtime.clone();
        call(
            "UpdateContainerResources",
            DEFAULT_DEADLINE,
            message,
            |request| client.update_container_resources(request),
        )
        .await
        .map(drop)
    }

    async fn exec_sync(
        &self,
        container_id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, RuntimeError> {
        let message = v1::ExecSyncRequest {
            container_id: container_id.to_owned(),
            cmd: command,
            timeout: whole_seconds(timeout),
        };
        let mut client = self.commands.clone();
        let deadline = timeout.saturating_add(DEFAULT_DEADLINE);
        call(EXEC_SYNC, deadline, message, |request| {
            client.exec_sync(request)
        })
        .await
    }

    async fn reopen_container_log(&self, container_id: &str) -> Result<(), RuntimeError> {
        let message = v1::ReopenContainerLogRequest {
            container_id: container_id.to_owned(),
        };
        let mut client = self.runtime.clone();
        call("ReopenContainerLog", DEFAULT_DEADLINE, message, |request| {
            client.reopen_container_log(request)
        })
        .await
        .map(drop)
    }

    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, RuntimeError> {
        const METHOD: &str = "PullImage";
        let message = v1::PullImageRequest {
            image: Some(image),
            auth,
            sandbox_config,
        };
        let mut client = self.images.clone();
        let answer = call(METHOD, PULL_IMAGE_DEADLINE, message, |request| {
            client.pull_image(request)
        })
        .await?;
        if answer.image_ref.is_empty() {
            let message = "the answer names no image";
            return Err(RuntimeError::new(METHOD, RuntimeErrorKind::Other, message));
        }
        Ok(answer.image_ref)
    }

    async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), RuntimeError> {
        let message = v1::RemoveImageRequest { image: Some(image) };
        let mut client = self.images.clone();
        call("RemoveImage", DEFAULT_DEADLINE, message, |request| {
            client.remove_image(request)
        })
        .await
        .map(drop)
    }

    async fn update_runtime_config(&self, config: v1::RuntimeConfig) -> Result<(), RuntimeError> {
        let message = v1::UpdateRuntimeConfigRequest {
            runtime_config: Some(config),
        };
        let mut client = self.runtime.clone();
        call(
            "UpdateRuntimeConfig",
            DEFAULT_DEADLINE,
            message,
            |request| client.update_runtime_config(request),
        )
        .await
        .map(drop)
    }
}

#[cfg(test)]
mod tests;
