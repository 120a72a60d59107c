//! The three probes of a container, and the time that decisions about them take.

use std::time::Duration;

/// Time since this process started.
pub type Moment = Duration;

/// The three probes of a container.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Restart the container when it fails.
    Liveness,
    /// Send it no traffic when it fails.
    Readiness,
    /// The others wait until it succeeded.
    Startup,
}
