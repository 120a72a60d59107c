//! From flags and files to the resolved configuration of the node.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use config_files::bulkhead::BulkheadConfig;
use config_files::kubelet::{
    KubeletConfig, KubeletConfigError, SubordinateIdError, SubordinateIdFiles,
};
use config_files::{credential_providers, kubeconfig};
use nix::sys::resource::{Resource, getrlimit};
use node_config::{
    ContainerRuntimeEndpoint, CredentialProviders, DirectoryLayout, EndpointError,
    NODE_CONFIG_FILE, NodeConfig, NodeServer, ReadError,
};
use topology::{Identities, Process};

use crate::directories::{check_owned_directory, check_owned_path, check_passable};
use crate::failure::Failure;
use crate::flags::Flags;
use crate::node_address::{self, Wanted};

/// A setting that cannot be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingError {
    /// Only Unix sockets reach a container runtime.
    #[error("--container-runtime-endpoint")]
    Endpoint(#[source] EndpointError),
    /// Not `key=value`.
    #[error("--node-labels {0}: give key=value,key=value")]
    Label(String),
    /// Pods are told it, and probes go there.
    #[error("--node-ip {given}: {reason}")]
    NodeIp {
        /// What was given.
        given: String,
        /// Why it cannot be.
        reason: &'static str,
    },
    /// Names go into paths and into the names of pods.
    #[error("the node's name {0:?} is not a DNS subdomain: give another with --hostname-override")]
    NodeName(String),
    /// Relative paths would change their meaning with the working directory.
    #[error("{flag} {path}: the path cannot be made absolute", path = path.display())]
    Path {
        /// The flag.
        flag: &'static str,
        /// What was given.
        path: PathBuf,
    },
    /// A file of subordinate ids that is there cannot be read.
    #[error("{path} cannot be read")]
    SubordinateIdFile {
        /// The file.
        path: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The files of subordinate ids give no ranges for all pods.
    #[error(transparent)]
    SubordinateIds(SubordinateIdError),
}

/// Everything that flags and files say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// What every process reads.
    pub(crate) node: NodeConfig,
    /// What the supervisor applies to the processes.
    pub(crate) bulkhead: BulkheadConfig,
}

/// Says the node's name; it follows the name.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Longest file of subordinate ids that is read.
const MAX_SUBORDINATE_ID_BYTES: u64 = 1 << 20;

fn refused(error: SettingError) -> Failure {
    Failure::Configuration(Box::new(error))
}

fn unusable(error: KubeletConfigError) -> Failure {
    Failure::Configuration(Box::new(error))
}

/// Reads the files that the flags name and resolves everything. Fields without
/// effect are logged.
///
/// # Errors
/// When a file cannot be read or a setting is wrong.
pub(crate) fn resolve(flags: &Flags) -> Result<Settings, Failure> {
    let directories = directories(flags)?;
    let mut node = NodeConfig::with_defaults(node_name(flags)?, directories);
    apply_kubelet_config(flags, &mut node)?;
    apply_flags(flags, &mut node)?;
    apply_subordinate_ids(&mut node)?;
    let bulkhead = match &flags.bulkhead_config {
        None => BulkheadConfig::default(),
        Some(path) => {
            BulkheadConfig::read(path).map_err(|error| Failure::Configuration(Box::new(error)))?
        }
    };
    if let Some(path) = &bulkhead.policy_path {
        node.policy_path.clone_from(path);
    }
    if let Some(path) = &bulkhead.pull_credentials_path {
        node.pull_credentials_path.clone_from(path);
    }
    node.local_objects_path
        .clone_from(&bulkhead.local_objects_path);
    node.runtime_classes.clone_from(&bulkhead.runtime_classes);
    node.credential_providers = providers(flags)?;
    if let Some(path) = optional("--kubeconfig", flags.kubeconfig.as_deref())? {
        let read = kubeconfig::read(&path);
        node.api_server = Some(read.map_err(|error| Failure::Configuration(Box::new(error)))?);
    }
    // Nobody would say who asks, and what it may.
    if node.api_server.is_none()
        && node
            .node_server
            .as_ref()
            .is_some_and(NodeServer::asks_reviews)
    {
        node.node_server = None;
    }
    warn_of_limits(&bulkhead);
    Ok(Settings { node, bulkhead })
}

