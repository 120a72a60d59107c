//! What tests, benches and the demo need around the real programs: a private
//! node (own namespaces, cgroup and directory), a private containerd on it,
//! images built without a registry, the built programs started on it, and
//! waiting for conditions. Whatever is started here is gone afterwards, after
//! a failure, a panic and an interrupt too.
//!
//! Not here: assertions about behaviour. They belong to the tests.

pub mod api_server;
pub mod binaries;
pub mod bulkhead;
mod certificates;
pub mod cgroup;
pub mod containerd;
pub mod disk;
pub mod elf;
pub mod http;
pub mod images;
pub mod inject;
pub mod instance_paths;
pub mod interrupt;
mod interrupt_request;
pub mod journal;
pub mod manifest_server;
pub mod namespaces;
pub mod node;
mod not_tried;
pub mod observe;
mod oci;
mod processes;
mod slot;
pub mod wait;

pub use api_server::ApiServer;
pub use bulkhead::{BulkheadInstance, BulkheadOptions};
pub use certificates::Authority;
pub use containerd::{Containerd, ContainerdOptions, OTHER_HANDLER, PrivateContainerd};
pub use manifest_server::ManifestServer;
pub use node::TestNode;
pub use not_tried::not_tried;
pub use wait::{wait_for, wait_until};
