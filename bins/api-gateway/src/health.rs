//! How the connection to the API server stands, for people.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_api::v1;
use clock::{UnixNanos, WallClock};
use ipc::limits::truncate;
use process::Lifecycle;
use tokio::sync::watch;

/// Longest error that is shown.
const MAX_ERROR_BYTES: usize = 1 << 10;

/// Shared by all that talk to the API server.
#[derive(Clone)]
pub(crate) struct Health {
    clock: WallClock,
    lifecycle: Lifecycle,
    state: Arc<Mutex<v1::GetApiConnectionResponse>>,
    /// Whether the last attempt to connect succeeded.
    reachable: watch::Sender<bool>,
}

impl Health {
    pub(crate) fn new(
        server: &str,
        certificate_end: Option<i64>,
        clock: WallClock,
        lifecycle: Lifecycle,
    ) -> Health {
        let state = v1::GetApiConnectionResponse {
            server: server.to_owned(),
            certificate_not_after_unix_seconds: certificate_end.unwrap_or_default(),
            ..v1::GetApiConnectionResponse::default()
        };
        let health = Health {
            clock,
            lifecycle,
            state: Arc::new(Mutex::new(state)),
            reachable: watch::Sender::new(true),
        };
        health.show(&health.lock());
        health
    }

    /// The API server has answered.
    pub(crate) fn answered(&self) {
        let UnixNanos(now) = self.clock.now();
        let mut state = self.lock();
        if state.connected_since_unix_nanos == 0 {
            state.connected_since_unix_nanos = now;
            tracing::info!(server = state.server, "the API server answers");
            self.show(&state);
        }
    }

    /// It has not.
    pub(crate) fn failed(&self, error: &str) {
        let mut state = self.lock();
        let was_connected = state.connected_since_unix_nanos != 0;
        state.connected_since_unix_nanos = 0;
        let is_new = self.note(&mut state, error);
        if was_connected || is_new {
            tracing::warn!(
                server = state.server,
                error,
                "the API server does not answer"
            );
            self.show(&state);
        }
    }

    /// It has answered, with something that is not taken.
    pub(crate) fn is_odd(&self, what: &str) {
        let mut state = self.lock();
        if self.note(&mut state, what) {
            tracing::warn!(
                server = state.server,
                what,
                "the API server is not believed"
            );
        }
    }

    /// Notes an error; whether the last one was another.
    fn note(&self, state: &mut v1::GetApiConnectionResponse, error: &str) -> bool {
        let UnixNanos(now) = self.clock.now();
        let mut error = error.to_owned();
        truncate(&mut error, MAX_ERROR_BYTES);
        state.last_error_unix_nanos = now;
        let is_new = state.last_error != error;
        state.last_error = error;
        is_new
    }

    /// There was an attempt to connect.
    pub(crate) fn connects(&self, succeeds: bool) {
        self.reachable.send_replace(succeeds);
    }

    /// Waits until there is a connection again after there could be none. Cancel-safe: it
    /// only waits.
    pub(crate) async fn comes_back(&self) {
        let mut reachable = self.reachable.subscribe();
        for expected in [false, true] {
            // The sender is here, so that this does not fail.
            drop(reachable.wait_for(|is| *is == expected).await);
        }
    }

    /// It has said of which version it is.
    pub(crate) fn is_of_version(&self, version: String) {
        self.lock().version = version;
    }

    /// For people.
    pub(crate) fn get(&self) -> v1::GetApiConnectionResponse {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, v1::GetApiConnectionResponse> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, state: &v1::GetApiConnectionResponse) {
        let line = match (state.connected_since_unix_nanos, &*state.last_error) {
            (0, "") => format!("{}: connecting", state.server),
            (0, error) => format!("{}: {error}", state.server),
            _ => format!("{}: connected", state.server),
        };
        self.lifecycle.set_status(&line);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn only_a_server_that_could_not_be_reached_comes_back() {
        let lifecycle = Lifecycle::unsupervised(CancellationToken::new());
        let health = Health::new("s", None, WallClock::system(), lifecycle);
        for (attempts, expected) in [
            (vec![], None),
            (vec![true], None),
            (vec![false], None),
            (vec![true, false, false, true], Some(())),
        ] {
            let mut back = Box::pin(health.comes_back());
            assert_eq!(back.as_mut().now_or_never(), None);
            let mut came_back = None;
            for succeeds in attempts.clone() {
                health.connects(succeeds);
                came_back = back.as_mut().now_or_never();
            }
            assert_eq!(came_back, expected, "{attempts:?}");
            drop(back);
            health.connects(true);
        }
    }
}