/// The KubeletConfiguration, and the flag that some of it is compared with.
fn apply_kubelet_config(flags: &Flags, node: &mut NodeConfig) -> Result<(), Failure> {
    // What the files name counts from their directories, and processes work in another.
    let file = optional("--config", flags.config.as_deref())?;
    let drop_ins = optional("--config-dir", flags.config_dir.as_deref())?;
    let kubelet = KubeletConfig::read(file.as_deref(), drop_ins.as_deref());
    let mut kubelet = kubelet.map_err(unusable)?;
    if let Some(endpoint) = &flags.container_runtime_endpoint {
        let checked = endpoint.parse::<ContainerRuntimeEndpoint>();
        checked.map_err(|error| refused(SettingError::Endpoint(error)))?;
        kubelet.set_container_runtime(endpoint);
    }
    let warnings = kubelet.apply(node, cores()).map_err(unusable)?;
    for warning in warnings {
        tracing::warn!(
            field = warning.field,
            "KubeletConfiguration: {}",
            warning.text
        );
    }
    Ok(())
}

/// The same while `current` is in force.
///
/// # Errors
/// As [`resolve`].
pub(crate) fn resolve_again(flags: &Flags, current: &NodeConfig) -> Result<Settings, Failure> {
    let mut settings = resolve(flags)?;
    let (kept, found) = (&current.node_name, &settings.node.node_name);
    if found != kept {
        tracing::warn!(%kept, %found, "the node keeps its name until all is stopped and started");
    }
    keep_identity(&mut settings.node, current);
    Ok(settings)
}

/// The node keeps its name and directories, which must not change under running pods. A new
/// address restarts no container; the old one stays only where none is found, as on a
/// machine that is off its network.
fn keep_identity(node: &mut NodeConfig, current: &NodeConfig) {
    node.node_name.clone_from(&current.node_name);
    node.node_labels.extend(
        current
            .node_labels
            .get(HOSTNAME_LABEL)
            .map(|name| (HOSTNAME_LABEL.to_owned(), name.clone())),
    );
    node.node_ip = node.node_ip.or(current.node_ip);
    node.directories.clone_from(&current.directories);
}

/// The ids of pods with user namespaces of their own, where the node's files name them.
fn apply_subordinate_ids(node: &mut NodeConfig) -> Result<(), Failure> {
    let files = SubordinateIdFiles {
        users: &subordinate_ids("/etc/subuid")?,
        groups: &subordinate_ids("/etc/subgid")?,
    };
    let applied = files.apply(node);
    applied.map_err(|error| refused(SettingError::SubordinateIds(error)))
}

/// What is in a file of subordinate ids; nothing where there is none.
fn subordinate_ids(path: &'static str) -> Result<String, Failure> {
    let unreadable = |source| refused(SettingError::SubordinateIdFile { path, source });
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
        opened => opened.map_err(unreadable)?,
    };
    let mut text = String::new();
    file.take(MAX_SUBORDINATE_ID_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > MAX_SUBORDINATE_ID_BYTES {
        let reason = format!("it is longer than {MAX_SUBORDINATE_ID_BYTES} bytes");
        return Err(unreadable(std::io::Error::other(reason)));
    }
    Ok(text)
}

/// Flags win over files.
fn apply_flags(flags: &Flags, node: &mut NodeConfig) -> Result<(), Failure> {
    node.uid_base = flags.uid_base;
    if let Some(path) = &flags.pod_manifest_path {
        node.static_pod_path = Some(absolute("--pod-manifest-path", path)?);
    }
    for label in flags.node_labels.iter().filter(|label| !label.is_empty()) {
        let (key, value) = label
            .split_once('=')
            .filter(|(key, _value)| !key.is_empty())
            .ok_or_else(|| refused(SettingError::Label(label.clone())))?;
        node.node_labels.insert(key.to_owned(), value.to_owned());
    }
    node.node_ip = node_ip(flags.node_ip.as_deref())?;
    let object = &mut node.node_object;
    object.register = flags.register_node.unwrap_or(object.register);
    if !flags.register_with_taints.is_empty() {
        object.taints.clone_from(&flags.register_with_taints);
    }
    if let Some(provider_id) = &flags.provider_id {
        object.provider_id.clone_from(provider_id);
    }
    Ok(())
}

fn node_ip(flag: Option<&str>) -> Result<Option<IpAddr>, Failure> {
    let wanted = node_address::wanted(flag).map_err(|reason| {
        let given = flag.unwrap_or_default().to_owned();
        refused(SettingError::NodeIp { given, reason })
    })?;
    Ok(match wanted {
        Wanted::Found { ipv6_first } => node_address::find(ipv6_first),
        Wanted::Given(address) => Some(address),
        Wanted::FirstOfPair(address) => {
            tracing::warn!(%address, "--node-ip: the node has one address here, the first of the pair");
            Some(address)
        }
    })
}

