//! Tests of the real programs on a real containerd; they are under `tests/`,
//! one file a subject. What they share with others is in `test-support`.

pub mod bystanders;
pub mod callers;
pub mod cast;
pub mod credential_program;
pub mod edge_matrix;
pub mod fault;
pub mod ground;
pub mod hanging;
pub mod hostile_answers;
pub mod hostile_pool;
pub mod hostile_service;
pub mod hostile_to_people;
pub mod random;
pub mod runtime_watcher;
pub mod sources;
pub mod twins;
pub mod valid_messages;
pub mod volumes;
pub mod witness;
pub mod workload;

pub use ground::Ground;
