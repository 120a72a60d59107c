//! pod-worker-pool: one worker per pod, and the only process that talks to the
//! container runtime. A worker observes its pod, plans one step, acts, and begins
//! again.
//!
//! Observe, what the runtime has:
//!
//! - `observe`: one pod, as the values of `observation`; `relist`: all pods at a glance;
//! - `hints` and `told_ends`: what the runtime tells by itself; `readiness`: how it is.
//!
//! Plan, in pure functions over plain values:
//!
//! - `worker`: the states of a worker, and which step each of them asks for;
//! - `plan`: the next step of a pod; `known`: what it depends on beside what the runtime
//!   shows; `stop`: how long a stop may take; `name_conflict`: which number a new sandbox
//!   or instance gets;
//! - `annotations`: what is noted on the requests that the runtime gets; the requests
//!   themselves are made by the crate `cri-requests`.
//!
//! Act:
//!
//! - `pool`: the actor that owns all workers and runs their steps; `doorbell` wakes it,
//!   `locks` keeps steps of one pod apart from removals;
//! - `steps`: what a step does; `image`: pulls; `record`: what the next life must know;
//! - `turns`: heavy calls to the runtime wait until it is their turn;
//! - `garbage`: what nobody needs any more; `abandoned_start`: removes what
//!   a start left that no CRI call removes;
//! - `policy`: what a pod may be, judged at the head of its sync;
//! - files, mounts and cgroups: the crate `node-host`.
//!
//! Tell the other processes:
//!
//! - `publisher`: observations and probe targets; `events`; `logs` of containers;
//! - `servers`: the services that carry them.
//!
//! `pod_source` takes the pods from config-sourcer. `assembly` puts all this together, and [`run`] is the process around it.

mod abandoned_start;
mod annotations;
mod assembly;
mod doorbell;
mod events;
mod garbage;
mod hints;
mod image;
mod known;
mod locks;
mod logs;
mod name_conflict;
mod observation;
mod observe;
mod plan;
mod pod_source;
mod policy;
mod pool;
mod publisher;
mod readiness;
mod record;
mod relist;
mod servers;
mod shell;
mod steps;
mod stop;
#[cfg(test)]
mod testing;
mod told_ends;
mod turns;
mod worker;

pub use shell::{Error, run, run_on_this_node};
