//! The labels and annotations by which the kubelet marks pods, sandboxes and
//! containers. Names and values are an interface: crictl, log shippers and a
//! kubelet that takes over a node read them.

/// UID that a static pod was given from its manifest; for a mirror pod the key
/// to compare with.
pub const CONFIG_HASH_ANNOTATION: &str = "kubernetes.io/config.hash";
/// When the source first delivered the pod (RFC 3339).
pub const CONFIG_SEEN_ANNOTATION: &str = "kubernetes.io/config.seen";
/// Where the pod came from: `file`, `http` or `api`.
pub const CONFIG_SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";
/// Present on a mirror pod; holds the hash of the static pod it mirrors.
pub const CONFIG_MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Sandbox and container label: the pod's name.
pub const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";
/// Sandbox and container label: the pod's namespace.
pub const POD_NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";
/// Sandbox and container label: the pod's UID.
pub const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";
/// Container label: the container's name in the pod.
pub const CONTAINER_NAME_LABEL: &str = "io.kubernetes.container.name";

/// Container annotation: hash of the container's spec, hexadecimal.
pub const CONTAINER_HASH_ANNOTATION: &str = "io.kubernetes.container.hash";
/// Container annotation: how often the container was started before, decimal.
pub const CONTAINER_RESTART_COUNT_ANNOTATION: &str = "io.kubernetes.container.restartCount";
/// Container annotation: where in the container the termination message is.
pub const TERMINATION_MESSAGE_PATH_ANNOTATION: &str =
    "io.kubernetes.container.terminationMessagePath";
/// Container annotation: `File` or `FallbackToLogsOnError`.
pub const TERMINATION_MESSAGE_POLICY_ANNOTATION: &str =
    "io.kubernetes.container.terminationMessagePolicy";
/// Container annotation: the preStop hook as JSON.
pub const CONTAINER_PRE_STOP_ANNOTATION: &str = "io.kubernetes.container.preStopHandler";
/// Container annotation: the container's ports as JSON.
pub const CONTAINER_PORTS_ANNOTATION: &str = "io.kubernetes.container.ports";
/// Container annotation: the pod's `deletionGracePeriodSeconds`, decimal.
pub const POD_DELETION_GRACE_PERIOD_ANNOTATION: &str = "io.kubernetes.pod.deletionGracePeriod";
/// Container annotation: the pod's `terminationGracePeriodSeconds`, decimal.
pub const POD_TERMINATION_GRACE_PERIOD_ANNOTATION: &str =
    "io.kubernetes.pod.terminationGracePeriod";

/// Annotations that a source adds on its own: they say how the pod reached this
/// node, so a difference in them is no update of the pod.
pub const LOCAL_ANNOTATIONS: [&str; 4] = [
    CONFIG_SOURCE_ANNOTATION,
    CONFIG_MIRROR_ANNOTATION,
    CONFIG_SEEN_ANNOTATION,
    CONFIG_HASH_ANNOTATION,
];

/// Priority class of a pod that its node cannot do without.
pub const SYSTEM_NODE_CRITICAL: &str = "system-node-critical";
/// Priority class of a pod that its cluster cannot do without.
pub const SYSTEM_CLUSTER_CRITICAL: &str = "system-cluster-critical";
/// Pods of this priority and above are critical.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The priority that a class of the system stands for, which an API server fills in.
#[must_use]
pub fn system_priority(class: Option<&str>) -> Option<i32> {
    match class? {
        SYSTEM_NODE_CRITICAL => Some(SYSTEM_CRITICAL_PRIORITY + 1000),
        SYSTEM_CLUSTER_CRITICAL => Some(SYSTEM_CRITICAL_PRIORITY),
        _ => None,
    }
}
