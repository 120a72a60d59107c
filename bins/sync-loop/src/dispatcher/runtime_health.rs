//! Whether the container runtime answers, and which pods wait for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipc::limits::truncate;

use super::desired_pods::Uid;
use super::messages::MAX_REASON_BYTES;

/// Whether the container runtime answers, as far as is known.
///
/// - Up -> Down: the pool says that it does not answer.
/// - Down -> Up: the pool says that it does; the pods that waited are synced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum RuntimeHealth {
    /// It answers.
    #[default]
    Up,
    /// It does not. A worker could do nothing, so pods are not synced.
    Down {
        /// What the pool says.
        error: String,
        /// Pods that something happened to meanwhile.
        postponed: BTreeSet<Uid>,
    },
}

impl RuntimeHealth {
    /// Takes in what the pool says is wrong, nothing if the runtime answers. Returns the pods
    /// that waited for it if it answers again.
    pub(crate) fn heard(&mut self, error: &str) -> Option<Vec<Uid>> {
        if error.is_empty() {
            return self.answered();
        }
        let mut error = error.to_owned();
        truncate(&mut error, MAX_REASON_BYTES);
        self.failed(error);
        None
    }

    fn failed(&mut self, reason: String) {
        match self {
            RuntimeHealth::Down { error, .. } => *error = reason,
            RuntimeHealth::Up => {
                tracing::warn!(
                    error = reason,
                    "the container runtime does not answer; pods are not synced"
                );
                *self = RuntimeHealth::Down {
                    error: reason,
                    postponed: BTreeSet::new(),
                };
            }
        }
    }

    fn answered(&mut self) -> Option<Vec<Uid>> {
        let RuntimeHealth::Down { postponed, .. } = std::mem::take(self) else {
            return None;
        };
        let pods = postponed.len();
        tracing::info!(pods, "the container runtime answers again");
        Some(postponed.into_iter().collect())
    }

    /// Lets a pod wait if the runtime does not answer; returns whether it waits.
    pub(crate) fn postpone(&mut self, uid: &Uid) -> bool {
        match self {
            RuntimeHealth::Up => false,
            RuntimeHealth::Down { postponed, .. } => {
                postponed.insert(Arc::clone(uid));
                true
            }
        }
    }

    /// What is wrong; empty when nothing is.
    #[must_use]
    pub(crate) fn error(&self) -> &str {
        match self {
            RuntimeHealth::Up => "",
            RuntimeHealth::Down { error, .. } => error,
        }
    }
}
