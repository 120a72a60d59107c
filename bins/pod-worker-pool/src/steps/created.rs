//! Removing containers that were created and, as far as anybody can see, not started.
//!
//! A start that an earlier process asked for may still be under way: the
//! runtime carries it out, since the connection outlives the process. What it has just
//! started is killed without a SIGTERM by its removal, and by the end of its sandbox.

use std::time::Duration;

use clock::UnixNanos;
use cri::{RuntimeError, RuntimeErrorKind};
use pod_lifecycle::observation::ContainerState;

use super::context::StepContext;
use super::process_start::ProcessStart;
use crate::observe;

/// How long after the start of this process a start of a container that an earlier one
/// asked for may still be under way.
/// On a healthy node it takes a quarter of a second; one that takes longer is seen in
/// most cases, since the runtime refuses the removal meanwhile.
const STARTS_MAY_TAKE: Duration = Duration::from_secs(5);

/// Wait between two looks at one that may be starting.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What became of a container that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// It is gone.
    Removed,
    /// The runtime cannot remove it, which is in nobody's way: it goes with its sandbox, and
    /// the next instance has another name.
    Kept,
    /// It has been started meanwhile, and is to be stopped like any other if it runs
    /// still.
    Started,
}

/// Removes a container that was seen as created, once no earlier process can be
/// starting it any more.
pub(super) async fn remove_created(
    context: &StepContext,
    id: &str,
) -> Result<Removal, RuntimeError> {
    loop {
        let status = match context.runtime.reads.container_status(id).await {
            Err(error) if error.is_not_found() => return Ok(Removal::Removed),
            status => status?,
        };
        if observe::state_of(&status) != ContainerState::Created {
            return Ok(Removal::Started);
        }
        if !may_be_starting(context.process_start, UnixNanos(status.created_at)) {
            break;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    removal(id, context.runtime.changes.remove_container(id).await)
}

/// What the removal of a container came to that never ran.
///
/// # Errors
/// When it may be removed later: it is being started, or the runtime did not answer.
pub(super) fn removal(
    id: &str,
    removed: Result<(), RuntimeError>,
) -> Result<Removal, RuntimeError> {
    match removed {
        Err(error) if error.is_not_found() => Ok(Removal::Removed),
        Err(error) if error.is_refusal() && error.kind != RuntimeErrorKind::BeingStarted => {
            let error = telemetry::chain(&error);
            tracing::warn!(container_id = id, error, "cannot remove what never ran");
            Ok(Removal::Kept)
        }
        removed => removed.map(|()| Removal::Removed),
    }
}

/// Those that this process asked for were waited for before anything is removed. What was
/// created in the moment in which this process began was created by an earlier one.
fn may_be_starting(begin: ProcessStart, created_at: UnixNanos) -> bool {
    created_at <= begin.wall && begin.instant.elapsed() < STARTS_MAY_TAKE
}

#[cfg(test)]
mod tests {
    use clock::WallClock;

    use super::*;
    use crate::testing::START;

    #[tokio::test(start_paused = true)]
    async fn what_an_earlier_process_created_may_be_starting_for_a_while() {
        let begin = ProcessStart::now(&WallClock::simulated(START));
        let before = UnixNanos(begin.wall.0 - 1);
        let after = UnixNanos(begin.wall.0 + 1);
        assert!(may_be_starting(begin, before));
        assert!(may_be_starting(begin, begin.wall));
        assert!(!may_be_starting(begin, after));
        tokio::time::advance(STARTS_MAY_TAKE).await;
        assert!(!may_be_starting(begin, before));
    }
}
