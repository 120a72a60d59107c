//! The files that an operator configures a node with: a `KubeletConfiguration` with its
//! drop-ins, a `CredentialProviderConfig`, a kubeconfig, and Bulkhead's own file. The supervisor reads them, and makes a
//! `node_config::NodeConfig` of them, which is all that the other processes read.

mod document;
mod pem_file;

pub mod bulkhead;
pub mod credential_providers;
pub mod kubeconfig;
pub mod kubelet;

pub use document::{ConfigFileError, DocumentError};
