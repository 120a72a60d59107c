//! The supervisor: starts the processes of the topology, each as its own user
//! with only its capabilities and its listening socket, watches and restarts
//! them. It calls nobody.
//!
//! - [`policy`] decides, as pure functions;
//! - `shell` carries out, and owns everything that changes;
//! - `launcher` starts one process, with its socket of `listeners`, in its `cgroups`,
//!   with its `oom_score`; `degradation` and `egress` say what of that the machine does not
//!   give; `notify` hears what it says, `fd_store` holds
//!   what it wants held, `closing` closes what it sent, `log_pipe` reads its output, for
//!   `standard_error`;
//! - `server` answers `bulkhead status` and the like out of a `snapshot`, with
//!   `record` (endings and restarts) and `memory`; a `command` is what it asks of the shell.
//! - `start` is the way there: `flags`, `settings` (with `node_address` and
//!   `configuration_files`), `preflight`, `directories`. `failure` is why it ends;
//! - `bundle` is what units of systemd have it do where systemd supervises.
//!
//! What does not live here: anything about pods.

mod access;
mod bundle;
mod cgroups;
mod closing;
mod command;
mod configuration_files;
mod degradation;
mod directories;
mod egress;
mod failure;
mod fd_store;
mod flags;
mod launcher;
mod listeners;
mod log_pipe;
mod memory;
mod namespaces;
mod node_address;
mod notify;
mod oom_score;
mod preflight;
mod record;
mod server;
mod settings;
mod shell;
mod snapshot;
mod standard_error;
mod start;
#[cfg(test)]
mod unit_file;

/// What the supervisor decides. Public for the simulation of a whole node, whose
/// processes are started and stopped by it.
pub mod policy;

pub use failure::Failure;
pub use flags::Flags;
pub use standard_error::StandardError;
pub use start::run;
