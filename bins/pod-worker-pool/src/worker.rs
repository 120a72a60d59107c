//! What the pool knows of one pod and how that changes: pure state machines,
//! one per pod UID, and the tables that several pods share.
//!
//! Not here: carrying anything out. The actor in `pool` feeds updates in and
//! runs the step that the state asks for.

pub(crate) mod desired;
pub(crate) mod known;
pub(crate) mod state;
pub(crate) mod static_pods;
pub(crate) mod termination;

pub(crate) use desired::DesiredPod;
pub(crate) use state::{
    Decision, Refusal, Subject, Transition, Update, UpdateKind, Worker, WorkerState,
};
pub(crate) use termination::{Kill, MAXIMUM_GRACE, Termination, TerminationCause};
