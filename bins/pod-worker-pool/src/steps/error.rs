//! What a step can fail with, and when it is tried again.

use clock::UnixNanos;
use cri::{RuntimeError, RuntimeErrorKind};

use crate::config::BuildError;
use crate::node::NodeError;

/// When a failed step is run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After about a second: the cause is likely to pass by itself.
    Soon,
    /// After the error back-off of some ten seconds.
    Later,
    /// At this time, when a back-off of its own is over.
    At(UnixNanos),
}

/// Why a step failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct StepError {
    /// The whole story, causes included, as the pod's owner should see it.
    pub message: String,
    /// When to try again.
    pub retry: Retry,
}

impl StepError {
    pub(super) fn new(message: impl Into<String>, retry: Retry) -> StepError {
        StepError {
            message: message.into(),
            retry,
        }
    }

    /// A step that ended by a bug of ours; another one may get past it.
    #[must_use]
    pub fn panicked() -> StepError {
        StepError::new(
            "internal error: see the log of pod-worker-pool",
            Retry::Later,
        )
    }

    /// The error with words before it that say what was tried.
    pub(super) fn while_doing(self, what: &str) -> StepError {
        StepError {
            message: format!("{what}: {}", self.message),
            retry: self.retry,
        }
    }

    /// The earlier retry of two, and what is to be said of both.
    pub(super) fn and(self, other: StepError) -> StepError {
        let retry = match (self.retry, other.retry) {
            (Retry::Soon, _) | (_, Retry::Soon) => Retry::Soon,
            (Retry::At(one), Retry::At(two)) => Retry::At(one.min(two)),
            (Retry::At(at), Retry::Later) | (Retry::Later, Retry::At(at)) => Retry::At(at),
            (Retry::Later, Retry::Later) => Retry::Later,
        };
        StepError {
            message: format!("{}; {}", self.message, other.message),
            retry,
        }
    }
}

impl From<RuntimeError> for StepError {
    fn from(error: RuntimeError) -> StepError {
        let retry = if is_transient(&error) {
            Retry::Soon
        } else {
            Retry::Later
        };
        StepError::new(telemetry::chain(&error), retry)
    }
}

impl From<NodeError> for StepError {
    fn from(error: NodeError) -> StepError {
        StepError::new(telemetry::chain(&error), Retry::Later)
    }
}

impl From<BuildError> for StepError {
    fn from(error: BuildError) -> StepError {
        StepError::new(telemetry::chain(&error), Retry::Later)
    }
}

/// Whether the runtime was away or slow, or something that we asked for earlier is
/// still being made or undone.
pub(super) fn is_transient(error: &RuntimeError) -> bool {
    matches!(
        error.kind,
        RuntimeErrorKind::Unavailable | RuntimeErrorKind::DeadlineExceeded
    ) || is_name_taken(error)
}

/// Whether a name is taken: by an instance of ours that does not show yet, or
/// that is being removed. containerd says so in words only.
pub(super) fn is_name_taken(error: &RuntimeError) -> bool {
    error.kind == RuntimeErrorKind::AlreadyExists || error.message.contains("is reserved for")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_name_and_a_runtime_that_is_away_pass_by_themselves() {
        for (kind, message, retry) in [
            (RuntimeErrorKind::Unavailable, "", Retry::Soon),
            (RuntimeErrorKind::DeadlineExceeded, "", Retry::Soon),
            (RuntimeErrorKind::AlreadyExists, "", Retry::Soon),
            (
                RuntimeErrorKind::Other,
                "failed to reserve sandbox name \"a_b\": name \"a_b\" is reserved for \"12\"",
                Retry::Soon,
            ),
            (
                RuntimeErrorKind::Other,
                "no space left on device",
                Retry::Later,
            ),
        ] {
            let error = RuntimeError::new("Test", kind, message);
            assert_eq!(StepError::from(error).retry, retry, "{kind} {message}");
        }
    }

    #[test]
    fn of_two_failures_the_earlier_retry_counts() {
        let failed = |retry| StepError::new("x", retry);
        let at = |seconds| Retry::At(UnixNanos(seconds));
        for (one, two, expected) in [
            (Retry::Soon, Retry::Later, Retry::Soon),
            (at(1), Retry::Soon, Retry::Soon),
            (at(2), at(1), at(1)),
            (Retry::Later, at(3), at(3)),
            (Retry::Later, Retry::Later, Retry::Later),
        ] {
            assert_eq!(failed(one).and(failed(two)).retry, expected);
        }
    }
}
