//! The CRI of a simulated runtime: what each call does, and how long it usually
//! takes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use cri::{
    EventKind, EventSource, RuntimeChanges, RuntimeError, RuntimeErrorKind, RuntimeEvent,
    RuntimeEvents, RuntimeReads, v1,
};
use tokio::sync::oneshot;

use super::{SimulatedRuntime, lock, millis};
use crate::behaviour::Behaviour;
use crate::state::commands::Commands as _;
use crate::state::not_found;
use crate::state::shown::Shown as _;

#[async_trait]
impl RuntimeReads for SimulatedRuntime {
    async fn version(&self) -> Result<v1::VersionResponse, RuntimeError> {
        self.perform("Version", millis(1), |runtime| async move {
            let (runtime_name, runtime_version) = lock(&runtime.0.version).clone();
            Ok(v1::VersionResponse {
                version: "0.1.0".to_owned(),
                runtime_name,
                runtime_version,
                runtime_api_version: "v1".to_owned(),
            })
        })
        .await
    }

    async fn status(&self, verbose: bool) -> Result<v1::StatusResponse, RuntimeError> {
        self.perform("Status", millis(1), move |runtime| async move {
            let condition = |name: &str, status| v1::RuntimeCondition {
                r#type: name.to_owned(),
                status,
                ..v1::RuntimeCondition::default()
            };
            let has_network = !lock(&runtime.0.faults).network_down;
            let conditions = vec![
                condition("RuntimeReady", true),
                condition("NetworkReady", has_network),
            ];
            let status = Some(v1::RuntimeStatus { conditions });
            let features = v1::RuntimeHandlerFeatures {
                user_namespaces: runtime.0.user_namespaces.load(Ordering::Relaxed),
                ..v1::RuntimeHandlerFeatures::default()
            };
            let handler = v1::RuntimeHandler {
                name: String::new(),
                features: Some(features),
            };
            // Others do not tell of any.
            let tells = features.user_namespaces;
            let image = lock(&runtime.0.sandbox_image).clone();
            let config = format!(r#"{{"sandboxImage":"{image}"}}"#);
            let config = (verbose && !image.is_empty()).then_some(("config".to_owned(), config));
            Ok(v1::StatusResponse {
                status,
                info: config.into_iter().collect(),
                runtime_handlers: tells.then_some(handler).into_iter().collect(),
                ..v1::StatusResponse::default()
            })
        })
        .await
    }

    async fn runtime_config(&self) -> Result<v1::RuntimeConfigResponse, RuntimeError> {
        let kind = RuntimeErrorKind::Unimplemented;
        Err(RuntimeError::new("RuntimeConfig", kind, "not implemented"))
    }

    async fn pod_sandbox_status(
        &self,
        sandbox_id: &str,
    ) -> Result<v1::PodSandboxStatus, RuntimeError> {
        let id = sandbox_id.to_owned();
        self.perform("PodSandboxStatus", millis(1), move |runtime| async move {
            runtime.fails("PodSandboxStatus", &id)?;
            let status = lock(&runtime.0.state).sandbox_status(&id);
            status.ok_or_else(|| not_found("PodSandboxStatus", &id))
        })
        .await
    }

    async fn list_pod_sandboxes(
        &self,
        filter: v1::PodSandboxFilter,
    ) -> Result<Vec<v1::PodSandbox>, RuntimeError> {
        self.perform("ListPodSandbox", millis(1), move |runtime| async move {
            Ok(lock(&runtime.0.state).list_sandboxes(&filter))
        })
        .await
    }

    async fn running_commands(&self, container_id: &str) -> Result<BTreeSet<String>, RuntimeError> {
        let id = container_id.to_owned();
        self.perform("ListPids", millis(2), move |runtime| async move {
            let running = lock(&runtime.0.state).running_commands(&id);
            running.ok_or_else(|| not_found("ListPids", &id))
        })
        .await
    }

    async fn list_containers(
        &self,
        filter: v1::ContainerFilter,
    ) -> Result<Vec<v1::Container>, RuntimeError> {
        self.perform("ListContainers", millis(1), move |runtime| async move {
            let now = runtime.now().steady;
            Ok(lock(&runtime.0.state).list_containers(now, &filter))
        })
        .await
    }

    async fn container_status(
        &self,
        container_id: &str,
    ) -> Result<v1::ContainerStatus, RuntimeError> {
        let id = container_id.to_owned();
        self.perform("ContainerStatus", millis(1), move |runtime| async move {
            let status = lock(&runtime.0.state).container_status(&id, runtime.now().steady);
            status.ok_or_else(|| not_found("ContainerStatus", &id))
        })
        .await
    }

    async fn container_info(
        &self,
        container_id: &str,
    ) -> Result<BTreeMap<String, String>, RuntimeError> {
        let id = container_id.to_owned();
        self.perform("ContainerStatus", millis(1), move |runtime| async move {
            let state = lock(&runtime.0.state);
            let uid = state.user_of(&id);
            let uid = uid.ok_or_else(|| not_found("ContainerStatus", &id))?;
            let (gid, others) = state.groups_of(&id, uid);
            let namespaces = match state.has_own_users(&id) {
                true => r#"[{"type":"user"}]"#,
                false => "[]",
            };
            let info = format!(
                r#"{{"runtimeSpec":{{"process":{{"user":{{"uid":{uid},"gid":{gid},"additionalGids":{others:?}}}}},
                    "linux":{{"namespaces":{namespaces}}}}}}}"#
            );
            Ok(BTreeMap::from([("info".to_owned(), info)]))
        })
        .await
    }

    async fn container_stats(
        &self,
        container_id: &str,
    ) -> Result<v1::ContainerStats, RuntimeError> {
        let id = container_id.to_owned();
        self.perform("ContainerStats", millis(1), move |runtime| async move {
            let views = lock(&runtime.0.state).container_views();
            let found = views.into_iter().find(|it| it.id == id && it.running);
            let found = found.ok_or_else(|| not_found("ContainerStats", &id))?;
            Ok(runtime.0.container_use.stats_of(found))
        })
        .await
    }

    async fn list_container_stats(
        &self,
        _filter: v1::ContainerStatsFilter,
    ) -> Result<Vec<v1::ContainerStats>, RuntimeError> {
        self.perform("ListContainerStats", millis(1), |runtime| async move {
            let views = lock(&runtime.0.state).container_views();
            // Those that have ended too, as containerd lists them.
            let stats = views
                .into_iter()
                .map(|view| runtime.0.container_use.stats_of(view));
            Ok(stats.collect())
        })
        .await
    }

    async fn pod_sandbox_stats(
        &self,
        _sandbox_id: &str,
    ) -> Result<v1::PodSandboxStats, RuntimeError> {
        self.perform("PodSandboxStats", millis(1), |_| async {
            Ok(v1::PodSandboxStats::default())
        })
        .await
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>, RuntimeError> {
        self.perform("ListImages", millis(1), |runtime| async move {
            Ok(lock(&runtime.0.state).images.all())
        })
        .await
    }

    async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, RuntimeError> {
        self.perform("ImageStatus", millis(1), move |runtime| async move {
            runtime.fails("ImageStatus", &image.image)?;
            Ok(lock(&runtime.0.state).images.get(&image.image))
        })
        .await
    }

    async fn image_fs_info(&self) -> Result<Vec<v1::FilesystemUsage>, RuntimeError> {
        self.perform("ImageFsInfo", millis(1), |_| async {
            let mountpoint = "/images".to_owned();
            Ok(vec![v1::FilesystemUsage {
                fs_id: Some(v1::FilesystemIdentifier { mountpoint }),
                ..v1::FilesystemUsage::default()
            }])
        })
        .await
    }

    async fn events(&self) -> Result<Option<RuntimeEvents>, RuntimeError> {
        if lock(&self.0.faults).unavailable {
            let kind = RuntimeErrorKind::Unavailable;
            return Err(RuntimeError::new("Subscribe", kind, "connection refused"));
        }
        if !self.0.has_events {
            return Ok(None);
        }
        let receiver = self.0.events.subscribe();
        let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Ok(event) => Some((Ok(event), receiver)),
                Err(_) => {
                    let kind = RuntimeErrorKind::Unavailable;
                    Some((
                        Err(RuntimeError::new("Subscribe", kind, "events lost")),
                        receiver,
                    ))
                }
            }
        });
        Ok(Some(RuntimeEvents {
            source: EventSource::Containerd,
            stream: Box::pin(stream),
        }))
    }
}

