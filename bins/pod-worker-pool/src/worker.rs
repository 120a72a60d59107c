//! What the pool knows of one pod and how that changes: pure state machines,
//! one per pod UID, and the tables that several pods share.
//!
//! Not here: carrying anything out. The actor in `pool` feeds updates in and
//! runs the step that the state asks for.

pub mod desired;
pub mod known;
pub mod state;
pub mod static_pods;
pub mod termination;

pub use desired::DesiredPod;
pub use state::{
    Decision, Refusal, Sequel, Subject, Transition, Update, UpdateKind, Worker, WorkerState,
};
pub use termination::{Kill, MAXIMUM_GRACE, Termination, TerminationCause};
