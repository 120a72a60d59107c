//! [`NodeConditions`]: what the node suffers from, for those who tell others.

use std::sync::{Arc, Mutex, PoisonError};

use eviction::NodeCondition;

/// What the node suffers from. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeConditions(Arc<Mutex<Vec<NodeCondition>>>);

impl NodeConditions {
    /// Names of what it suffers from now.
    #[must_use]
    pub(crate) fn names(&self) -> Vec<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(ToString::to_string).collect()
    }

    /// What people are told; empty when there is nothing to tell.
    #[must_use]
    pub(crate) fn status_line(&self) -> String {
        match self.names().as_slice() {
            [] => String::new(),
            names => format!("the node has {}", names.join(", ")),
        }
    }

    /// Sets it; answers with what it was.
    pub(super) fn replace(&self, conditions: Vec<NodeCondition>) -> Vec<NodeCondition> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut known, conditions)
    }
}
