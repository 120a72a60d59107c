//! Everything that happened in a simulated runtime, in order.

use std::collections::BTreeMap;

use clock::UnixNanos;

/// A moment, by two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The node's wall clock, which may jump: by it a runtime dates what it has.
    pub(crate) wall: UnixNanos,
    /// The same as if it had never jumped.
    pub(crate) steady: UnixNanos,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, by a clock that never jumps.
    pub at: UnixNanos,
    /// The pod's UID, from the labels.
    pub pod_uid: String,
    /// The container's name; empty for a sandbox.
    pub container: String,
    /// Id of the container or sandbox.
    pub id: String,
    /// What.
    pub happening: Happening,
}

/// What happened to a container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Created, as this attempt.
    Created {
        /// CRI attempt.
        attempt: u32,
        /// The labels that it was given.
        labels: BTreeMap<String, String>,
    },
    /// Started.
    Started,
    /// A command was begun in it by ExecSync.
    Executed {
        /// The command.
        command: Vec<String>,
    },
    /// A command that was begun in it has ended while it runs itself.
    CommandEnded,
    /// Who wanted a command run in it heard that this failed, or got no answer.
    CommandFailed,
    /// SIGTERM was sent.
    Terminated,
    /// It ended.
    Exited {
        /// The exit code.
        code: i32,
        /// Whether SIGKILL ended it.
        killed: bool,
    },
    /// Removed.
    Removed,
}
