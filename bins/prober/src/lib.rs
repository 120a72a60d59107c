//! The prober: liveness, readiness and startup probes of every container.
//!
//! - `spec`: what a probe asks for (pure);
//! - `worker`, `instance`: when it is tried and what its tries add up to (pure);
//! - `agenda`: which try is due, and which may run (pure);
//! - `ledger`: all verdicts, as they survive a restart (pure);
//! - [`ProbeNetwork`]: the seam to the network;
//! - [`serve`]: the process around them.
//!
//! It runs as a user of its own without any capability, names a container and a
//! probe when a command is to be run, and never sees that command.

mod agenda;
mod hooks;
mod instance;
mod kind;
mod ledger;
mod network;
mod probe;
mod server;
mod shell;
mod spec;
mod store;
mod text;
mod wire;
mod worker;

pub use kind::{Kind, Moment};
pub use network::{ByteStream, LookupPlace, NodeNetwork, ProbeNetwork};
pub use shell::{Error, Opened, open, serve};
