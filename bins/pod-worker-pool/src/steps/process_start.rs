//! When this process was started.

use clock::{UnixNanos, WallClock};
use tokio::time::Instant;

/// When this process was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessStart {
    /// In wall time, as the runtime dates containers.
    pub(super) wall: UnixNanos,
    /// On the clock that waits go by.
    pub(super) instant: Instant,
}

impl ProcessStart {
    /// It is started now.
    pub(crate) fn now(clock: &WallClock) -> ProcessStart {
        ProcessStart {
            wall: clock.now(),
            instant: Instant::now(),
        }
    }
}
