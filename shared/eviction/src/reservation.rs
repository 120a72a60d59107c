//! What hard thresholds keep back: pods cannot count on what must always be left.

use std::collections::BTreeMap;

use node_config::NodeConfig;
use node_layout::NodeCapacity;
use pod::Quantity;
use pod::resources::{EPHEMERAL_STORAGE, MEMORY};

use crate::signal::Signal;
use crate::threshold::{Threshold, thresholds};

/// Bytes by resource name that no pod can count on, on a node with so much memory and
/// such a disk: what hard thresholds keep back, and of memory what is set aside for huge
/// pages, which are a resource of their own.
#[must_use]
pub fn hard_reservations(
    thresholds: &[Threshold],
    memory_bytes: u64,
    storage_bytes: u64,
    huge_page_bytes: u64,
) -> BTreeMap<&'static str, i64> {
    let hard = thresholds.iter().filter(|threshold| threshold.is_hard());
    let mut kept: BTreeMap<_, _> = hard
        .filter_map(|threshold| {
            let (name, capacity) = match threshold.signal {
                Signal::MemoryAvailable => (MEMORY, memory_bytes),
                Signal::NodefsAvailable => (EPHEMERAL_STORAGE, storage_bytes),
                _ => return None,
            };
            let capacity = i64::try_from(capacity).unwrap_or(i64::MAX);
            Some((name, threshold.value.of(capacity)))
        })
        .collect();
    if huge_page_bytes > 0 {
        let memory: &mut i64 = kept.entry(MEMORY).or_default();
        *memory = memory.saturating_add(i64::try_from(huge_page_bytes).unwrap_or(i64::MAX));
    }
    kept
}

/// What is left for pods of each resource on a node that is configured like this.
#[must_use]
pub fn allocatable(config: &NodeConfig, capacity: &NodeCapacity) -> BTreeMap<String, Quantity> {
    // The supervisor refuses thresholds that cannot be.
    let thresholds = thresholds(&config.eviction).unwrap_or_default();
    let kept = hard_reservations(
        &thresholds,
        capacity.memory_bytes,
        capacity.ephemeral_storage_bytes,
        capacity.huge_page_bytes(),
    );
    capacity.allocatable(&config.reserved, &kept)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::hard;
    use crate::threshold::Amount;

    #[test]
    fn hard_thresholds_of_memory_and_the_pods_disk_keep_something_back() {
        let disk = Threshold {
            value: Amount::Percent(10.0),
            ..hard(Signal::NodefsAvailable, 0)
        };
        let soft = Threshold {
            grace: Duration::from_secs(1),
            ..hard(Signal::MemoryAvailable, 500)
        };
        let others = hard(Signal::ImagefsAvailable, 7);
        let all = [hard(Signal::MemoryAvailable, 100), disk, soft, others];
        let kept = hard_reservations(&all, 1000, 2000, 0);
        assert_eq!(kept, [(MEMORY, 100), (EPHEMERAL_STORAGE, 200)].into());
    }

    #[test]
    fn memory_that_is_set_aside_for_huge_pages_is_not_for_others() {
        let kept = hard_reservations(&[hard(Signal::MemoryAvailable, 100)], 1000, 0, 300);
        assert_eq!(kept, [(MEMORY, 400)].into());
        assert_eq!(hard_reservations(&[], 1000, 0, 300), [(MEMORY, 300)].into());
    }
}
