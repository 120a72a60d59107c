//! A whole node in one thread: every process's real code, gRPC over pipes in
//! memory, a simulated container runtime and a paused clock. Processes are
//! killed at any await point and started again when the supervisor's policy says so.
//!
//! [`SimulatedNode`] is the node, [`Scenario`] what happens to it from a seed,
//! [`check`] what must hold in the end and all along, and [`statuses`] what the
//! node must say about it.

mod check;
mod desired;
mod host;
mod launcher;
mod node;
mod observer;
mod scenario;
mod statuses;
mod supervision;
mod targets;

pub use check::{broken_promises, not_converged};
pub use desired::Desired;
pub use host::MemoryHost;
pub use node::SimulatedNode;
pub use scenario::{Scenario, run};
pub use statuses::wrong_statuses;
pub use targets::Targets;
