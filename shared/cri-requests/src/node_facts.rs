//! What requests need to know of the node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use node_config::{MemoryQos, NodeConfig};
use node_layout::{CgroupNaming, NodeCapacity};
use pod::resources::MEMORY;
use pod::runtime_class::RuntimeClasses;

/// What the builders know of the node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeFacts {
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
    /// `seccompDefault`: containers that choose no seccomp profile get the runtime's.
    pub seccomp_default: bool,
    /// Whether the kernel enforces SELinux labels: what a pod alone writes to gets its.
    pub selinux: bool,
    /// Whether and how the kernel looks after containers' memory; absent too where cgroups
    /// are of version 1.
    pub memory_qos: Option<MemoryQos>,
    /// Memory that all pods together may use, in bytes: what is kept back for eviction is
    /// theirs until they are evicted.
    pub pod_memory_bytes: i64,
    /// Bytes of a page of memory.
    pub page_bytes: u64,
    /// Whether the kernel kills all processes of a container that has no memory left; never
    /// where cgroups are of version 1.
    pub oom_kills_all: bool,
    /// What pods may name as their runtime class.
    pub runtime_classes: RuntimeClasses,
    /// Sizes of huge pages that the kernel has, in bytes, ascending.
    pub huge_page_sizes: Vec<u64>,
}

impl NodeFacts {
    /// The facts that follow from the configuration and the machine.
    pub fn new(config: &NodeConfig, capacity: &NodeCapacity) -> NodeFacts {
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
            allocatable: eviction::allocatable(config, capacity),
            seccomp_default: config.seccomp_default,
            selinux: capacity.selinux,
            memory_qos: config.memory_qos.filter(|_| capacity.unified_cgroups),
            pod_memory_bytes: capacity
                .allocatable(&config.reserved, &BTreeMap::new())
                .get(MEMORY)
                .map_or(0, |amount| amount.value()),
            page_bytes: capacity.page_bytes,
            oom_kills_all: capacity.unified_cgroups && config.single_process_oom_kill != Some(true),
            runtime_classes: config.runtime_classes.clone(),
            huge_page_sizes: capacity.huge_pages.keys().copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use node_config::DirectoryLayout;

    use super::*;

    fn facts(change: impl Fn(&mut NodeConfig, &mut NodeCapacity)) -> NodeFacts {
        let directories = DirectoryLayout::below("/nonexistent");
        let mut config = NodeConfig::with_defaults("n", directories);
        let mut capacity = NodeCapacity {
            memory_bytes: 1 << 30,
            ..NodeCapacity::default()
        };
        change(&mut config, &mut capacity);
        NodeFacts::new(&config, &capacity)
    }

    /// As a kubelet: by default with version 2 of cgroups, and never with version 1.
    #[test]
    fn all_of_a_container_is_killed_unless_the_node_says_one_process() {
        for (unified, single, expected) in [
            (true, None, true),
            (true, Some(false), true),
            (true, Some(true), false),
            (false, None, false),
            (false, Some(false), false),
            (false, Some(true), false),
        ] {
            let facts = facts(|config, capacity| {
                config.single_process_oom_kill = single;
                capacity.unified_cgroups = unified;
            });
            assert_eq!(facts.oom_kills_all, expected, "{unified} {single:?}");
        }
    }

    #[test]
    fn memory_that_is_kept_back_for_eviction_is_the_pods_and_what_is_reserved_is_not() {
        let facts = facts(|config, _| {
            config.eviction.hard = [("memory.available".to_owned(), "100Mi".to_owned())].into();
            config.reserved = [("memory".to_owned(), "24Mi".to_owned())].into();
        });
        assert_eq!(facts.pod_memory_bytes, 1000 << 20);
        assert_eq!(facts.allocatable["memory"].value(), 900 << 20);
    }
}
