//! A whole node in one thread: every process's real code, gRPC in memory without
//! HTTP/2, a simulated container runtime and a paused clock. Processes are
//! killed at any await point and started again when the supervisor's policy says so.
//!
//! [`SimulatedNode`] is the node, [`Scenario`] what happens to it from a seed,
//! [`targets`] what its containers answer to probes; [`check`] says what must hold
//! in the end and all along, [`statuses`] what the node must say about it in the
//! end, and [`observer`] all along; [`sessions`] what must hold of what node-api is asked
//! for meanwhile, and [`served`] what it serves in the end.

mod check;
mod desired;
mod disk;
mod disk_work;
mod evictions;
mod exhaustive;
mod in_time;
mod launcher;
mod node;
mod node_network;
mod observer;
mod orders;
mod play;
mod probe_ports;
mod resizes;
mod scenario;
mod served;
mod sessions;
mod shortage;
mod shrink;
mod shutdown;
mod sigterms;
mod sizes;
mod statuses;
mod streaming;
mod supervision;
mod targets;
mod uids;
mod verdicts;
mod visitor;

pub use desired::Desired;
pub use exhaustive::{Case, play_case};
pub use node::SimulatedNode;
pub use play::{Played, run, run_steps};
pub use scenario::Scenario;
pub use shrink::{Shrunk, shrink};
pub use statuses::wrong_statuses;
pub use targets::Targets;
