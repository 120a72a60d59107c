//! Room on the node: what it has, less what is reserved, less what the active
//! pods have requested.

use std::collections::BTreeMap;

use bulkhead_api::v1::NodeCapacity;
use pod::Quantity;
use pod::huge_pages::{by_page_size, page_size};
use pod::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, ResourceAmounts};

use super::rejection::Rejection;
use crate::dispatcher::pod_facts::PodFacts;

/// What pods may request in all: cpu in thousandths, everything else in units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allocatable {
    cpu_millis: i64,
    memory_bytes: i64,
    ephemeral_storage_bytes: i64,
    pods: i64,
    /// By page size.
    huge_pages: BTreeMap<u64, u64>,
}

impl Allocatable {
    /// The capacity less `kept` (what hard eviction thresholds keep back, in whole
    /// units by resource name) and `reserved` (quantities by resource name, as in
    /// `systemReserved` and `kubeReserved`; one that is no quantity counts as
    /// absent, the supervisor refuses it).
    #[must_use]
    pub(crate) fn new(
        capacity: &NodeCapacity,
        reserved: &BTreeMap<String, String>,
        kept: &BTreeMap<&str, i64>,
        max_pods: u32,
    ) -> Self {
        let reserved = |name: &str| -> Option<Quantity> { reserved.get(name)?.parse().ok() };
        let left = |capacity: u64, reserved: i64| {
            i64::try_from(capacity)
                .unwrap_or(i64::MAX)
                .saturating_sub(reserved)
                .max(0)
        };
        let units = |name| {
            let kept = kept.get(name).copied().unwrap_or(0);
            kept.saturating_add(reserved(name).map_or(0, Quantity::value))
        };
        Allocatable {
            cpu_millis: left(
                capacity.cpu_millis,
                reserved(CPU).map_or(0, Quantity::milli_value),
            ),
            memory_bytes: left(capacity.memory_bytes, units(MEMORY)),
            ephemeral_storage_bytes: left(
                capacity.ephemeral_storage_bytes,
                units(EPHEMERAL_STORAGE),
            ),
            pods: i64::from(max_pods),
            huge_pages: capacity
                .huge_pages
                .iter()
                .map(|(size, bytes)| (*size, *bytes))
                .collect(),
        }
    }

    pub(super) fn of(&self, name: &str) -> i64 {
        match name {
            CPU => self.cpu_millis,
            MEMORY => self.memory_bytes,
            EPHEMERAL_STORAGE => self.ephemeral_storage_bytes,
            PODS => self.pods,
            _ => {
                let pages = page_size(name).and_then(|size| self.huge_pages.get(&size));
                pages.map_or(0, |bytes| i64::try_from(*bytes).unwrap_or(i64::MAX))
            }
        }
    }
}

/// The first resource of which too little is left: the number of pods, then
/// cpu, memory, ephemeral storage, huge pages. What a pod does not request it
/// cannot lack. Extended resources (`vendor/name`) that the node does not have
/// are ignored, as the kubelet ignores them.
pub(super) fn check(
    pod: &PodFacts,
    others: &[&PodFacts],
    allocatable: &Allocatable,
) -> Result<(), Rejection> {
    let count = i64::try_from(others.len()).unwrap_or(i64::MAX);
    fits(PODS, 1, count, allocatable)?;
    for name in [CPU, MEMORY, EPHEMERAL_STORAGE] {
        requested(name, pod, others, allocatable, |requests| {
            amount(requests, name)
        })?;
    }
    for (name, _) in pod.requests.iter() {
        if let Some(size) = page_size(name) {
            // The same pages have several names: hugepages-1Gi, hugepages-1024Mi.
            requested(name, pod, others, allocatable, |requests| {
                let pages = by_page_size(requests.iter());
                let bytes = pages.get(&size).copied().unwrap_or_default();
                i64::try_from(bytes).unwrap_or(i64::MAX)
            })?;
        }
    }
    Ok(())
}

/// Checks one resource, of which `amount` tells how much somebody requests.
fn requested(
    name: &str,
    pod: &PodFacts,
    others: &[&PodFacts],
    allocatable: &Allocatable,
    amount: impl Fn(&ResourceAmounts) -> i64,
) -> Result<(), Rejection> {
    let request = amount(&pod.requests);
    if request <= 0 {
        return Ok(());
    }
    let used = others.iter().fold(0_i64, |sum, other| {
        sum.saturating_add(amount(&other.requests))
    });
    fits(name, request, used, allocatable)
}

fn fits(name: &str, requested: i64, used: i64, allocatable: &Allocatable) -> Result<(), Rejection> {
    let capacity = allocatable.of(name);
    if requested <= capacity.saturating_sub(used) {
        return Ok(());
    }
    Err(Rejection {
        reason: format!("OutOf{name}"),
        message: format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, \
             capacity: {capacity}"
        ),
    })
}

fn amount(requests: &ResourceAmounts, name: &str) -> i64 {
    match name {
        CPU => requests.cpu_millis(),
        _ => requests.get(name).map_or(0, Quantity::value),
    }
}
