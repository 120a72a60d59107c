//! From a core/v1 Pod to the requests that the runtime gets, exactly as the kubelet
//! makes them. Pure: what the builders need to know of the node, of volumes and of
//! images comes in as values, and nothing here reads a file or a clock.
//!
//! Not here: which container to create and when (`plan`), and carrying the requests
//! out (`steps`).

mod container;
mod dns;
mod environment;
mod expansion;
mod hostname;
mod hosts_file;
mod mounts;
mod resources;
mod sandbox;
mod security;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use node_config::NodeConfig;
use pod::identity::IdentityError;

use crate::cgroup::CgroupNaming;
use crate::node::NodeCapacity;

pub(crate) use container::{ContainerInput, TerminationLog, container_config};
pub use dns::ResolvConf;
pub(crate) use dns::{MAX_RESOLV_CONF_BYTES, parse_resolv_conf};
pub(crate) use hostname::{HostNames, host_names};
pub(crate) use hosts_file::{managed_hosts_file, node_hosts_file};
pub use mounts::MountedVolume;
pub(crate) use sandbox::{SandboxConfig, pod_sandbox_config};
pub(crate) use security::ImageUser;

#[cfg(test)]
mod compatibility;
#[cfg(test)]
pub(crate) mod test_pods;

/// What the builders know of the node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeFacts {
    /// The node's addresses, the preferred one first; empty when it has none.
    pub node_ips: Vec<IpAddr>,
    /// The kubelet's `--root-dir`.
    pub root_dir: PathBuf,
    /// Where pods' log directories are, `/var/log/pods` for a kubelet.
    pub pod_logs_dir: PathBuf,
    /// `clusterDNS`.
    pub cluster_dns: Vec<IpAddr>,
    /// `clusterDomain`; empty when there is none.
    pub cluster_domain: String,
    /// `cpuCFSQuota`: whether CPU limits are enforced.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod`, in microseconds.
    pub cpu_cfs_quota_period_micros: u64,
    /// How pods' cgroups are called.
    pub cgroups: CgroupNaming,
    /// Memory of the machine, in bytes; OOM scores are relative to it.
    pub memory_capacity_bytes: i64,
    /// What pods may use in all: limits that a container does not state read as this
    /// in the downward API.
    pub allocatable: BTreeMap<String, pod::Quantity>,
    /// Sizes of huge pages that the kernel has, in bytes, ascending.
    pub huge_page_sizes: Vec<u64>,
}

impl NodeFacts {
    /// The facts that follow from the configuration and the machine.
    pub(crate) fn new(config: &NodeConfig, capacity: &NodeCapacity) -> NodeFacts {
        let period = config.cpu_cfs_quota_period.as_micros();
        NodeFacts {
            node_ips: config.node_ip.into_iter().collect(),
            root_dir: config.directories.root_dir.clone(),
            pod_logs_dir: config.directories.pod_logs(),
            cluster_dns: config.cluster_dns.clone(),
            cluster_domain: config.cluster_domain.clone(),
            cpu_cfs_quota: config.cpu_cfs_quota,
            cpu_cfs_quota_period_micros: u64::try_from(period).unwrap_or(u64::MAX),
            cgroups: CgroupNaming::new(config),
            memory_capacity_bytes: i64::try_from(capacity.memory_bytes).unwrap_or(i64::MAX),
            allocatable: capacity.allocatable(&config.reserved),
            huge_page_sizes: capacity.huge_page_sizes.clone(),
        }
    }
}

/// Why no request can be made of a pod. What validation let through ends here at most
/// when the pod changed under us or the sender is hostile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BuildError {
    /// UID, namespace or a name cannot be part of a path.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A field has a value that cannot be used.
    #[error("{field}: {reason}")]
    Invalid {
        /// Path of the field in the pod.
        field: String,
        /// Why not.
        reason: String,
    },
    /// A field needs what Bulkhead does not have yet.
    #[error("{field} is not supported")]
    Unsupported {
        /// Path of the field in the pod.
        field: String,
    },
    /// A volume that a container mounts is not set up.
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    VolumeMissing {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
    },
    /// `runAsNonRoot` holds and the container would be root, or it cannot be told.
    #[error("{reason} (pod: \"{pod}\", container: {container})")]
    RunsAsRoot {
        /// What is wrong, in the kubelet's words.
        reason: String,
        /// The pod, as logs name it.
        pod: String,
        /// The container.
        container: String,
    },
    /// The fully qualified host name does not fit.
    #[error(
        "Failed to construct FQDN from pod hostname and cluster domain, FQDN {name} is too long \
         ({limit} characters is the max, {length} characters requested)"
    )]
    HostNameTooLong {
        /// The name.
        name: String,
        /// The longest that the kernel takes.
        limit: usize,
        /// Its length.
        length: usize,
    },
    /// Variables expand to more than any process could be given.
    #[error("{field}: expands to more than {limit} bytes")]
    ExpansionTooLarge {
        /// Path of the field in the pod.
        field: String,
        /// The bound.
        limit: usize,
    },
}

impl BuildError {
    fn invalid(field: impl Into<String>, reason: impl Into<String>) -> BuildError {
        BuildError::Invalid {
            field: field.into(),
            reason: reason.into(),
        }
    }

    fn unsupported(field: impl Into<String>) -> BuildError {
        BuildError::Unsupported {
            field: field.into(),
        }
    }
}
