//! A whole node in one thread: every process's real code, gRPC over pipes in
//! memory, a simulated container runtime and a paused clock. Processes are
//! killed at any await point and started again, as the supervisor would.
//!
//! [`SimulatedNode`] is the node, [`Scenario`] what happens to it from a seed,
//! and [`check`] what must hold in the end and all along.

mod check;
mod host;
mod network;
mod node;
mod scenario;

pub use check::{Desired, broken_promises, not_converged};
pub use host::MemoryHost;
pub use node::SimulatedNode;
pub use scenario::{Scenario, run};
