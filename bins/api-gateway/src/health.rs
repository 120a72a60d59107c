//! How the connection to the API server stands, for people.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_api::v1;
use clock::{UnixNanos, WallClock};
use ipc::limits::truncate;
use process::Lifecycle;

/// Longest error that is shown.
const MAX_ERROR_BYTES: usize = 1 << 10;

/// Shared by all that talk to the API server.
#[derive(Clone)]
pub(crate) struct Health {
    clock: WallClock,
    lifecycle: Lifecycle,
    state: Arc<Mutex<v1::GetApiConnectionResponse>>,
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
