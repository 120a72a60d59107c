//! pod-worker-pool: one worker per pod, and the only process that talks to the
//! container runtime.

pub mod annotations;
mod assembly;
pub mod cgroup;
pub mod config;
mod doorbell;
pub mod endings;
pub mod events;
pub mod garbage;
pub mod hints;
pub mod image;
pub mod locks;
pub mod logs;
pub mod node;
pub mod observation;
pub mod observe;
pub mod plan;
pub mod pool;
pub mod publisher;
mod readiness;
pub mod record;
pub mod relist;
pub mod servers;
mod shell;
pub mod steps;
pub mod stop;
#[cfg(test)]
mod testing;
mod volume;
pub mod worker;

pub use shell::{Error, run, run_on_this_node};
