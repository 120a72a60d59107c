//! The resolved configuration: plain values, no files to be looked up any more.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use pod::runtime_class::RuntimeClasses;
use serde::{Deserialize, Serialize};
use topology::Process;

use crate::api_server::ApiServer;
use crate::credential_providers::CredentialProviders;
use crate::image_verification::ImageVerification;
use crate::node_object::NodeObjectSettings;
use crate::node_server::NodeServer;

use crate::user_namespaces::UserNamespaceSettings;

/// File name of the resolved configuration below `<run-dir>`.
pub const NODE_CONFIG_FILE: &str = "node.json";

/// Where the node policy is unless Bulkhead's configuration says otherwise.
pub const DEFAULT_POLICY_PATH: &str = "/etc/bulkhead/policy.toml";

/// Where the credentials of registries are unless the configuration says otherwise.
const DEFAULT_PULL_CREDENTIALS_PATH: &str = "/etc/bulkhead/pull-credentials.json";

/// The kubelet's default for `--root-dir`.
pub const DEFAULT_ROOT_DIR: &str = "/var/lib/kubelet";

/// Where everything lies. Every path that any process writes is below one of
/// these, so that several instances can run on one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryLayout {
    /// Sockets and the resolved configuration; may vanish at a reboot.
    pub run_dir: PathBuf,
    /// What must survive a restart; one subdirectory per process.
    pub state_dir: PathBuf,
    /// Pod directories, as the kubelet's `--root-dir`.
    pub root_dir: PathBuf,
    /// Below it: `pods/` and `containers/` as the kubelet has them in
    /// `/var/log`, and `bulkhead/` with the logs of the processes.
    pub log_dir: PathBuf,
    /// Where the binaries are.
    pub bin_dir: PathBuf,
}

impl DirectoryLayout {
    /// All of them side by side in one directory, as a node has them that is not the
    /// machine's own: one for a test, or for trying a manifest.
    #[must_use]
    pub fn below(top: impl AsRef<Path>) -> DirectoryLayout {
        let below = |name| top.as_ref().join(name);
        DirectoryLayout {
            run_dir: below("run"),
            state_dir: below("state"),
            root_dir: below("root"),
            log_dir: below("log"),
            bin_dir: below("bin"),
        }
    }

    /// The socket that a process serves on.
    #[must_use]
    pub fn socket(&self, process: Process) -> PathBuf {
        self.run_dir.join(process.socket_file_name())
    }

    /// The state directory of a process, owned by its user.
    #[must_use]
    pub fn state(&self, process: Process) -> PathBuf {
        self.state_dir.join(process.name())
    }

    /// Log directories of pods.
    #[must_use]
    pub fn pod_logs(&self) -> PathBuf {
        self.log_dir.join("pods")
    }

    /// Legacy links to container logs.
    #[must_use]
    pub fn container_log_links(&self) -> PathBuf {
        self.log_dir.join("containers")
    }
}

/// How containers' cgroups are named and made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupDriver {
    /// Plain directories.
    Cgroupfs,
    /// Slices, through systemd.
    Systemd,
}

/// As the configuration says it.
impl fmt::Display for CgroupDriver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            CgroupDriver::Cgroupfs => "cgroupfs",
            CgroupDriver::Systemd => "systemd",
        })
    }
}

/// Pods that a shutdown of the node ends together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutdownGroup {
    /// Those of this priority, up to that of the next group.
    pub priority: i32,
    /// Longest grace that they have.
    pub grace: Duration,
}

/// Where the container runtime listens: a Unix socket's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRuntimeEndpoint(pub PathBuf);

/// Not the address of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a Unix socket like unix:///run/containerd/containerd.sock")]
pub struct EndpointError(pub String);

/// From `unix:///path`, `unix:/path` or `/path`, as the kubelet takes them.
impl FromStr for ContainerRuntimeEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<ContainerRuntimeEndpoint, EndpointError> {
        let path = text.strip_prefix("unix:").unwrap_or(text);
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.starts_with('/') {
            Ok(ContainerRuntimeEndpoint(path.into()))
        } else {
            Err(EndpointError(text.to_owned()))
        }
    }
}

/// The HTTP source of static pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpSource {
    /// `staticPodURL`.
    pub url: String,
    /// `staticPodURLHeader`: each name with its values.
    pub headers: BTreeMap<String, Vec<String>>,
    /// `httpCheckFrequency`, 20 s by default.
    pub check_frequency: Duration,
}

