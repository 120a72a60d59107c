//! The floor: the CRI calls that the work needs at least, and nothing else.
//!
//! What they ask for is what Bulkhead asks for, made by the same code from the same
//! manifest, but for the labels by which Bulkhead would know a pod as its own, and the
//! cgroup of each pod, which is the agent's work.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use cri::{RuntimeChanges as _, v1};
use cri_requests::{
    ContainerInput, EnvFiles, ImageUser, NodeFacts, TerminationLog, container_config,
    parse_resolv_conf, pod_sandbox_config,
};
use local_objects::Objects;
use node_config::{NODE_CONFIG_FILE, NodeConfig};
use node_layout::NodeCapacity;
use pod::{Pod, PodExt as _};
use pod_volumes::MountedVolume;
use serde_json::{Value, json};
use test_support::images::TESTAPP;

use crate::world::World;

const GRACE: Duration = Duration::from_secs(5);

/// The node's own, which pods get without a cluster's DNS.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// A pod made by direct calls.
#[derive(Debug)]
pub(crate) struct DirectPod {
    pub(crate) sandbox: String,
    pub(crate) container: String,
    config: v1::PodSandboxConfig,
}

/// The pod that Bulkhead would run for this manifest, in a namespace of its own.
fn pod(mut manifest: Value) -> Result<Pod> {
    let name = manifest["metadata"]["name"].as_str();
    let uid = format!("direct-{}", name.context("a manifest without a name")?);
    manifest["metadata"]["namespace"] = json!("direct");
    manifest["metadata"]["uid"] = json!(uid);
    Ok(serde_json::from_value(manifest)?)
}

fn node(world: &World) -> Result<NodeFacts> {
    let config = NodeConfig::read(&world.bulkhead.paths().run.join(NODE_CONFIG_FILE))?;
    let capacity = NodeCapacity {
        memory_bytes: 1 << 34,
        // The sizes of x86; a request has a limit for each that the kernel knows.
        huge_pages: [(2 << 20, 0), (1 << 30, 0)].into(),
        ..NodeCapacity::default()
    };
    Ok(NodeFacts::new(&config, &capacity))
}

fn sandbox_config(world: &World, pod: &Pod, node: &NodeFacts) -> Result<v1::PodSandboxConfig> {
    let resolv_conf = parse_resolv_conf(&std::fs::read_to_string(RESOLV_CONF)?)?;
    let mut config = pod_sandbox_config(pod, 0, node, (Some(&resolv_conf), None))?.config;
    config.labels.clear();
    let linux = config.linux.as_mut().context("a sandbox without Linux")?;
    linux.cgroup_parent = format!("{}/direct", world.bulkhead.node().cgroup_root());
    Ok(config)
}

/// The request for the pod's container; one file of the node stands for those that an
/// agent writes for each pod.
fn container_request(
    world: &World,
    pod: &Pod,
    node: &NodeFacts,
    attempt: u32,
) -> Result<v1::ContainerConfig> {
    let journal = MountedVolume {
        host_path: world.bulkhead.paths().shared.clone(),
        read_only: false,
    };
    let mut config = container_config(&ContainerInput {
        pod,
        container: pod
            .containers()
            .first()
            .context("a pod without containers")?,
        process_namespace_of: None,
        attempt,
        image_id: TESTAPP,
        image_user: &ImageUser::Uid(0),
        node,
        ids: None,
        pod_ips: &[],
        volumes: &[("journal".to_owned(), journal)].into(),
        volume_images: &BTreeMap::new(),
        objects: &Objects::default(),
        env_files: &EnvFiles::default(),
        service_variables: &BTreeMap::new(),
        recursive_read_only: false,
        runtime: None,
        sub_paths: &BTreeMap::new(),
        hosts_file: world.mounted_file(),
        termination_log: Some(TerminationLog {
            host_path: world.mounted_file(),
            container_path: "/dev/termination-log".to_owned(),
        }),
    })?;
    config.labels.clear();
    config.log_path = format!("main-{attempt}.log");
    Ok(config)
}

/// Starts the pod of a manifest: sandbox, container, start.
pub(crate) async fn start(world: &World, manifest: Value) -> Result<DirectPod> {
    let runtime = world.containerd.client();
    let (pod, node) = (pod(manifest)?, node(world)?);
    let config = sandbox_config(world, &pod, &node)?;
    let request = container_request(world, &pod, &node, 0)?;
    let sandbox = runtime.run_pod_sandbox(config.clone(), "").await?;
    let container = runtime
        .create_container(&sandbox, request, config.clone())
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
    manifest: Value,
    attempt: u32,
) -> Result<()> {
    let runtime = world.containerd.client();
    let request = container_request(world, &self::pod(manifest)?, &node(world)?, attempt)?;
    let container = runtime
        .create_container(&pod.sandbox, request, pod.config.clone())
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
