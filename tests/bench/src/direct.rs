//! The floor: the CRI calls that the work needs at least, and nothing else.
//!
//! What they ask for is the container that Bulkhead and a kubelet ask for, with the
//! same paths hidden and the same files mounted. Each of these is a mount for the
//! runtime to make; with them runc computes twice as much inside a new container.

use std::path::Path;
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

/// What a kubelet hides from a container of the files of /proc and /sys.
const MASKED_PATHS: [&str; 9] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];

/// What it lets a container only read.
const READONLY_PATHS: [&str; 6] = [
    "/proc/asound",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The files that a kubelet mounts into each container: from a file of the node, the
/// same for all, which stands for those that an agent writes for each pod.
const MOUNTED_FILES: [&str; 2] = ["/etc/hosts", "/dev/termination-log"];

fn container_config(world: &World, name: &str, attempt: u32, more: &[&str]) -> v1::ContainerConfig {
    let mount = |container_path: &str, host_path: &Path| v1::Mount {
        container_path: container_path.to_owned(),
        host_path: host_path.to_string_lossy().into_owned(),
        ..v1::Mount::default()
    };
    let files = MOUNTED_FILES.map(|path| mount(path, &world.mounted_file()));
    let journal = mount(JOURNAL_DIRECTORY, &world.bulkhead.paths().shared);
    let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
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
        mounts: files.into_iter().chain([journal]).collect(),
        log_path: format!("main-{attempt}.log"),
        linux: Some(v1::LinuxContainerConfig {
            security_context: Some(v1::LinuxContainerSecurityContext {
                masked_paths: owned(&MASKED_PATHS),
                readonly_paths: owned(&READONLY_PATHS),
                ..v1::LinuxContainerSecurityContext::default()
            }),
            ..v1::LinuxContainerConfig::default()
        }),
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
