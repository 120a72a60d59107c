//! status-syncer: turns what the worker pool observes, and what the probes say,
//! into PodStatus, and keeps the events of the node.
//!
//! One task, the main loop (`shell`), owns all state; two services hand it
//! their calls. `status` is the pure computation, `registry` the pure state,
//! `publication` what is published, and `api` reports that to the API server.
//!
//! What does not live here: the decision what becomes of a pod (sync-loop) and
//! everything that acts on containers (pod-worker-pool).

mod api;
mod command;
mod events;
mod observations;
mod publication;
mod registry;
mod served;
mod service;
mod shell;
pub mod status;
mod store;
pub mod verdicts;

pub use shell::{Error, Opened, open, serve};
