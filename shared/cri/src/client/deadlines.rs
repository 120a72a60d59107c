//! How long calls may take.

use std::time::Duration;

/// Deadline of a call that has no other (the kubelet's runtimeRequestTimeout).
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(120);

/// A sandbox waits for the network plugins, so it gets twice that, as in the kubelet.
pub const RUN_POD_SANDBOX_DEADLINE: Duration = Duration::from_secs(240);

/// A large image over a slow line takes long; without any end a hung registry would
/// hold its place among the parallel pulls for ever.
pub(super) const PULL_IMAGE_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// What something uses is told in milliseconds, unless a container's shim hangs: containerd
/// then answers no question about all of them, and who asks next waits behind that one.
pub(super) const USAGE_DEADLINE: Duration = Duration::from_secs(10);

/// The runtime only makes up an address, after a look at the container.
pub(super) const SESSION_DEADLINE: Duration = Duration::from_secs(10);
