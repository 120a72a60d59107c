//! Tests of the real programs on a real containerd; they are under `tests/`,
//! one file a subject. What they share with others is in `test-support`.

pub mod callers;
pub mod cast;
pub mod credential_program;
pub mod edge_matrix;
pub mod fault;
pub mod ground;
pub mod hanging;
pub mod random;
pub mod runtime_watcher;
pub mod sources;
pub mod terminal;
pub mod unreachable_cluster;
pub mod valid_messages;
pub mod volumes;
pub mod witness;
pub mod workload;

pub use ground::Ground;
