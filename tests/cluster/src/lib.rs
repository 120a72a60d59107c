//! A node of Bulkhead in a cluster: a control plane in the node's own network, Bulkhead with a
//! kubeconfig, and what the API server says.
//!
//! The control plane is the real one where `KUBEBUILDER_ASSETS` names the directory of its
//! programs, as envtest has it: kube-apiserver, kube-controller-manager, kube-scheduler and
//! kubectl; etcd is there too, or on the path. Elsewhere it is a double, `ApiServer` of
//! test-support.

pub mod audit;
pub mod comparison;
pub mod condition;
pub mod conformance;
mod control_plane;
pub mod kubectl;
pub mod kubelet;
pub mod node;
pub mod node_client;
pub mod person;
mod programs;
pub mod workload;

pub use control_plane::{ControlPlane, Grace};
pub use node::Cluster;
