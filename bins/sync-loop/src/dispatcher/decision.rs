//! What was last decided about each desired pod, and why: for people.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bulkhead_api::v1::UpdateType;
use clock::UnixNanos;

use super::admission::{Awaited, Rejection};
use super::cause::Cause;
use super::desired_pods::Uid;

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its worker was told.
    Sent {
        /// What kind of update.
        kind: UpdateType,
        /// Why.
        cause: Cause,
    },
    /// It is not checked yet.
    Waits(Awaited),
    /// It may not run.
    Rejected(Rejection),
    /// The runtime does not answer; it is looked at when that is over.
    Postponed(Cause),
    /// The worker pool refused the update.
    Refused(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Sent { kind, cause } => {
                let kind = kind.as_str_name().trim_start_matches("UPDATE_TYPE_");
                write!(formatter, "sent {kind} to its worker: {cause}")
            }
            Outcome::Waits(Awaited::WorkerPool) => {
                formatter.write_str("waits until the worker pool has said which pods run")
            }
            Outcome::Waits(Awaited::Runtime) => {
                formatter.write_str("waits until the container runtime has said which pods run")
            }
            Outcome::Waits(Awaited::Capacity) => {
                formatter.write_str("waits until the capacity of the node is known")
            }
            Outcome::Waits(Awaited::OtherPods) => formatter.write_str(
                "waits until it is known whether pods of an earlier run, or that begin anew, \
                 need their resources",
            ),
            Outcome::Rejected(rejection) => {
                write!(
                    formatter,
                    "rejected with {}: {}",
                    rejection.reason, rejection.message
                )
            }
            Outcome::Postponed(cause) => {
                write!(formatter, "waits for the container runtime: {cause}")
            }
            Outcome::Refused(reason) => write!(formatter, "the worker pool refused it: {reason}"),
        }
    }
}

/// What was decided, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// When.
    pub at: UnixNanos,
    /// What, and why.
    pub outcome: Outcome,
}

/// The last decision about each desired pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decisions {
    by_pod: BTreeMap<Uid, Decision>,
}

impl Decisions {
    /// Replaces the last decision about a pod.
    pub(crate) fn note(&mut self, uid: &Uid, decision: Decision) {
        self.by_pod.insert(Arc::clone(uid), decision);
    }

    /// Forgets a pod.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.by_pod.remove(uid);
    }

    /// The last decision about a pod.
    #[must_use]
    pub(crate) fn last(&self, uid: &str) -> Option<&Decision> {
        self.by_pod.get(uid)
    }
}

#[cfg(test)]
mod tests {
    use pod::PodSource;

    use super::*;

    #[test]
    fn a_decision_says_what_and_why() {
        let sent = Outcome::Sent {
            kind: UpdateType::Create,
            cause: Cause::Added(PodSource::File),
        };
        assert_eq!(
            sent.to_string(),
            "sent CREATE to its worker: added by source file"
        );
    }
}
