//! A node in a cluster.

mod conformance;
mod decisions;
mod deletions;
mod faults;
mod hostile;
mod mirrors;
mod peer;
mod policy;
mod services;
mod sessions;
mod workloads;
