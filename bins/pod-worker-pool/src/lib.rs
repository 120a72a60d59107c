//! pod-worker-pool: one worker per pod, and the only process that talks to the
//! container runtime. A worker observes its pod, plans what to do next, acts,
//! and begins again.
//!
//! Observe, what the runtime has:
//!
//! - `observe`: one pod, as an `Observation`; `relist`: all pods at a glance;
//! - `hints`: what the runtime tells by itself; `readiness`: how it is.
//!
//! Plan: the states of a worker and what to do next with a pod are decided in the crate
//! `pod-lifecycle`, requests are made in `cri-requests`.
//!
//! Act:
//!
//! - `pool`: the actor that owns all workers and runs their steps; `doorbell` wakes it,
//!   `locks` keeps steps of one pod apart from removals;
//! - `steps`: what a step does; `image`: pulls; `record`: what the next process must know;
//! - `turns`: heavy calls to the runtime wait until it is their turn;
//! - `eviction`: ends a pod when the node is short of something, or it has too much on
//!   the node's disk;
//! - `log_rotation`: logs that are too big;
//! - `garbage`: what nobody needs any more; `abandoned_start`: removes what
//!   a start left that no CRI call removes;
//! - `policy`: what a pod may be, judged at the head of its sync; `root_file`: how its file,
//!   and that of credentials, is read;
//! - files, mounts and cgroups: the crate `node-host`; `files_in_memory`: what volumes keep
//!   in memory.
//!
//! Tell the other processes:
//!
//! - `publisher`: observations and probe targets; `events`; `logs` of containers;
//!   `usage`: what pods use; `node_usage`: what the machine does;
//! - `servers`: the services that carry them.
//!
//! `pod_source` takes the pods from config-sourcer, `object_source` ConfigMaps and Secrets,
//! `service_source` the cluster's Services, and `node_source` what the runtime is to know of the
//! Node. `assembly` puts all this together, and [`open`] and [`serve`] are the process around it.

mod abandoned_start;
mod assembly;
mod cgroup_driver;
mod class_cgroups;
mod doorbell;
mod events;
mod eviction;
mod files_in_memory;
mod garbage;
mod hints;
mod http_hooks;
mod image;
mod locks;
mod log_rotation;
mod logs;
mod node_shutdown;
mod node_source;
mod node_usage;
mod object_source;
mod object_table;
mod observe;
mod pod_source;
mod policy;
mod pool;
mod publisher;
mod readiness;
mod record;
mod relist;
mod removed_pods;
mod root_file;
mod servers;
mod service_source;
mod shell;
mod shutdown_kills;
mod steps;
#[cfg(test)]
mod testing;
mod turns;
mod usage;

pub use shell::{Error, Opened, open, serve};
