//! The prober: liveness, readiness and startup probes of every container.
//!
//! - `spec`: what a probe asks for (pure);
//! - `worker`, `instance`: when it is tried and what its tries add up to (pure);
//! - `agenda`: which try is due, and which may run (pure);
//! - `ledger`: all verdicts, as they survive a restart (pure);
//! - `egress`: where a probe may go (pure);
//! - [`ProbeNetwork`]: the seam to the network;
//! - [`run`]: the process around them.
//!
//! It runs as a user of its own without any capability, names a container and a
//! probe when a command is to be run, and never sees that command.

mod agenda;
mod egress;
mod instance;
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

pub use network::{ByteStream, NodeNetwork, ProbeNetwork};
pub use shell::{Error, run};

use std::time::Duration;

/// Time since this process started.
pub type Moment = Duration;

/// The three probes of a container.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Restart the container when it fails.
    Liveness,
    /// Send it no traffic when it fails.
    Readiness,
    /// The others wait until it succeeded.
    Startup,
}
