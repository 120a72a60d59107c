//! The configuration of a node, resolved: what every process reads at its
//! start. The supervisor makes it from flags and files, and writes it to
//! `<run-dir>/node.json`, and with what is secret to files that config-sourcer and
//! credential-provider alone read. Beside it: what no configuration changes, of paths
//! ([`protected`]) and of addresses ([`egress`]).
//!
//! What does not live here: command-line parsing (`supervisor`), the files
//! (`config-files`), and how a process applies a setting.

mod credential_providers;
pub mod egress;
mod image_verification;
mod places;
mod protected;
mod resolved;
#[cfg(test)]
mod testing;
mod user_namespaces;

pub use credential_providers::{CredentialProvider, CredentialProviders, PROGRAM_VARIABLES};
pub use image_verification::ImageVerification;
pub use places::{LOGIN_MANAGER, STARTING, SYSTEM_BUS, may_open, paths};
pub use protected::{UnprotectedPath, protected};
pub use resolved::{
    CgroupDriver, ContainerRuntimeEndpoint, DEFAULT_POLICY_PATH, DEFAULT_ROOT_DIR, DirectoryLayout,
    EndpointError, EvictionSettings, HttpSource, ImageSettings, LogSettings, MemoryQos,
    NODE_CONFIG_FILE, NodeConfig, ReadError, ShutdownGroup, url_without_secrets,
};
pub use user_namespaces::{ID_RANGE_UNIT, UserNamespaceSettings};
