//! The supervisor: starts the processes of the topology, each as its own user
//! with only its capabilities and its listening socket, watches and restarts
//! them. It calls nobody.
//!
//! - [`policy`] decides, as pure functions;
//! - `shell` carries out: processes, signals, notifications;
//! - `server` answers `bulkhead status` and the like;
//! - `settings`, `preflight`, `directories` and `launcher` prepare the start.
//!
//! What does not live here: anything about pods.

mod closing;
mod command;
mod configuration_files;
mod directories;
mod failure;
mod flags;
mod kept;
mod launcher;
mod log_pipe;
mod memory;
mod node_address;
mod notify;
mod preflight;
mod record;
mod server;
mod settings;
mod shell;
mod snapshot;
mod start;
#[cfg(test)]
mod unit_file;

/// What the supervisor decides.
pub mod policy;

pub use failure::Failure;
pub use flags::Flags;
pub use start::run;
