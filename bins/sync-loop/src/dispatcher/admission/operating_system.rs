//! The operating system that a pod is made for.

use super::rejection::Rejection;
use crate::dispatcher::pod_facts::PodFacts;

/// What runs here.
const NODE_OS: &str = "linux";

/// Refuses pods of other systems: by their own label, as the kubelet does, and
/// by `spec.os.name`. (A node selector is checked with the others.)
pub(super) fn check(pod: &PodFacts) -> Result<(), Rejection> {
    if pod
        .operating_system_label
        .as_deref()
        .is_some_and(|label| label != NODE_OS)
    {
        return Err(Rejection {
            reason: "PodOSSelectorNodeLabelDoesNotMatch".to_owned(),
            message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
                .to_owned(),
        });
    }
    if pod
        .operating_system
        .as_deref()
        .is_some_and(|system| system != NODE_OS)
    {
        return Err(Rejection {
            reason: "PodOSNotSupported".to_owned(),
            message: "Failed to admit pod as the OS field doesn't match node OS".to_owned(),
        });
    }
    Ok(())
}