/// An address without what may be secret in it: user and password, query and fragment.
#[must_use]
pub fn url_without_secrets(url: &str) -> String {
    let head = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = head.split_once("://") else {
        return head.to_owned();
    };
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((user, _)) => format!("{scheme}://{}", &rest[user.len() + 1..]),
        None => head.to_owned(),
    }
}

/// How images are pulled and collected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSettings {
    /// How many pulls run at once.
    pub max_parallel_pulls: u32,
    /// How many pulls begin in a second, over time; 0 for no limit.
    pub pulls_per_second: u32,
    /// How many pulls begin at once after a pause.
    pub pull_burst: u32,
    /// Percentage of the image file system at which collection starts.
    pub gc_high_threshold_percent: u8,
    /// Percentage at which it stops.
    pub gc_low_threshold_percent: u8,
    /// Images younger than this are kept.
    pub minimum_gc_age: Duration,
    /// Images that nobody has used for longer than this are removed; zero for never.
    pub maximum_gc_age: Duration,
    /// Which of those that are here a pod gets only if it may pull them.
    pub verification: ImageVerification,
}

/// When pods are evicted, as a `KubeletConfiguration` says it. Texts were parsed when the
/// configuration was read (`eviction::thresholds`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionSettings {
    /// `evictionHard`, by signal: amounts and percentages.
    pub hard: BTreeMap<String, String>,
    /// `evictionSoft`, likewise.
    pub soft: BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`, by signal.
    pub soft_grace: BTreeMap<String, Duration>,
    /// `evictionMinimumReclaim`, by signal.
    pub minimum_reclaim: BTreeMap<String, String>,
    /// `evictionPressureTransitionPeriod`, 5 min by default.
    pub pressure_transition_period: Duration,
    /// `evictionMaxPodGracePeriod`: the longest grace of a pod that goes for a soft
    /// threshold; none: it goes at once.
    pub max_pod_grace: Option<Duration>,
    /// `localStorageCapacityIsolation`: limits of what a pod may use of the node's disks
    /// are enforced.
    pub local_storage_limits: bool,
    /// `volumeStatsAggPeriod`, 1 min by default: how often that is measured; none: never.
    pub storage_look_period: Option<Duration>,
}

/// A kubelet's defaults on Linux.
impl Default for EvictionSettings {
    fn default() -> EvictionSettings {
        EvictionSettings {
            hard: EvictionSettings::default_hard(),
            soft: BTreeMap::new(),
            soft_grace: BTreeMap::new(),
            minimum_reclaim: BTreeMap::new(),
            pressure_transition_period: Duration::from_secs(300),
            max_pod_grace: None,
            local_storage_limits: true,
            storage_look_period: Some(Duration::from_secs(60)),
        }
    }
}

impl EvictionSettings {
    /// A kubelet's default `evictionHard` on Linux.
    #[must_use]
    pub fn default_hard() -> BTreeMap<String, String> {
        let defaults = [
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("nodefs.inodesFree", "5%"),
            ("imagefs.available", "15%"),
            ("imagefs.inodesFree", "5%"),
        ];
        defaults
            .map(|(signal, amount)| (signal.to_owned(), amount.to_owned()))
            .into()
    }
}

/// How logs of containers are rotated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSettings {
    /// `containerLogMaxSize`, 10Mi by default: a log of so many bytes is rotated.
    /// Absent (a negative size): none ever is. 0: all are, at each look.
    pub max_size: Option<u64>,
    /// `containerLogMaxFiles`, 5 by default and at least 2: files of a log, the one that
    /// the runtime writes included.
    pub max_files: u32,
    /// `containerLogMaxWorkers`, 1 by default: logs that are rotated at once.
    pub max_workers: u32,
    /// `containerLogMonitorInterval`, 10 s by default.
    pub monitor_interval: Duration,
}

/// Memory QoS (KEP 2570): what is configured of it; at least one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryQos {
    /// `memoryThrottlingFactor`, in millionths: containers are slowed down before they reach
    /// their limits. Absent: they are not.
    pub throttling_millionths: Option<u32>,
    /// `memoryReservationPolicy: TieredReservation`: the kernel leaves to pods what they
    /// request of memory.
    pub reserves: bool,
}

impl MemoryQos {
    /// Parts of a whole factor.
    pub const MILLION: u32 = 1_000_000;

    /// With this `memoryThrottlingFactor`, which is between 0 and 1.
    #[must_use]
    pub fn new(factor: Option<f64>, reserves: bool) -> MemoryQos {
        let millionths = factor.map(|it| (it.clamp(0.0, 1.0) * f64::from(Self::MILLION)).round());
        MemoryQos {
            // Within the bounds of the type by the clamp.
            throttling_millionths: millionths.map(|it| it as u32),
            reserves,
        }
    }
}

/// Everything that a process may want to know about its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConfig {
    /// `--hostname-override`, or the host's name; lower case.
    pub node_name: String,
    /// `--node-ip`, or the address that was found; absent when there is none.
    pub node_ip: Option<IpAddr>,
    /// Where everything lies.
    pub directories: DirectoryLayout,
    /// `--uid-base`; absent: the named users exist.
    pub uid_base: Option<u32>,
    /// `--container-runtime-endpoint`.
    pub container_runtime: ContainerRuntimeEndpoint,
    /// The node policy's file, which only pod-worker-pool reads.
    pub policy_path: PathBuf,
    /// The credentials of registries, which only pod-worker-pool reads.
    pub pull_credentials_path: PathBuf,
    /// `--kubeconfig`: the API server and the node's credentials for it.
    pub api_server: Option<ApiServer>,
    /// `--image-credential-provider-config` and `--image-credential-provider-bin-dir`.
    pub credential_providers: Option<CredentialProviders>,
    /// `staticPodPath`: a directory or a file.
    pub static_pod_path: Option<PathBuf>,
    /// `localObjectsPath` of Bulkhead's configuration: a directory.
    pub local_objects_path: Option<PathBuf>,
    /// `runtimeClasses` of Bulkhead's configuration.
    pub runtime_classes: RuntimeClasses,
    /// `fileCheckFrequency`, 20 s by default.
    pub file_check_frequency: Duration,
    /// `staticPodURL` and what goes with it.
    pub static_pod_url: Option<HttpSource>,
    /// `syncFrequency`, 1 min by default.
    pub sync_frequency: Duration,
    /// `maxPods`, 110 by default.
    pub max_pods: u32,
    /// The ids of pods with user namespaces of their own.
    pub user_namespaces: UserNamespaceSettings,
    /// `enforceNodeAllocatable` names `pods`: all of them together get no more than what
    /// the node has beside its reservations.
    pub enforce_allocatable: bool,
    /// `podPidsLimit`; -1 means none.
    pub pod_pids_limit: i64,
    /// `cgroupDriver`.
    pub cgroup_driver: CgroupDriver,
    /// `cgroupRoot`: the cgroup below which `kubepods` is made; `/` by default.
    pub cgroup_root: String,
    /// `cgroupsPerQOS`; without it containers go where the runtime puts them.
    pub cgroups_per_qos: bool,
    /// `cpuCFSQuota`.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod`, 100 ms by default.
    pub cpu_cfs_quota_period: Duration,
    /// `memoryThrottlingFactor` and `memoryReservationPolicy`, unless the feature gate
    /// `MemoryQoS` is off; absent where neither says anything.
    pub memory_qos: Option<MemoryQos>,
    /// `singleProcessOOMKill`: of a container that has no memory left one process is
    /// killed, not all. Absent: as cgroups of that version do, with version 2 all are.
    pub single_process_oom_kill: Option<bool>,
    /// `resolvConf`; absent: none is read.
    pub resolv_conf: Option<PathBuf>,
    /// `clusterDNS`.
    pub cluster_dns: Vec<IpAddr>,
    /// `clusterDomain`.
    pub cluster_domain: String,
    /// Image settings.
    pub images: ImageSettings,
    /// Rotation of container logs.
    pub logs: LogSettings,
    /// How the Node is registered and reported.
    pub node_object: NodeObjectSettings,
    /// What it serves over the network; absent where it does not.
    pub node_server: Option<NodeServer>,
    /// `nodeLabels` for admission: `kubernetes.io/hostname`, os, arch and what
    /// `--node-labels` adds.
    pub node_labels: BTreeMap<String, String>,
    /// `systemReserved` plus `kubeReserved` as quantities by resource name;
    /// taken off the capacity for admission.
    pub reserved: BTreeMap<String, String>,
    /// `seccompDefault`: containers that choose no seccomp profile get the runtime's.
    pub seccomp_default: bool,
    /// `allowedUnsafeSysctls`: names, and beginnings of names with a `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// When pods are evicted.
    pub eviction: EvictionSettings,
    /// The groups of pods that a shutdown of the node ends one after the other, lowest
    /// priority first; none: it is not waited for them.
    pub shutdown: Vec<ShutdownGroup>,
    /// Upper end of a container's crash-loop wait; 300 s by default.
    pub max_container_restart_period: Duration,
}

