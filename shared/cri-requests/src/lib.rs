//! From a core/v1 Pod to the requests that the runtime gets, exactly as the kubelet
//! makes them. Pure: what the builders need to know of the node, of volumes and of
//! images comes in as values, and nothing here reads a file or a clock.
//!
//! A field of a pod that becomes part of a request has its place here: in `security`,
//! `user_namespace`, `resources`, `mounts`, `sub_paths`, `environment`, `dns` or `hostname`;
//! `container` and `sandbox` put the requests together.
//!
//! Not here: which container to create and when, and carrying the requests out
//! (`plan` and `steps` of pod-worker-pool).

mod abilities;
mod container;
mod container_input;
mod dns;
mod environment;
mod error;
mod expansion;
mod hostname;
mod hosts_file;
mod image_volumes;
mod memory_qos;
mod mounts;
mod node_facts;
mod probe_command;
mod resources;
mod sandbox;
mod security;
mod stop_signal;
mod sub_paths;
mod user_namespace;

pub use abilities::depends_on_version;
pub use container::container_config;
pub use container_input::{ContainerInput, TerminationLog};
pub use dns::{MAX_RESOLV_CONF_BYTES, PodWarning, ResolvConf, ResolvConfError, parse_resolv_conf};
pub use environment::{EnvFile, EnvFileContent, EnvFiles, MAX_ENV_FILE_BYTES, env_files};
pub use error::BuildError;
pub use hostname::{HostNames, host_names};
pub use hosts_file::{managed_hosts_file, node_hosts_file};
pub use image_volumes::{ImageVolume, of_container as image_volumes};
pub use mounts::wants_recursive_read_only;
pub use node_facts::NodeFacts;
pub use probe_command::probe_command;
pub use resources::{changed_container_resources, container_resources};
pub use sandbox::{SandboxConfig, pod_sandbox_config};
pub use security::{ImageUser, MASKED_PATHS, READONLY_PATHS};
pub use sub_paths::sub_paths;
pub use user_namespace::has_user_namespace;

#[cfg(test)]
mod compatibility;
#[cfg(test)]
mod test_pods;
