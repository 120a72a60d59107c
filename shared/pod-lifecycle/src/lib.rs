//! What is decided about one pod on this node, from when it is desired until nothing of
//! it is left. Pure: plain values in, plain values out, both clocks brought by the
//! caller. pod-worker-pool asks the runtime and carries out.
//!
//! - `worker`: the states of a worker (which step each of them asks for is in the pool,
//!   `Entry::job`); its input is `desired`, its end a `termination`; `forgotten`: which
//!   workers are dropped; `static_pods`: who waits for a static pod of the same name;
//! - `observation`: what the runtime has of a pod; `known`: what is known of it besides;
//!   `record`: what of that the next process must know; `annotations`: what is noted on
//!   sandboxes and containers;
//! - `plan`: what to do next with a pod, from all of that;
//! - `hook`: what is run just after a start and just before a SIGTERM;
//!   `instance_resources`: what of CPU and memory an instance runs with;
//! - `stop`: how long a stop may take; `name_conflict`: which number a new sandbox or
//!   instance gets.

pub mod annotations;
pub mod desired;
pub mod forgotten;
pub mod hook;
pub mod instance_resources;
pub mod known;
pub mod name_conflict;
pub mod observation;
pub mod plan;
pub mod record;
pub mod static_pods;
pub mod stop;
pub mod termination;
#[cfg(test)]
mod testing;
pub mod worker;

pub use desired::DesiredPod;
pub use termination::{EvictionRequest, KillRequest, Termination, TerminationCause};
pub use worker::{Decision, Refusal, Subject, Transition, Update, UpdateKind, Worker, WorkerState};
