//! Annotations of ours on sandboxes and containers: what must survive the death of
//! every process, kept where the thing itself is. Everything else that is marked
//! there is the kubelet's (`pod::metadata`).

/// Container: how many seconds the start after its exit waits (crash-loop
/// back-off), decimal.
pub const RESTART_WAIT: &str = "bulkhead/restart-wait-seconds";

/// Container: which of the pod's init containers it is, from 0, if it is a sidecar. Those
/// are stopped last, in reverse order, also when nobody has the pod any more. Decimal.
pub const SIDECAR: &str = "bulkhead/sidecar-index";

/// Container: how often all containers of its pod had been started again when it was made
/// (`plan::round`), decimal. Absent before the first time.
pub const ROUND: &str = "bulkhead/round";

/// Container: the CPU and memory that it was made with, as `InstanceResources` in JSON.
pub const RESOURCES: &str = "bulkhead/resources";

/// Container: the images that are mounted into it, as a list in JSON of the runtime's own
/// names. They are kept as long as there is the container.
pub const VOLUME_IMAGES: &str = "bulkhead/volume-images";

/// Sandbox: what of its pod may not change while it runs, as `pod::update` has it.
pub const STARTED_WITH: &str = "bulkhead/started-with";

/// Sandbox: when the pod was first started, Unix nanoseconds, decimal. Set for
/// pods with an active deadline, and taken over into each further sandbox.
pub const POD_STARTED_AT: &str = "bulkhead/pod-started-at";