#[async_trait]
impl RuntimeChanges for SimulatedRuntime {
    async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        _runtime_handler: &str,
    ) -> Result<String, RuntimeError> {
        let faults = *lock(&self.0.faults);
        let delay = faults.sandbox_delay;
        self.perform("RunPodSandbox", millis(60), move |runtime| async move {
            if faults.sandboxes_fail {
                let kind = RuntimeErrorKind::Other;
                let message = "failed to setup network for sandbox";
                return Err(RuntimeError::new("RunPodSandbox", kind, message));
            }
            lock(&runtime.0.state).reserve_sandbox(&config)?;
            runtime.linger(delay).await;
            let id = lock(&runtime.0.state).run_sandbox(runtime.now(), config)?;
            runtime.publish(&id, EventKind::Started);
            Ok(id)
        })
        .await
    }

    async fn stop_pod_sandbox(&self, sandbox_id: &str) -> Result<(), RuntimeError> {
        let id = sandbox_id.to_owned();
        let delay = lock(&self.0.faults).sandbox_stop_delay;
        self.perform("StopPodSandbox", millis(50), move |runtime| async move {
            runtime.linger(delay).await;
            runtime.fails("StopPodSandbox", &id)?;
            let running = lock(&runtime.0.state).stop_sandbox(&id);
            for container in running {
                runtime.end(&container, 137, true);
            }
            runtime.publish(&id, EventKind::Stopped);
            Ok(())
        })
        .await
    }

    async fn remove_pod_sandbox(&self, sandbox_id: &str) -> Result<(), RuntimeError> {
        let id = sandbox_id.to_owned();
        self.perform("RemovePodSandbox", millis(10), move |runtime| async move {
            lock(&runtime.0.state).remove_sandbox(runtime.now(), &id)?;
            runtime.publish(&id, EventKind::Deleted);
            Ok(())
        })
        .await
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: v1::ContainerConfig,
        _sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, RuntimeError> {
        let sandbox = sandbox_id.to_owned();
        let delay = lock(&self.0.faults).container_delay;
        let connection = self.connection();
        self.perform("CreateContainer", millis(5), move |runtime| async move {
            lock(&runtime.0.state).reserve_container(&sandbox, &config)?;
            runtime.linger(delay).await;
            let id = lock(&runtime.0.state).create_container(runtime.now(), &sandbox, config)?;
            if connection != runtime.connection() {
                lock(&runtime.0.state).make_half(&id);
            }
            runtime.publish(&id, EventKind::Created);
            Ok(id)
        })
        .await
    }

    async fn start_container(&self, container_id: &str) -> Result<(), RuntimeError> {
        let id = container_id.to_owned();
        let delay = lock(&self.0.faults).start_delay;
        let connection = self.connection();
        self.perform("StartContainer", millis(40), move |runtime| async move {
            runtime.fails("StartContainer", &id)?;
            lock(&runtime.0.state).begin_start(&id)?;
            runtime.linger(delay).await;
            if connection != runtime.connection() {
                let loses = lock(&runtime.0.faults).loses_tasks;
                lock(&runtime.0.state).cut_start_short(runtime.now(), &id, loses);
                runtime.publish(&id, EventKind::Stopped);
                return Ok(());
            }
            let behaviour = lock(&runtime.0.state).start_container(runtime.now(), &id)?;
            runtime.publish(&id, EventKind::Started);
            runtime.run_to_its_end(id, behaviour);
            Ok(())
        })
        .await
    }

    async fn stop_container(
        &self,
        container_id: &str,
        grace: Duration,
    ) -> Result<(), RuntimeError> {
        let id = container_id.to_owned();
        // Lives as long as this call: what is done goes by who waits for it.
        let (_here, caller) = oneshot::channel();
        self.perform("StopContainer", millis(5), move |runtime| async move {
            runtime.stop(&id, grace, caller).await;
            Ok(())
        })
        .await
    }

    async fn remove_container(&self, container_id: &str) -> Result<(), RuntimeError> {
        let id = container_id.to_owned();
        let delay = lock(&self.0.faults).container_removal_delay;
        self.perform("RemoveContainer", millis(2), move |runtime| async move {
            runtime.linger(delay).await;
            runtime.fails("RemoveContainer", &id)?;
            let mut state = lock(&runtime.0.state);
            if let Some(message) = state.why_held(&id) {
                return Err(RuntimeError::refused("RemoveContainer", message));
            }
            state.remove_container(runtime.now(), &id);
            drop(state);
            runtime.publish(&id, EventKind::Deleted);
            Ok(())
        })
        .await
    }

    async fn delete_task(&self, container_id: &str) -> Result<bool, RuntimeError> {
        let id = container_id.to_owned();
        self.perform("Delete", millis(30), move |runtime| async move {
            // It kills what it finds.
            runtime.end(&id, 137, true);
            Ok(lock(&runtime.0.state).delete_lost_task(&id))
        })
        .await
    }

    async fn update_container_resources(
        &self,
        container_id: &str,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        const METHOD: &str = "UpdateContainerResources";
        let id = container_id.to_owned();
        self.perform(METHOD, millis(7), move |runtime| async move {
            lock(&runtime.0.state).update_resources(&id, resources)
        })
        .await
    }

    async fn exec_sync(
        &self,
        container_id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, RuntimeError> {
        let id = container_id.to_owned();
        let result = self
            .perform("ExecSync", millis(20), move |runtime| async move {
                let found = lock(&runtime.0.state).container_status(&id, runtime.now().steady);
                let status = found.ok_or_else(|| not_found("ExecSync", &id))?;
                let name = status.metadata.unwrap_or_default().name;
                let scripted = lock(&runtime.0.exec_results).get(&name).copied();
                let of_hook = Behaviour::of_hook(&command);
                let (exit_code, after) = of_hook.or(scripted).unwrap_or_default();
                let begun = lock(&runtime.0.state).execute(runtime.now(), &id, command);
                let Some(number) = begun else {
                    let message = "container is in another state than running";
                    return Err(RuntimeError::new(
                        "ExecSync",
                        RuntimeErrorKind::Other,
                        message,
                    ));
                };
                let faults = *lock(&runtime.0.faults);
                runtime.linger(faults.exec_delay).await;
                // No event of the pod's: none of these is lost by chance.
                drop(runtime.0.events.send(RuntimeEvent {
                    container_id: id.clone(),
                    kind: EventKind::CommandStarted,
                    pod_uid: None,
                }));
                tokio::time::sleep(after.min(timeout)).await;
                lock(&runtime.0.state).command_ended(runtime.now(), &id, number);
                runtime.linger(faults.exec_output_delay).await;
                if after > timeout {
                    let kind = RuntimeErrorKind::DeadlineExceeded;
                    return Err(RuntimeError::new("ExecSync", kind, "timeout exceeded"));
                }
                Ok(v1::ExecSyncResponse {
                    exit_code,
                    ..v1::ExecSyncResponse::default()
                })
            })
            .await;
        if result.is_err() {
            lock(&self.0.state).command_failed(self.now(), container_id);
        }
        result
    }

    async fn reopen_container_log(&self, _container_id: &str) -> Result<(), RuntimeError> {
        self.perform("ReopenContainerLog", millis(1), |_| async { Ok(()) })
            .await
    }

    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        _sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, RuntimeError> {
        self.note_pull(&image.image);
        self.perform("PullImage", millis(300), move |runtime| async move {
            runtime.until_pull_goes_on(&image.image).await;
            lock(&runtime.0.registry).authorize(&image.image, auth)?;
            let now = runtime.now().steady;
            lock(&runtime.0.state).images.pull(now, &image.image)
        })
        .await
    }

    async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), RuntimeError> {
        let delay = lock(&self.0.faults).image_removal_delay;
        self.perform("RemoveImage", millis(5), move |runtime| async move {
            runtime.linger(delay).await;
            lock(&runtime.0.state).images.remove(&image.image);
            Ok(())
        })
        .await
    }

    async fn update_runtime_config(&self, config: v1::RuntimeConfig) -> Result<(), RuntimeError> {
        const METHOD: &str = "UpdateRuntimeConfig";
        let network = config.network_config.unwrap_or_default();
        self.perform(METHOD, millis(1), move |runtime| async move {
            runtime.fails(METHOD, &network.pod_cidr)
        })
        .await
    }
}
