//! The prober: liveness, readiness and startup probes of every container.
//!
//! - [`spec`]: what a probe asks for (pure);
//! - [`worker`], [`instance`]: when it is tried and what its tries add up to (pure).

pub mod instance;
pub mod spec;
pub mod worker;

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
