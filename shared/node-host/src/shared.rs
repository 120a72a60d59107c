//! What work on threads for blocking work needs of the node.

use std::path::PathBuf;

use node_config::NodeConfig;

use crate::cgroup::pod_cgroups::PodCgroups;

/// Where the system shows and keeps things; others only in tests.
#[derive(Debug, Clone)]
pub(super) struct SystemPaths {
    pub(super) proc_dir: PathBuf,
    pub(super) sys_dir: PathBuf,
    pub(super) hosts_file: PathBuf,
}

impl Default for SystemPaths {
    fn default() -> SystemPaths {
        SystemPaths {
            proc_dir: "/proc".into(),
            sys_dir: "/sys".into(),
            hosts_file: "/etc/hosts".into(),
        }
    }
}

/// The node as it is configured.
pub(super) struct Shared {
    pub(super) root_dir: PathBuf,
    pub(super) pod_logs_dir: PathBuf,
    pub(super) log_links_dir: PathBuf,
    pub(super) system: SystemPaths,
    /// Whether the cgroups are of version 2. Found out once: the table of mounts that says
    /// so has three lines for each pod.
    pub(super) unified_cgroups: bool,
    pub(super) resolv_conf: Option<PathBuf>,
    /// What is reserved and kept back of the machine's resources.
    pub(super) config: NodeConfig,
    pub(super) cgroups: Box<dyn PodCgroups>,
}
