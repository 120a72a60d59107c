//! Which pods may start, as far as a shutdown of the node is concerned.

use std::collections::BTreeSet;

/// Which pods may start.
#[derive(Clone, Debug, Default)]
pub(crate) enum Startable {
    /// All: the node does not shut down.
    #[default]
    All,
    /// None yet: this process does not know yet whether the node shuts down.
    Unknown,
    /// The node shuts down: only those that were there when that began, and have not ended.
    Only(BTreeSet<String>),
}

/// What becomes of a pod that is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Now,
    Later,
    Never,
}

impl Startable {
    pub(super) fn of(&self, uid: &str) -> Start {
        match self {
            Startable::All => Start::Now,
            Startable::Unknown => Start::Later,
            Startable::Only(uids) if uids.contains(uid) => Start::Now,
            Startable::Only(_) => Start::Never,
        }
    }

    /// Whether the node shuts down.
    pub(super) fn is_of_shutdown(&self) -> bool {
        matches!(self, Startable::Only(_))
    }

    /// A pod has ended. Where that is since the node shuts down, it does not begin anew,
    /// though its source may take it away and have it again.
    pub(super) fn has_ended(&mut self, uid: &str) {
        if let Startable::Only(uids) = self {
            uids.remove(uid);
        }
    }
}
