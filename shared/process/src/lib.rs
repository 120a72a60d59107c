//! The shape that every process below the supervisor has: start logging, read the
//! configuration, take the listening socket, open, seal, serve, drain.
//!
//! [`main`] does all of it; a process's `main.rs` names itself, what opens and what
//! serves. Once a process is sealed, it opens by path only what its row in the topology
//! lists.
//! What does not live here: the supervisor's own start, and anything about pods.

mod context;
mod lifecycle;
mod notify_socket;
mod permitted;
mod remote_mounts;
mod start;
mod users;

pub use context::Context;
pub use lifecycle::{BEAT_INTERVAL, KeptOpen, Lifecycle, MAX_STATUS_BYTES, shortened};
pub use permitted::{permitted, view};
pub use start::{EXIT_BAD_CONFIGURATION, NODE_CONFIG_FLAG, main};
pub use users::{UsersError, identities};
