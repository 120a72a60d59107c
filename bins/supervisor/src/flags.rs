//! The command line. Flags that the kubelet has keep its names and meaning.

use std::path::PathBuf;

use clap::Parser;
use node_config::NodeTaint;
use topology::Process;

use crate::failure::exit_codes_help;

/// Starts Bulkhead on this node: the processes that run its pods, each as its
/// own user, watched and restarted. Containers outlive all of them.
///
/// SIGTERM stops everything in order and leaves every container running; a
/// second one does not wait. SIGHUP reads the configuration again and restarts
/// the processes when it changed.
#[derive(Clone, Debug, Parser)]
#[command(name = "supervisor", version, after_help = exit_codes_help())]
#[command(next_help_heading = "As the kubelet")]
pub struct Flags {
    /// KubeletConfiguration file (kubelet.config.k8s.io/v1beta1, YAML or JSON).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Directory of drop-in files `*.conf`, applied to --config in the order of
    /// their paths, those in subdirectories too.
    #[arg(long, value_name = "DIR")]
    pub config_dir: Option<PathBuf>,

    /// Kubeconfig file with the API server and the node's client certificate for it: the node
    /// joins that cluster. Without it there are only static pods.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Socket of the container runtime. Overrides the configuration file;
    /// without either it is unix:///run/containerd/containerd.sock.
    #[arg(long, value_name = "SOCKET")]
    pub container_runtime_endpoint: Option<String>,

    /// CredentialProviderConfig file (kubelet.config.k8s.io/v1, YAML or JSON): programs
    /// that are asked for credentials of registries. It is root's, and only root may
    /// write it.
    #[arg(
        long,
        value_name = "FILE",
        requires = "image_credential_provider_bin_dir"
    )]
    pub image_credential_provider_config: Option<PathBuf>,

    /// Directory with those programs. It and all above it are root's, and only root may
    /// write there.
    #[arg(
        long,
        value_name = "DIR",
        requires = "image_credential_provider_config"
    )]
    pub image_credential_provider_bin_dir: Option<PathBuf>,

    /// Directory of pods' volumes and other files.
    #[arg(long, value_name = "DIR", default_value = node_config::DEFAULT_ROOT_DIR)]
    pub root_dir: PathBuf,

    /// Name of the node; the host's name without it.
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<String>,

    /// Address of the node; without it that of the interface with the default
    /// route, IPv4 before IPv6. `::` asks for IPv6 before IPv4. Of a pair of addresses,
    /// separated by a comma, the first counts.
    #[arg(long, value_name = "ADDRESS")]
    pub node_ip: Option<String>,

    /// Labels of the node, for pods that select it: key=value,...
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    pub node_labels: Vec<String>,

    /// Taints that the Node is created with: key=value:effect,... Overrides registerWithTaints
    /// of the configuration file.
    #[arg(long, value_name = "TAINTS", value_delimiter = ',')]
    pub register_with_taints: Vec<NodeTaint>,

    /// Whether the node creates its Node. Overrides registerNode of the configuration file.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub register_node: Option<bool>,

    /// What the cloud calls this machine. Overrides providerID of the configuration file.
    #[arg(long, value_name = "ID")]
    pub provider_id: Option<String>,

    /// Directory or file with static pods. Overrides staticPodPath of the
    /// configuration file.
    #[arg(long, value_name = "PATH")]
    pub pod_manifest_path: Option<PathBuf>,

    /// Sockets and what need not survive a reboot.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/run/bulkhead",
        help_heading = "Bulkhead"
    )]
    pub run_dir: PathBuf,

    /// What must survive a reboot.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/bulkhead",
        help_heading = "Bulkhead"
    )]
    pub state_dir: PathBuf,

    /// Logs of containers: pods/ and containers/, as the kubelet has them.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/log",
        help_heading = "Bulkhead"
    )]
    pub log_dir: PathBuf,

    /// Programs of the processes; the directory of this program without it.
    #[arg(long, value_name = "DIR", help_heading = "Bulkhead")]
    pub bin_dir: Option<PathBuf>,

    /// What only Bulkhead can configure (bulkhead/v1 BulkheadConfiguration,
    /// YAML or JSON).
    #[arg(long, value_name = "FILE", help_heading = "Bulkhead")]
    pub bulkhead_config: Option<PathBuf>,

    /// Run the processes as users counted up from this number. The users
    /// bulkhead-sync-loop, bulkhead-pleg and so on are then not looked at, whether
    /// they exist or not.
    #[arg(long, value_name = "UID", help_heading = "Bulkhead")]
    pub uid_base: Option<u32>,

    /// Start nothing: make directories and the resolved configuration for processes that
    /// systemd starts (bulkhead.target), and end.
    #[arg(long, help_heading = "For units of systemd")]
    pub prepare: bool,

    /// With --prepare, for processes that run: the node keeps its name and directories, and
    /// where none is found its address, as the resolved configuration of --run-dir has them.
    #[arg(long, requires = "prepare", help_heading = "For units of systemd")]
    pub again: bool,

    /// Start nothing: let those who may call a process connect to its socket, which
    /// systemd has made, and end. Reads the resolved configuration of --run-dir.
    #[arg(
        long,
        value_name = "PROCESS",
        conflicts_with = "prepare",
        help_heading = "For units of systemd"
    )]
    pub permit_callers: Option<Process>,
}
