//! The configuration of a node, resolved: what every process reads at its
//! start. The supervisor makes it from flags and files, and writes it to
//! `<run-dir>/node.json`, and with what is secret to files of the processes that
//! need it. Beside it: what no configuration changes, of paths
//! ([`protected`]) and of addresses ([`egress`]).
//!
//! What does not live here: command-line parsing (`supervisor`), the files
//! (`config-files`), and how a process applies a setting.

mod api_server;
mod credential_providers;
pub mod egress;
mod image_verification;
mod node_object;
mod node_server;
mod places;
mod pod_cidrs;
mod protected;
mod resolved;
#[cfg(test)]
mod testing;
mod user_namespaces;

pub use api_server::{ApiCredential, ApiServer};
pub use credential_providers::{CredentialProvider, CredentialProviders};
pub use image_verification::ImageVerification;
pub use node_object::{NodeObjectSettings, NodeTaint, TaintEffect, TaintError};
pub use node_server::{Authorization, NodeServer, ServingCertificate};
pub use places::{LOGIN_MANAGER, STARTING, SYSTEM_BUS, may_open, paths};
pub use pod_cidrs::are_pod_cidrs;
pub use protected::{UnprotectedPath, protected};
pub use resolved::{
    CgroupDriver, ContainerRuntimeEndpoint, DEFAULT_POLICY_PATH, DEFAULT_ROOT_DIR, DirectoryLayout,
    EndpointError, EvictionSettings, HttpSource, ImageSettings, LogSettings, MemoryQos,
    NODE_CONFIG_FILE, NodeConfig, ReadError, ShutdownGroup, url_without_secrets,
};
pub use user_namespaces::{ID_RANGE_UNIT, UserNamespaceSettings};
