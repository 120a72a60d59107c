//! The kubelet's checks in the kubelet's order, with its reasons and messages.
//! Pure: the node and the other pods are given.

use super::features::{self, NodeFeatures};
use super::node::NodeDescription;
use super::rejection::Rejection;
use super::resources::{self, Allocatable};
use super::{node_affinity, operating_system, ports, sysctls, taints};
use crate::dispatcher::pod_facts::PodFacts;

/// Checks a pod against the node and the pods that use its resources.
///
/// # Errors
/// With the first check that fails, in the kubelet's order: sysctls, operating system,
/// policy of groups, resources, node selector and affinity, node name, host ports, taints,
/// AppArmor.
pub(super) fn admit(
    pod: &PodFacts,
    others: &[&PodFacts],
    node: &NodeDescription,
    (allocatable, features): (&Allocatable, &NodeFeatures),
) -> Result<(), Rejection> {
    sysctls::check(pod, features.kernel, &node.allowed_unsafe_sysctls)?;
    operating_system::check(pod)?;
    features::check_groups(pod, features)?;
    resources::check(pod, others, allocatable)?;
    node_affinity::check(pod, node)?;
    ports::check(pod, others)?;
    taints::check(pod, node)?;
    features::check_app_armor(pod, features)
}
