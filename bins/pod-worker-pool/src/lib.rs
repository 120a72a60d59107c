//! pod-worker-pool: one worker per pod, and the only process that talks to the
//! container runtime.

pub mod cgroup;
pub mod config;
pub mod node;
pub mod observation;
pub mod plan;
pub mod worker;
