//! The configuration of a node, resolved: what every process reads at its
//! start. The supervisor makes it from flags, a `KubeletConfiguration` file and
//! Bulkhead's own file, and writes it to `<run-dir>/node.json`.
//!
//! What does not live here: command-line parsing (`supervisor`), and how a
//! process applies a setting.

mod document;
mod protected;
mod resolved;

pub mod bulkhead;
pub mod kubelet;

pub use document::DocumentError;
pub use protected::UnprotectedPath;
pub use resolved::{
    CgroupDriver, ContainerRuntimeEndpoint, DEFAULT_POLICY_PATH, DEFAULT_ROOT_DIR, DirectoryLayout,
    EndpointError, HttpSource, ImageSettings, NODE_CONFIG_FILE, NodeConfig, ReadError,
};
