//! The end-to-end tests: one program, so that tests of all files take turns on the
//! processors that there are, and nobody waits for the longest test of a file.
//!
//! A file is a noun; to run one: `cargo test -p e2e hooks::`.

mod arrivals;
mod attacks;
mod burst;
mod cgroups;
mod changed_pods;
mod confinement;
mod containerd;
mod containers;
mod control_plane;
mod demo;
mod disk_full;
mod edges;
mod eviction;
mod file_source;
mod fire;
mod hanging_volumes;
mod hooks;
mod host_paths;
mod http_source;
mod instances;
mod kills;
mod lifecycle;
mod log_rotation;
mod network;
mod newer_runtimes;
mod node_cleanup;
mod node_policy;
mod objects;
mod places;
mod probes;
mod process_limits;
mod propagation;
mod pull_credentials;
mod resize;
mod restart_policy;
mod runtime_faults;
mod security;
mod sessions;
mod sidecars;
mod sub_paths;
mod troubles;
mod volumes;
