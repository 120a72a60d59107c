//! Removing containers that were created and, as far as anybody can see, not started.
//!
//! A start that an earlier life of this process asked for may still be under way: the
//! runtime carries it out, since the connection outlives the process. What it has just
//! started is killed without a SIGTERM by its removal, and by the end of its sandbox.

use std::time::Duration;

use clock::{UnixNanos, WallClock};
use cri::RuntimeError;
use pod_lifecycle::observation::ContainerState;
use tokio::time::Instant;

use super::Steps;
use crate::observe;

/// How long after the begin of a life a start of an earlier one may still be under way.
/// On a healthy node it takes a quarter of a second; one that takes longer is seen in
/// most cases, since the runtime refuses the removal meanwhile.
const STARTS_MAY_TAKE: Duration = Duration::from_secs(5);

/// Wait between two looks at one that may be starting.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// When this life of the process began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LifeBegin {
    /// In wall time, as the runtime dates containers.
    wall: UnixNanos,
    /// On the clock that waits go by.
    instant: Instant,
}

impl LifeBegin {
    /// A life that begins now.
    pub(crate) fn now(clock: &WallClock) -> LifeBegin {
        LifeBegin {
            wall: clock.now(),
            instant: Instant::now(),
        }
    }
}

/// What became of a container that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// It is gone.
    Removed,
    /// It has been started meanwhile, and is to be stopped like any other if it runs
    /// still.
    Started,
}

impl Steps {
    /// Removes a container that was seen as created, once no earlier life can be
    /// starting it any more.
    pub(super) async fn remove_unstarted(&self, id: &str) -> Result<Removal, RuntimeError> {
        loop {
            let status = match self.runtime.container_status(id).await {
                Err(error) if error.is_not_found() => return Ok(Removal::Removed),
                status => status?,
            };
            if observe::state_of(&status) != ContainerState::Created {
                return Ok(Removal::Started);
            }
            if !self.may_be_starting(UnixNanos(status.created_at)) {
                break;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        match self.runtime.remove_container(id).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(Removal::Removed),
        }
    }

    /// Those that this life asked for were waited for before anything is removed.
    fn may_be_starting(&self, created_at: UnixNanos) -> bool {
        created_at < self.begin.wall && self.begin.instant.elapsed() < STARTS_MAY_TAKE
    }
}
