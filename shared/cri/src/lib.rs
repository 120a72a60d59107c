//! The container runtime interface (CRI v1): the messages, the [`Runtime`] seam
//! that everything else is written against, and [`CriClient`], which speaks it
//! to a real runtime over a Unix socket. What runtimes mean by words for which CRI has
//! no code is told in [`quirks`].
//!
//! Not here: what to ask for (the builders of pod-worker-pool) and simulated runtimes
//! (tests).

mod ability;
mod client;
mod error;
mod error_kind;
mod events;
mod id;
pub mod proto;
pub mod quirks;
mod runtime;
mod secrets;

pub use ability::Ability;
pub use client::{
    ConnectError, CriClient, DEFAULT_DEADLINE, MAX_EXEC_OUTPUT_BYTES, OnConnection,
    RUN_POD_SANDBOX_DEADLINE,
};
pub use error::{EXEC_SYNC, RuntimeError};
pub use error_kind::RuntimeErrorKind;
pub use events::{EventKind, EventSource, RuntimeEvent, RuntimeEvents};
pub use runtime::{Runtime, RuntimeChanges, RuntimeReads, RuntimeSessions};

/// The messages of CRI v1, under the name that they are mostly used by.
pub use proto::runtime::v1;
