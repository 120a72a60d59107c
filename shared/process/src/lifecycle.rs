//! Readiness, watchdog and shutdown: the `NOTIFY_SOCKET` protocol of sd_notify(3),
//! the same under the supervisor and under plain systemd.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Least time between two watchdog messages. The supervisor waits 5 s, and
/// sd_notify(3) recommends half of that: each message costs both sides a few system
/// calls, which is much of what an idle process does.
const BEAT_INTERVAL: Duration = Duration::from_secs(2);

/// Longest status line; a message that is much longer is not taken at all.
pub const MAX_STATUS_BYTES: usize = 200;

/// A process's side of its supervision. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Lifecycle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    notifies: bool,
    shutdown: CancellationToken,
    last_beat: Mutex<Option<Instant>>,
    ready: CancellationToken,
}

impl Lifecycle {
    /// Reports to `NOTIFY_SOCKET`, when there is one.
    #[must_use]
    pub fn supervised(shutdown: CancellationToken) -> Lifecycle {
        Lifecycle::new(true, shutdown)
    }

    /// Reports to nobody: for the simulation and for tests.
    #[must_use]
    pub fn unsupervised(shutdown: CancellationToken) -> Lifecycle {
        Lifecycle::new(false, shutdown)
    }

    fn new(notifies: bool, shutdown: CancellationToken) -> Lifecycle {
        let last_beat = Mutex::new(None);
        Lifecycle(Arc::new(Shared {
            notifies,
            shutdown,
            last_beat,
            ready: CancellationToken::new(),
        }))
    }

    /// Cancelled when the process is to stop. Containers keep running.
    #[must_use]
    pub fn shutdown(&self) -> CancellationToken {
        self.0.shutdown.clone()
    }

    /// Serving has begun: call it once the listener accepts.
    pub fn ready(&self) {
        self.0.ready.cancel();
        self.send(&[NotifyState::Ready, NotifyState::Watchdog]);
    }

    /// Waits until [`Lifecycle::ready`] was called.
    pub async fn until_ready(&self) {
        self.0.ready.cancelled().await;
    }

    /// The main loop is alive. To be called from that loop, at least once a
    /// second; more often costs nothing.
    pub fn beat(&self) {
        let now = Instant::now();
        {
            let mut last = self
                .0
                .last_beat
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            // A little early is fine: the second of two ticks a second apart must count.
            if last.is_some_and(|last| now.duration_since(last) < BEAT_INTERVAL.mul_f64(0.9)) {
                return;
            }
            *last = Some(now);
        }
        self.send(&[NotifyState::Watchdog]);
    }

    /// When the main loop last told that it is alive; for who supervises it without
    /// a socket, as the simulation does.
    #[must_use]
    pub fn last_beat(&self) -> Option<Instant> {
        let last = self.0.last_beat.lock();
        *last.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A line for `bulkhead status`; at most [`MAX_STATUS_BYTES`] are shown.
    pub fn set_status(&self, text: &str) {
        self.send(&[NotifyState::Status(&status_line(text))]);
    }

    /// Has a connection kept open beyond the death of this process, by whoever
    /// supervises it (`FDSTORE=1` of sd_notify(3)): who serves it goes on with what
    /// was asked for. Only the last one is kept.
    pub fn keep_open(&self, name: &str, connection: BorrowedFd<'_>) {
        if !self.0.notifies {
            return;
        }
        let states = [NotifyState::FdStore, NotifyState::FdName(name)];
        if let Err(error) = sd_notify::notify_with_fds(&states, &[connection]) {
            tracing::warn!(%error, name, "cannot have a connection kept");
        }
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        if !self.0.notifies {
            return;
        }
        if let Err(error) = sd_notify::notify(states) {
            tracing::warn!(%error, "cannot report to NOTIFY_SOCKET");
        }
    }
}

/// As much of `text` as a status line may have, without control characters.
fn status_line(text: &str) -> String {
    let mut line: String = text
        .chars()
        .filter(|character| !character.is_control())
        .collect();
    line.truncate(line.floor_char_boundary(MAX_STATUS_BYTES));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_cut_by_bytes_between_characters() {
        assert_eq!(status_line("3 pods\n\u{1b}[2J"), "3 pods[2J");
        assert_eq!(status_line(&"x".repeat(500)).len(), MAX_STATUS_BYTES);
        // Three bytes each: 200 of them would be too long a message.
        assert_eq!(status_line(&"\u{20ac}".repeat(200)).chars().count(), 66);
    }
}
