//! The floor: the CRI calls that the work needs at least, and nothing else.

use std::time::Duration;

use anyhow::Result;
use cri::{ContainerRuntime, v1};
use test_support::images::TESTAPP;

use crate::world::{JOURNAL_DIRECTORY, World};

const GRACE: Duration = Duration::from_secs(5);

/// A pod made by direct calls.
#[derive(Debug)]
pub(crate) struct DirectPod {
    pub(crate) sandbox: String,
    pub(crate) container: String,
    config: v1::PodSandboxConfig,
}

fn sandbox_config(world: &World, name: &str) -> v1::PodSandboxConfig {
    let log_directory = world.bulkhead.paths().log.join("direct").join(name);
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("direct-{name}"),
            // Not the labels of a pod: Bulkhead must leave these alone.
            namespace: "direct".to_owned(),
            attempt: 0,
        }),
        log_directory: log_directory.to_string_lossy().into_owned(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: format!("{}/direct", world.bulkhead.node().cgroup_root()),
            ..v1::LinuxPodSandboxConfig::default()
        }),
        ..v1::PodSandboxConfig::default()
    }
}

fn container_config(world: &World, name: &str, attempt: u32, more: &[&str]) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: "main".to_owned(),
            attempt,
        }),
        image: Some(v1::ImageSpec {
            image: TESTAPP.to_owned(),
            ..v1::ImageSpec::default()
        }),
        args: World::program_arguments(name, more),
        mounts: vec![v1::Mount {
            container_path: JOURNAL_DIRECTORY.to_owned(),
            host_path: world.bulkhead.paths().shared.to_string_lossy().into_owned(),
            ..v1::Mount::default()
        }],
        log_path: format!("main-{attempt}.log"),
        linux: Some(v1::LinuxContainerConfig::default()),
        ..v1::ContainerConfig::default()
    }
}

/// Starts a pod: sandbox, container, start.
pub(crate) async fn start(world: &World, name: &str, more: &[&str]) -> Result<DirectPod> {
    let runtime = world.containerd.client();
    let config = sandbox_config(world, name);
    let sandbox = runtime.run_pod_sandbox(config.clone(), "").await?;
    let container = runtime
        .create_container(
            &sandbox,
            container_config(world, name, 0, more),
            config.clone(),
        )
        .await?;
    runtime.start_container(&container).await?;
    Ok(DirectPod {
        sandbox,
        container,
        config,
    })
}

/// Creates and starts a further container in a sandbox that runs.
pub(crate) async fn start_again(
    world: &World,
    pod: &DirectPod,
    name: &str,
    attempt: u32,
    more: &[&str],
) -> Result<()> {
    let runtime = world.containerd.client();
    let container = runtime
        .create_container(
            &pod.sandbox,
            container_config(world, name, attempt, more),
            pod.config.clone(),
        )
        .await?;
    runtime.start_container(&container).await?;
    Ok(())
}

/// Stops a pod: container, then sandbox.
pub(crate) async fn stop(world: &World, pod: &DirectPod) -> Result<()> {
    let runtime = world.containerd.client();
    runtime.stop_container(&pod.container, GRACE).await?;
    runtime.stop_pod_sandbox(&pod.sandbox).await?;
    Ok(())
}

/// Removes what is left of a pod.
pub(crate) async fn remove(world: &World, pod: &DirectPod) -> Result<()> {
    let runtime = world.containerd.client();
    runtime.stop_pod_sandbox(&pod.sandbox).await?;
    runtime.remove_pod_sandbox(&pod.sandbox).await?;
    Ok(())
}
