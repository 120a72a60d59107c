//! What the request that creates a container is made from.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use cri::Ability;
use cri::v1::VersionResponse;
use local_objects::Objects;
use node_layout::IdRange;
use pod::core::Container;
use pod::{Pod, PodExt, ephemeral};
use pod_volumes::MountedVolume;

use crate::environment::{EnvFiles, Environment, EnvironmentInput, environment};
use crate::error::BuildError;
use crate::expansion::Budget;
use crate::node_facts::NodeFacts;
use crate::security::ImageUser;

/// The file that a container writes its termination message to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminationLog {
    /// On the node: one for each start of the container.
    pub host_path: PathBuf,
    /// In the container: `terminationMessagePath`.
    pub container_path: String,
}

/// What a container is made from.
#[derive(Debug, Clone)]
pub struct ContainerInput<'a> {
    /// The pod, with all defaults applied.
    pub pod: &'a Pod,
    /// One of its containers, of either kind.
    pub container: &'a Container,
    /// The instance of the same pod whose processes it is to see (`targetContainerName`).
    pub process_namespace_of: Option<&'a str>,
    /// How often it was started before.
    pub attempt: u32,
    /// The image as the runtime names it, from its status or pull.
    pub image_id: &'a str,
    /// Whom the image wants to run as.
    pub image_user: &'a ImageUser,
    /// The node.
    pub node: &'a NodeFacts,
    /// The ids of the node that are the pod's, if it is to have users of its own.
    pub ids: Option<IdRange>,
    /// The addresses of the pod's sandbox; empty on the node's network.
    pub pod_ips: &'a [IpAddr],
    /// The pod's volumes by name, set up.
    pub volumes: &'a BTreeMap<String, MountedVolume>,
    /// The images of its volumes of that kind, by the volumes' names, as the runtime names
    /// them.
    pub volume_images: &'a BTreeMap<String, String>,
    /// What is known of the ConfigMaps and Secrets that the pod refers to.
    pub objects: &'a Objects,
    /// The variables that tell of Services, which those of the container replace.
    pub service_variables: &'a BTreeMap<String, String>,
    /// Files of volumes that variables come from, as far as the volumes are there.
    pub env_files: &'a EnvFiles,
    /// Whether the runtime can make a mount read-only with all mounts below it.
    pub recursive_read_only: bool,
    /// The runtime, where what it is to do depends on its version
    /// ([`depends_on_version`](crate::depends_on_version)).
    pub runtime: Option<&'a VersionResponse>,
    /// Prepared sub-paths by index of the volume mount.
    pub sub_paths: &'a BTreeMap<usize, PathBuf>,
    /// The pod's hosts file on the node.
    pub hosts_file: PathBuf,
    /// Absent when the pod wants no termination message.
    pub termination_log: Option<TerminationLog>,
}

impl ContainerInput<'_> {
    /// The variables of the container.
    pub(crate) fn environment(&self, budget: &mut Budget) -> Result<Environment, BuildError> {
        let source = EnvironmentInput {
            pod: self.pod,
            container: self.container,
            field: &self.field(),
            node: self.node,
            pod_ips: self.pod_ips,
            objects: self.objects,
            service_variables: self.service_variables,
            env_files: self.env_files,
        };
        environment(&source, budget)
    }

    /// Where the container is in its pod, for errors.
    pub(crate) fn field(&self) -> String {
        let name = &self.container.name;
        for (list, containers) in [
            ("containers", self.pod.containers()),
            ("initContainers", self.pod.init_containers()),
        ] {
            if let Some(index) = containers.iter().position(|other| other.name == *name) {
                return format!("spec.{list}[{index}]");
            }
        }
        let mut listed = ephemeral::listed(self.pod).iter();
        if let Some(index) = listed.position(|other| other.name == *name) {
            return format!("spec.ephemeralContainers[{index}]");
        }
        format!("container {name:?}")
    }

    /// That the runtime has what a field asks for.
    pub(crate) fn require(&self, ability: Ability, field: &str) -> Result<(), BuildError> {
        let Some(runtime) = self.runtime else {
            return Err(BuildError::invalid(field, "the runtime is not known"));
        };
        match ability.is_of(runtime) {
            true => Ok(()),
            false => Err(BuildError::invalid(field, ability.lacking(runtime))),
        }
    }
}
