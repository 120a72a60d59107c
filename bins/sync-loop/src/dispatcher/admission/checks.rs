//! The kubelet's checks in the kubelet's order, with its reasons and messages.
//! Pure: the node and the other pods are given.

use super::node_affinity::{self, NodeDescription};
use super::rejection::Rejection;
use super::resources::{self, Allocatable};
use super::{operating_system, ports};
use crate::dispatcher::pod_facts::PodFacts;

/// Checks a pod against the node and the pods that use its resources.
///
/// # Errors
/// With the first check that fails, in the kubelet's order: operating system,
/// resources, node selector and affinity, node name, host ports.
pub(super) fn admit(
    pod: &PodFacts,
    others: &[&PodFacts],
    node: &NodeDescription,
    allocatable: &Allocatable,
) -> Result<(), Rejection> {
    operating_system::check(pod)?;
    resources::check(pod, others, allocatable)?;
    node_affinity::check(pod, node)?;
    ports::check(pod, others)
}
