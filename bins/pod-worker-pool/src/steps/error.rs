//! What a step can fail with, and when it is tried again.

use clock::UnixNanos;
use cri::{RuntimeError, RuntimeErrorKind};

use crate::config::BuildError;
use crate::node::NodeError;
use crate::observation::HALF_MADE;
use crate::record::RecordError;

/// How long a failed step waits, the shorter first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pause {
    /// About a second: the cause is likely to pass by itself.
    Soon,
    /// The error back-off of some ten seconds.
    Later,
}

/// When a failed step is run again: at the earlier of the two. What waits longer
/// for a reason of its own, like an image that cannot be pulled, sees to that
/// itself: a step that is run early leaves it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// After this pause.
    pub pause: Option<Pause>,
    /// At this time, when a back-off is over or something else is due.
    pub at: Option<UnixNanos>,
}

impl Retry {
    /// After [`Pause::Soon`].
    pub(crate) const SOON: Retry = Retry::after(Pause::Soon);
    /// After [`Pause::Later`].
    pub(crate) const LATER: Retry = Retry::after(Pause::Later);

    const fn after(pause: Pause) -> Retry {
        Retry {
            pause: Some(pause),
            at: None,
        }
    }

    /// At this time.
    #[must_use]
    pub(crate) const fn at(at: UnixNanos) -> Retry {
        Retry {
            pause: None,
            at: Some(at),
        }
    }

    /// The earlier of both.
    #[must_use]
    pub(crate) fn or(self, other: Retry) -> Retry {
        Retry {
            pause: self.pause.into_iter().chain(other.pause).min(),
            at: self.at.into_iter().chain(other.at).min(),
        }
    }
}

/// Why a step failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct StepError {
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
    pub(crate) fn panicked() -> StepError {
        StepError::new(
            "internal error: see the log of pod-worker-pool",
            Retry::LATER,
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
        StepError {
            message: format!("{}; {}", self.message, other.message),
            retry: self.retry.or(other.retry),
        }
    }

    /// The error, tried again at this time at the latest.
    pub(super) fn at_latest(self, at: Option<UnixNanos>) -> StepError {
        StepError {
            retry: self.retry.or(Retry { pause: None, at }),
            ..self
        }
    }
}

impl From<RuntimeError> for StepError {
    fn from(error: RuntimeError) -> StepError {
        let retry = if is_transient(&error) {
            Retry::SOON
        } else {
            Retry::LATER
        };
        StepError::new(telemetry::chain(&error), retry)
    }
}

impl From<NodeError> for StepError {
    fn from(error: NodeError) -> StepError {
        StepError::new(telemetry::chain(&error), Retry::LATER)
    }
}

impl From<RecordError> for StepError {
    fn from(error: RecordError) -> StepError {
        StepError::new(telemetry::chain(&error), Retry::LATER)
    }
}

impl From<BuildError> for StepError {
    fn from(error: BuildError) -> StepError {
        StepError::new(telemetry::chain(&error), Retry::LATER)
    }
}

/// Whether the runtime was away or slow, or something that we asked for earlier is
/// still being made or undone.
fn is_transient(error: &RuntimeError) -> bool {
    is_no_answer(error)
        || is_name_taken(error)
        || is_not_startable(error)
        || is_being_started(error)
}

/// Whether an instance cannot be removed because a call of an earlier life of this
/// process starts it. containerd says so in words only.
fn is_being_started(error: &RuntimeError) -> bool {
    error.message.starts_with("failed to set removing state")
}

/// Whether the runtime was away or slow: nobody knows what became of the call.
pub(super) fn is_no_answer(error: &RuntimeError) -> bool {
    matches!(
        error.kind,
        RuntimeErrorKind::Unavailable | RuntimeErrorKind::DeadlineExceeded
    )
}

/// Whether an instance is not in the state to be started that it was seen in: a call
/// of an earlier life of this process starts it, or that call has ended meanwhile,
/// well or not. containerd says so in words only; they come first, since a program's
/// name may stand in what it says of a start.
pub(super) fn is_not_startable(error: &RuntimeError) -> bool {
    error.message.starts_with("failed to set starting state")
}

/// Whether an instance cannot be started because the call that made it lost its
/// caller. To be asked of one that an earlier call made only: what is said of a start
/// may hold words of the pod's choice.
pub(super) fn is_half_made(error: &RuntimeError) -> bool {
    error.message.contains(HALF_MADE)
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
            (RuntimeErrorKind::Unavailable, "", Retry::SOON),
            (RuntimeErrorKind::DeadlineExceeded, "", Retry::SOON),
            (RuntimeErrorKind::AlreadyExists, "", Retry::SOON),
            (
                RuntimeErrorKind::Other,
                "failed to reserve sandbox name \"a_b\": name \"a_b\" is reserved for \"12\"",
                Retry::SOON,
            ),
            (
                RuntimeErrorKind::Other,
                "failed to set starting state for container \"12\": container is already in starting state",
                Retry::SOON,
            ),
            (
                RuntimeErrorKind::Other,
                "failed to set starting state for container \"12\": container is in CONTAINER_EXITED state",
                Retry::SOON,
            ),
            (
                RuntimeErrorKind::Other,
                "failed to set removing state for container \"12\": container is in starting state, can't be removed",
                Retry::SOON,
            ),
            (
                RuntimeErrorKind::Other,
                "exec: \"failed to set starting state\": executable file not found",
                Retry::LATER,
            ),
            (
                RuntimeErrorKind::Other,
                "exec: \"lstat /proc/0/ns/\": executable file not found",
                Retry::LATER,
            ),
            (
                RuntimeErrorKind::Other,
                "no space left on device",
                Retry::LATER,
            ),
        ] {
            let error = RuntimeError::new("Test", kind, message);
            assert_eq!(StepError::from(error).retry, retry, "{kind} {message}");
        }
    }

    #[test]
    fn of_two_failures_the_earlier_retry_counts() {
        let failed = |retry| StepError::new("x", retry);
        let at = |seconds| Retry::at(UnixNanos(seconds));
        let either = |pause, seconds| Retry {
            pause: Some(pause),
            at: Some(UnixNanos(seconds)),
        };
        for (one, two, expected) in [
            (Retry::SOON, Retry::LATER, Retry::SOON),
            (Retry::LATER, Retry::LATER, Retry::LATER),
            (at(2), at(1), at(1)),
            // Which is earlier only the clock can tell.
            (at(1), Retry::SOON, either(Pause::Soon, 1)),
            (Retry::LATER, at(3), either(Pause::Later, 3)),
            (either(Pause::Later, 3), Retry::SOON, either(Pause::Soon, 3)),
        ] {
            assert_eq!(failed(one).and(failed(two)).retry, expected);
            assert_eq!(failed(two).and(failed(one)).retry, expected);
        }
    }

    #[test]
    fn what_is_due_before_a_failure_is_tried_again_is_not_slept_through() {
        let failed = || StepError::new("x", Retry::at(UnixNanos(300)));
        for (due, expected) in [(None, 300), (Some(9), 9), (Some(400), 300)] {
            let error = failed().at_latest(due.map(UnixNanos));
            assert_eq!(error.retry, Retry::at(UnixNanos(expected)));
        }
    }
}
