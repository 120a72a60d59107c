//! A container runtime in memory, for unit tests, the whole-node simulation and
//! the dispatch bench. It keeps the promises of the CRI that Bulkhead relies on
//! (reserved names, idempotent stops, work that goes on when the caller is gone)
//! and records everything that happened, with what must never happen told apart.
//!
//! What it never stands in for: a promise about containerd. Those are tested
//! against containerd.

mod behaviour;
mod faults;
mod history;
mod mishap;
mod registry;
mod runtime;
mod state;

pub use behaviour::Behaviour;
pub use faults::Faults;
pub use history::{Entry, Happening};
pub use mishap::{Met, Mishap};
pub use runtime::SimulatedRuntime;
pub use runtime::sessions::StreamingServer;
pub use state::IMAGE_BYTES;
pub use state::shown::{ContainerView, SandboxView};
