//! What a step can fail with, and when it is tried again.

use std::time::Duration;

use clock::UnixNanos;
use cri::{RuntimeError, RuntimeErrorKind};
use cri_requests::BuildError;
use node_host::NodeError;
use pod_lifecycle::plan::Plan;
use state_file::NotSaved;

/// How long a failed step waits, the shorter first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pause {
    /// The cause is likely to pass by itself.
    Soon,
    /// The error back-off.
    Later,
}

impl Pause {
    /// How long it is at least.
    pub(crate) fn length(self) -> Duration {
        match self {
            Pause::Soon => Duration::from_secs(1),
            // The kubelet's back-off period.
            Pause::Later => Duration::from_secs(10),
        }
    }
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

    /// The same with an error that came before it, if any.
    pub(super) fn and_before(self, earlier: Option<StepError>) -> StepError {
        match earlier {
            Some(earlier) => earlier.and(self),
            None => self,
        }
    }

    /// A plan that the step's goal cannot lead to: a bug of ours.
    pub(super) fn out_of_place(plan: &Plan) -> StepError {
        let message = format!("internal error: no plan for this step: {plan:?}");
        StepError::new(message, Retry::LATER)
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
        let retry = if is_transient(error.kind) {
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

impl From<NotSaved> for StepError {
    fn from(error: NotSaved) -> StepError {
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
fn is_transient(kind: RuntimeErrorKind) -> bool {
    match kind {
        RuntimeErrorKind::Unavailable
        | RuntimeErrorKind::DeadlineExceeded
        | RuntimeErrorKind::AlreadyExists
        | RuntimeErrorKind::NotStartable
        | RuntimeErrorKind::BeingStarted => true,
        RuntimeErrorKind::NotFound
        | RuntimeErrorKind::Unimplemented
        | RuntimeErrorKind::NoSandboxProcess
        | RuntimeErrorKind::Forbidden
        | RuntimeErrorKind::Exhausted
        | RuntimeErrorKind::Other => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_name_and_a_runtime_that_is_away_pass_by_themselves() {
        for (kind, retry) in [
            (RuntimeErrorKind::Unavailable, Retry::SOON),
            (RuntimeErrorKind::DeadlineExceeded, Retry::SOON),
            (RuntimeErrorKind::AlreadyExists, Retry::SOON),
            (RuntimeErrorKind::NotStartable, Retry::SOON),
            (RuntimeErrorKind::BeingStarted, Retry::SOON),
            (RuntimeErrorKind::NoSandboxProcess, Retry::LATER),
            (RuntimeErrorKind::NotFound, Retry::LATER),
            (RuntimeErrorKind::Forbidden, Retry::LATER),
            (RuntimeErrorKind::Other, Retry::LATER),
        ] {
            let error = RuntimeError::new("Test", kind, "");
            assert_eq!(StepError::from(error).retry, retry, "{kind}");
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
