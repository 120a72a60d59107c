//! What people are told of an eviction, in the kubelet's words.

use pod::Quantity;
use pod::quantity::Format;

use crate::candidate::Candidate;
use crate::observation::Observations;
use crate::signal::Resource;
use crate::threshold::Threshold;
use crate::usage::PodUsage;

/// Why a pod goes: what the node was low on (the first threshold is the one that decides),
/// and which of its containers use more than they requested.
#[must_use]
pub fn low_on_resource(
    thresholds: &[Threshold],
    observed: &Observations,
    pod: &Candidate,
    usage: Option<&PodUsage>,
) -> String {
    let Some(deciding) = thresholds.first() else {
        return String::new();
    };
    let resource = deciding.signal.resource();
    let mut message = format!("The node was low on resource: {resource}. ");
    if let Some(found) = observed.get(deciding.signal) {
        let wanted = amount(deciding.value.of(found.capacity), resource);
        let available = amount(found.available, resource);
        message += &format!("Threshold quantity: {wanted}, available: {available}. ");
    }
    let Some(usage) = usage else {
        return message;
    };
    for container in &pod.containers {
        let Some(used) = usage.containers.get(&container.name) else {
            continue;
        };
        let (used, requested) = match resource {
            Resource::Memory => (used.memory, container.memory_request),
            Resource::EphemeralStorage => {
                let on_disk = used.layer.bytes.saturating_add(used.logs.bytes);
                (on_disk, container.storage_request)
            }
            Resource::Inodes | Resource::Pids => continue,
        };
        let used = amount(i64::try_from(used).unwrap_or(i64::MAX), resource);
        if used > requested {
            let name = &container.name;
            message += &format!(
                "Container {name} was using {used}, request is {requested}, \
                 has larger consumption of {resource}. "
            );
        }
    }
    message
}

fn amount(units: i64, resource: Resource) -> Quantity {
    let format = match resource {
        Resource::Memory | Resource::EphemeralStorage => Format::BinarySi,
        Resource::Inodes | Resource::Pids => Format::DecimalSi,
    };
    Quantity::from_whole(units, format)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Signal;
    use crate::testing::{candidate, hard, quantity, usage};
    use crate::usage::ContainerUsage;
    use node_layout::TreeSize;

    #[test]
    fn the_words_are_those_of_a_kubelet() {
        let mut observed = Observations::default();
        observed.note(Signal::MemoryAvailable, 50 << 10, 1 << 30);
        observed.note(Signal::NodefsAvailable, 3 << 20, 1 << 30);
        observed.note(Signal::PidAvailable, 12, 32_768);
        let mut pod = candidate("u");
        pod.containers[0].memory_request = quantity("64Mi");
        let of_c = ContainerUsage {
            memory: 100 << 20,
            layer: TreeSize {
                bytes: 1 << 20,
                inodes: 5,
            },
            logs: TreeSize {
                bytes: 512 << 10,
                inodes: 1,
            },
        };
        let used = usage(of_c);
        for (threshold, usage, expected) in [
            (
                hard(Signal::MemoryAvailable, 100 << 20),
                Some(&used),
                "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Ki. \
                 Container c was using 100Mi, request is 64Mi, has larger consumption of memory. ",
            ),
            (
                hard(Signal::MemoryAvailable, 100 << 20),
                None,
                "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Ki. ",
            ),
            (
                hard(Signal::NodefsAvailable, 10 << 20),
                Some(&used),
                "The node was low on resource: ephemeral-storage. \
                 Threshold quantity: 10Mi, available: 3Mi. Container c was using 1536Ki, \
                 request is 0, has larger consumption of ephemeral-storage. ",
            ),
            (
                hard(Signal::PidAvailable, 1000),
                Some(&used),
                "The node was low on resource: pids. Threshold quantity: 1k, available: 12. ",
            ),
            (
                hard(Signal::NodefsInodesFree, 1000),
                Some(&used),
                "The node was low on resource: inodes. ",
            ),
        ] {
            let message = low_on_resource(&[threshold], &observed, &pod, usage);
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn a_container_within_its_request_is_not_blamed() {
        let mut pod = candidate("u");
        pod.containers[0].memory_request = quantity("1Gi");
        let of_c = ContainerUsage {
            memory: 1 << 30,
            ..ContainerUsage::default()
        };
        let threshold = hard(Signal::MemoryAvailable, 1);
        let none = Observations::default();
        let message = low_on_resource(&[threshold], &none, &pod, Some(&usage(of_c)));
        assert_eq!(message, "The node was low on resource: memory. ");
    }
}
