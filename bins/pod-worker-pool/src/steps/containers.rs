//! What all containers of a pod need before any of them is created.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use cri::v1;
use local_objects::Objects;
use node_layout::IdRange;
use pod::PodExt;
use pod_lifecycle::observation::Observation;
use pod_lifecycle::plan::Start;
use pod_volumes::{MountedVolume, ReadyVolume};

use super::context::StepContext;
use super::error::{Retry, StepError};
use super::target::Target;
use super::{sandbox_config, user_namespace};

/// What containers are created with.
pub(super) struct Prepared {
    pub(super) sandbox_id: String,
    pub(super) sandbox_config: v1::PodSandboxConfig,
    /// The pod's ids, if it has users of its own.
    pub(super) ids: Option<IdRange>,
    pub(super) pod_ips: Vec<IpAddr>,
    pub(super) volumes: BTreeMap<String, MountedVolume>,
    pub(super) objects: Objects,
    pub(super) hosts_file: PathBuf,
    /// The newest instance of each container in the sandbox, by the container's name.
    pub(super) instances: BTreeMap<String, String>,
}

pub(super) async fn prepare_containers(
    context: &StepContext,
    target: &Target<'_>,
    observation: &Observation,
    starts: &[Start],
    (volumes, objects): (&BTreeMap<String, ReadyVolume>, &Objects),
) -> Result<Prepared, StepError> {
    let id = starts.first().map(|start| &start.sandbox_id);
    let mut sandboxes = observation.sandboxes.iter();
    let Some(sandbox) = sandboxes.find(|sandbox| Some(&sandbox.id) == id) else {
        return Err(StepError::new("the sandbox is gone", Retry::SOON));
    };
    let ids = user_namespace::ids(context, target).await?;
    let about = (sandbox.attempt, ids);
    let config = sandbox_config::sandbox_config(context, target, observation, about).await?;
    let ips = sandbox.network.ips().iter();
    let pod_ips: Vec<IpAddr> = ips.filter_map(|ip| ip.parse().ok()).collect();
    Ok(Prepared {
        sandbox_id: sandbox.id.clone(),
        sandbox_config: config.config,
        volumes: mounted(volumes),
        objects: objects.clone(),
        hosts_file: write_hosts_file(context, target, &pod_ips).await?,
        instances: instances(observation, &sandbox.id),
        pod_ips,
        ids,
    })
}

fn instances(observation: &Observation, sandbox_id: &str) -> BTreeMap<String, String> {
    let all = observation.containers.iter();
    let of_sandbox = all.filter(|container| container.sandbox_id == sandbox_id);
    // Of each name the newest comes first in the observation, and last here.
    let newest_last = of_sandbox.rev();
    newest_last
        .map(|container| (container.name.clone(), container.id.clone()))
        .collect()
}

fn mounted(volumes: &BTreeMap<String, ReadyVolume>) -> BTreeMap<String, MountedVolume> {
    let volumes = volumes.iter();
    volumes
        .map(|(name, ready)| (name.clone(), ready.mounted.clone()))
        .collect()
}

async fn write_hosts_file(
    context: &StepContext,
    target: &Target<'_>,
    pod_ips: &[IpAddr],
) -> Result<PathBuf, StepError> {
    let aliases = target.pod.spec_or_default().host_aliases.as_deref();
    let aliases = aliases.unwrap_or_default();
    let text = if target.pod.host_network() {
        cri_requests::node_hosts_file(&context.host.hosts_file().await?, aliases)
    } else {
        let names = cri_requests::host_names(target.pod, &context.facts.cluster_domain)?;
        cri_requests::managed_hosts_file(pod_ips, &names, aliases)
    };
    let uid = target.identity.uid();
    Ok(context.host.write_hosts_file(uid, &text).await?)
}