/// The programs that are asked for credentials of registries, where there are any.
fn providers(flags: &Flags) -> Result<Option<CredentialProviders>, Failure> {
    let config = flags.image_credential_provider_config.as_deref();
    let directory = flags.image_credential_provider_bin_dir.as_deref();
    let (Some(config), Some(directory)) = (config, directory) else {
        return Ok(None);
    };
    let bin_dir = absolute("--image-credential-provider-bin-dir", directory)?;
    let config = absolute("--image-credential-provider-config", config)?;
    check_owned_path(&config)?;
    check_owned_directory(&bin_dir)?;
    check_passable(&bin_dir)?;
    let providers = credential_providers::read(&config)
        .map_err(|error| Failure::Configuration(Box::new(error)))?;
    Ok(Some(CredentialProviders { bin_dir, providers }))
}

/// Nothing that the supervisor starts can have more open files than itself.
fn warn_of_limits(bulkhead: &BulkheadConfig) {
    let Ok((_soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    for process in Process::ALL {
        let wanted = bulkhead.process(process).open_files;
        if wanted.is_some_and(|wanted| wanted > hard) {
            tracing::warn!(%process, ?wanted, hard, "openFiles is above the supervisor's own hard limit, which is used instead");
        }
    }
}

/// Processors, for `podsPerCore`.
fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

/// The users of the processes.
///
/// # Errors
/// When one is missing or cannot be looked up, or the base of the numbers is out of range.
pub(crate) fn identities(config: &NodeConfig) -> Result<Identities, Failure> {
    process::identities(config).map_err(Failure::Users)
}

/// What was resolved before.
///
/// # Errors
/// When it cannot be read, or is of another version.
pub(crate) fn resolved(run_dir: &Path) -> Result<NodeConfig, Failure> {
    NodeConfig::read(&run_dir.join(NODE_CONFIG_FILE)).map_err(|error| match error {
        ReadError::Io { path, source } => Failure::Io {
            action: "read",
            path,
            source,
        },
        ReadError::Format { .. } => Failure::Configuration(Box::new(error)),
    })
}

fn directories(flags: &Flags) -> Result<DirectoryLayout, Failure> {
    let bin_dir = match &flags.bin_dir {
        Some(given) => absolute("--bin-dir", given)?,
        None => std::env::current_exe()
            .ok()
            .and_then(|program| program.parent().map(Path::to_owned))
            .unwrap_or_else(|| "/usr/libexec/bulkhead".into()),
    };
    Ok(DirectoryLayout {
        run_dir: absolute("--run-dir", &flags.run_dir)?,
        state_dir: absolute("--state-dir", &flags.state_dir)?,
        root_dir: absolute("--root-dir", &flags.root_dir)?,
        log_dir: absolute("--log-dir", &flags.log_dir)?,
        bin_dir,
    })
}

fn absolute(flag: &'static str, path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|_error| {
        refused(SettingError::Path {
            flag,
            path: path.to_owned(),
        })
    })
}

fn optional(flag: &'static str, path: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    path.map(|path| absolute(flag, path)).transpose()
}

fn node_name(flags: &Flags) -> Result<String, Failure> {
    // Empty text, of a unit's variable that is not set, is no name for a kubelet either.
    let given = flags.hostname_override.as_ref();
    let name = match given.filter(|name| !name.is_empty()) {
        Some(name) => name.clone(),
        None => nix::unistd::gethostname()
            .map_err(|errno| Failure::System {
                action: "read the host's name",
                source: errno.into(),
            })?
            .to_string_lossy()
            .into_owned(),
    };
    let name = name.trim().to_lowercase();
    if pod::identity::is_dns1123_subdomain(&name) {
        Ok(name)
    } else {
        Err(refused(SettingError::NodeName(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_finds_the_nodes_new_address() {
        let node = |name: &str, address: Option<&str>| {
            let directories = DirectoryLayout::below(name);
            let mut node = NodeConfig::with_defaults(name.to_owned(), directories);
            node.node_ip = address.map(|address| address.parse().unwrap());
            node
        };
        let (old, new) = (Some("192.0.2.1"), Some("192.0.2.2"));
        for (current, found, expected) in [
            (old, old, old),
            (old, new, new),
            (None, new, new),
            (old, None, old),
            (None, None, None),
        ] {
            let mut resolved = node("renamed", found);
            keep_identity(&mut resolved, &node("node", current));
            assert_eq!(resolved, node("node", expected), "{current:?} {found:?}");
        }
    }
}
