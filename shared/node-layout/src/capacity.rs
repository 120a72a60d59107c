//! What the machine has, and how much of it is for pods.

use std::collections::BTreeMap;

use pod::Quantity;
use pod::quantity::Format;
use pod::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};

/// What a machine has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeCapacity {
    /// Thousandths of a core.
    pub cpu_millis: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes to which memory can be swapped out.
    pub swap_bytes: u64,
    /// Bytes of a page of memory.
    pub page_bytes: u64,
    /// Bytes of the file system that holds pods' directories.
    pub ephemeral_storage_bytes: u64,
    /// Bytes of huge pages that the kernel has set aside, by page size in bytes; of a size
    /// that it knows and has none of, 0.
    pub huge_pages: BTreeMap<u64, u64>,
    /// Whether cgroups are of version 2.
    pub unified_cgroups: bool,
    /// The kernel's release, as uname(2) has it.
    pub kernel_release: String,
    /// Whether the kernel enforces AppArmor profiles.
    pub app_armor: bool,
    /// Whether the kernel enforces SELinux labels.
    pub selinux: bool,
}

/// Which machine it is, as the files of its system say; what they do not say is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineIdentity {
    /// machine-id(5).
    pub machine_id: String,
    /// Of its firmware; without one the machine id.
    pub system_uuid: String,
    /// Another one after each boot.
    pub boot_id: String,
    /// `PRETTY_NAME` of os-release(5).
    pub os_image: String,
}

/// How full a file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// Its size in bytes.
    pub capacity_bytes: u64,
    /// What is free of it, for users other than root.
    pub available_bytes: u64,
}

impl NodeCapacity {
    /// Bytes of huge pages of all sizes, which nobody can use as other memory.
    #[must_use]
    pub fn huge_page_bytes(&self) -> u64 {
        let pages = self.huge_pages.values();
        pages.fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// What is left for pods of each resource once `kept` (what hard eviction thresholds
    /// keep back, in whole units) and `reserved` (quantities by name) are taken off; never
    /// less than nothing. A reservation that is no quantity was
    /// refused when the configuration was read and counts as none here.
    pub fn allocatable(
        &self,
        reserved: &BTreeMap<String, String>,
        kept: &BTreeMap<&str, i64>,
    ) -> BTreeMap<String, Quantity> {
        let reserved = |name: &str| reserved.get(name)?.parse::<Quantity>().ok();
        let whole = |name: &str, amount: u64| {
            let amount = i64::try_from(amount).unwrap_or(i64::MAX);
            let kept = kept.get(name).copied().unwrap_or(0);
            let off = kept.saturating_add(reserved(name).map_or(0, Quantity::value));
            let left = amount - off.clamp(0, amount);
            (
                name.to_owned(),
                Quantity::from_whole(left, Format::BinarySi),
            )
        };
        let millis = i64::try_from(self.cpu_millis).unwrap_or(i64::MAX);
        let left = millis
            - reserved(CPU)
                .map_or(0, Quantity::milli_value)
                .clamp(0, millis);
        [
            (CPU.to_owned(), Quantity::from_millis(left)),
            whole(MEMORY, self.memory_bytes),
            whole(EPHEMERAL_STORAGE, self.ephemeral_storage_bytes),
        ]
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_not_for_pods() {
        let capacity = NodeCapacity {
            cpu_millis: 2000,
            memory_bytes: 1 << 30,
            ephemeral_storage_bytes: 1 << 20,
            ..NodeCapacity::default()
        };
        let reserved = [
            ("cpu", "250m"),
            ("memory", "512Mi"),
            ("ephemeral-storage", "1Gi"),
        ]
        .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
        .into();
        let kept = [("memory", 12 << 20), ("ephemeral-storage", 1)].into();
        let left = capacity.allocatable(&reserved, &kept);
        assert_eq!(left["cpu"].milli_value(), 1750);
        assert_eq!(left["memory"].value(), 500 << 20);
        assert_eq!(left["ephemeral-storage"].value(), 0);
        let pages = [(2 << 20, 6 << 20), (1 << 30, 1 << 30)].into();
        let huge = NodeCapacity {
            huge_pages: pages,
            ..NodeCapacity::default()
        };
        assert_eq!(huge.huge_page_bytes(), (6 << 20) + (1 << 30));
    }
}