/// Why the resolved configuration could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system refused.
    #[error("cannot read {path}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is not what the supervisor of this version writes.
    #[error("{path} is not a node configuration of this version", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
}

/// As Go calls it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl NodeConfig {
    /// The configuration of a node with the kubelet's defaults.
    #[must_use]
    pub fn with_defaults(node_name: impl Into<String>, directories: DirectoryLayout) -> NodeConfig {
        let node_name = node_name.into().to_lowercase();
        let architecture = architecture();
        let node_labels = [
            ("kubernetes.io/hostname", node_name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", architecture),
            // What these were called before 1.14; a kubelet still sets both.
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", architecture),
        ];
        NodeConfig {
            node_labels: node_labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            node_name,
            node_object: NodeObjectSettings::default(),
            node_server: None,
            node_ip: None,
            directories,
            uid_base: None,
            container_runtime: ContainerRuntimeEndpoint("/run/containerd/containerd.sock".into()),
            policy_path: DEFAULT_POLICY_PATH.into(),
            pull_credentials_path: DEFAULT_PULL_CREDENTIALS_PATH.into(),
            api_server: None,
            credential_providers: None,
            static_pod_path: None,
            local_objects_path: None,
            runtime_classes: RuntimeClasses::new(),
            file_check_frequency: Duration::from_secs(20),
            static_pod_url: None,
            sync_frequency: Duration::from_secs(60),
            max_pods: 110,
            user_namespaces: UserNamespaceSettings::default(),
            enforce_allocatable: true,
            pod_pids_limit: -1,
            cgroup_driver: CgroupDriver::Cgroupfs,
            cgroup_root: "/".to_owned(),
            cgroups_per_qos: true,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: Duration::from_millis(100),
            memory_qos: None,
            single_process_oom_kill: None,
            resolv_conf: Some("/etc/resolv.conf".into()),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            images: ImageSettings {
                max_parallel_pulls: 5,
                pulls_per_second: 5,
                pull_burst: 10,
                gc_high_threshold_percent: 85,
                gc_low_threshold_percent: 80,
                minimum_gc_age: Duration::from_secs(120),
                maximum_gc_age: Duration::ZERO,
                verification: ImageVerification::default(),
            },
            logs: LogSettings {
                max_size: Some(10 << 20),
                max_files: 5,
                max_workers: 1,
                monitor_interval: Duration::from_secs(10),
            },
            reserved: BTreeMap::new(),
            seccomp_default: false,
            allowed_unsafe_sysctls: Vec::new(),
            eviction: EvictionSettings::default(),
            shutdown: Vec::new(),
            max_container_restart_period: Duration::from_secs(300),
        }
    }

    /// Whether this node runs the process.
    #[must_use]
    pub fn runs(&self, process: Process) -> bool {
        match process {
            Process::CredentialProvider => self.credential_providers.is_some(),
            Process::ApiGateway => self.api_server.is_some(),
            Process::NodeApi => self.node_server.is_some(),
            _ => true,
        }
    }

    /// Reads what the supervisor wrote.
    ///
    /// # Errors
    /// When the file cannot be read or has another format.
    pub fn read(path: &Path) -> Result<NodeConfig, ReadError> {
        let text = std::fs::read_to_string(path).map_err(|source| ReadError::Io {
            path: path.to_owned(),
            source,
        })?;
        serde_json::from_str(&text).map_err(|source| ReadError::Format {
            path: path.to_owned(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_unix_sockets() {
        for given in ["unix:///a/b", "unix:/a/b", "/a/b"] {
            let expected = ContainerRuntimeEndpoint("/a/b".into());
            assert_eq!(given.parse(), Ok(expected), "{given}");
        }
        for given in ["tcp://1.2.3.4:5", "a/b", "unix://a", ""] {
            let refused = EndpointError(given.to_owned());
            assert_eq!(given.parse::<ContainerRuntimeEndpoint>(), Err(refused));
        }
    }

    #[test]
    fn it_round_trips_through_json() {
        let directories = DirectoryLayout {
            run_dir: "/r".into(),
            state_dir: "/s".into(),
            root_dir: "/k".into(),
            log_dir: "/l".into(),
            bin_dir: "/b".into(),
        };
        let config = NodeConfig::with_defaults("Node-1", directories);
        assert_eq!(config.node_name, "node-1");
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<NodeConfig>(&text).unwrap(), config);
    }

    #[test]
    fn secrets_of_an_address_stay_with_who_needs_them() {
        for (url, expected) in [
            ("http://u:p@h:1/a@b", "http://h:1/a@b"),
            ("http://h/a@b", "http://h/a@b"),
            ("https://h/a?token=x", "https://h/a"),
            ("https://u:p@h?token=a@b/c#d", "https://h"),
            ("none", "none"),
        ] {
            assert_eq!(url_without_secrets(url), expected);
        }
    }
}
