//! What is written to which file of a cgroup: the same limits in the words of both
//! versions.

use node_config::NodeConfig;
use pod::QosClass;
use pod::huge_pages::kernel_name;
use pod::resources::{
    CPU_PERIOD_MICROS, MAX_CPU_SHARES, MIN_CPU_QUOTA_MICROS, MIN_CPU_SHARES, PodCgroupResources,
    cpu_weight,
};

use super::hierarchy::Controller;
use super::pod_cgroups::AllPodsLimits;

/// Largest CPU weight of version 2.
const MAX_CPU_WEIGHT: u64 = 10_000;

/// The limits of one cgroup. What is absent is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) cpu_shares: u64,
    /// Microseconds in each period.
    pub(super) cpu_quota_micros: Option<u64>,
    pub(super) cpu_period_micros: u64,
    pub(super) memory_bytes: Option<i64>,
    pub(super) pids: Option<u64>,
}

/// CPU shares by the weight that they became: the way back of `cpu_weight`, rounded up.
pub(super) fn shares_of_weight(weight: u64) -> u64 {
    let weight = weight.clamp(1, MAX_CPU_WEIGHT) - 1;
    let range = MAX_CPU_SHARES - MIN_CPU_SHARES;
    MIN_CPU_SHARES + (weight * range).div_ceil(MAX_CPU_WEIGHT - 1)
}

/// What of the node's configuration bears on the limits of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitSettings {
    /// `cpuCFSQuota`.
    pub(super) cpu_quota: bool,
    /// `cpuCFSQuotaPeriod`, in microseconds.
    pub(super) cpu_period_micros: u64,
    /// `podPidsLimit`; absent is unlimited.
    pub(super) pids: Option<u64>,
    /// `memoryReservationPolicy`: what pods request of memory is left to them.
    pub(super) reserves_memory: bool,
}

impl LimitSettings {
    /// As the node is configured.
    pub(super) fn of(config: &NodeConfig) -> LimitSettings {
        let period = config.cpu_cfs_quota_period.as_micros();
        let pids = u64::try_from(config.pod_pids_limit).ok();
        LimitSettings {
            cpu_quota: config.cpu_cfs_quota,
            cpu_period_micros: u64::try_from(period).unwrap_or(u64::MAX),
            pids: pids.filter(|limit| *limit > 0),
            reserves_memory: config.memory_qos.is_some_and(|it| it.reserves),
        }
    }
}

impl Limits {
    /// Only a share of the CPU, as classes of pods have it.
    pub(super) fn shares(cpu_shares: u64) -> Limits {
        Limits {
            cpu_shares,
            cpu_quota_micros: None,
            cpu_period_micros: CPU_PERIOD_MICROS,
            memory_bytes: None,
            pids: None,
        }
    }

    /// Those of all pods together.
    pub(super) fn of_all_pods(all_pods: &AllPodsLimits) -> Limits {
        Limits {
            memory_bytes: all_pods.memory_bytes,
            pids: all_pods.pids,
            ..Limits::shares(all_pods.cpu_shares)
        }
    }

    /// Those of a pod.
    pub(super) fn of_pod(resources: &PodCgroupResources, settings: LimitSettings) -> Limits {
        let period = settings.cpu_period_micros.max(MIN_CPU_QUOTA_MICROS);
        // The pod's quota is for the usual period.
        let scaled = |quota: u64| {
            let scaled = u128::from(quota) * u128::from(period) / u128::from(CPU_PERIOD_MICROS);
            u64::try_from(scaled)
                .unwrap_or(u64::MAX)
                .max(MIN_CPU_QUOTA_MICROS)
        };
        Limits {
            cpu_shares: resources.cpu_shares,
            cpu_quota_micros: resources
                .cpu_quota_micros
                .filter(|_| settings.cpu_quota)
                .map(scaled),
            cpu_period_micros: period,
            memory_bytes: resources.memory_limit_bytes,
            pids: settings.pids,
        }
    }

    /// Files and contents for version 1, in the order in which they are written.
    pub(super) fn legacy_files(&self) -> Vec<(Controller, &'static str, String)> {
        let or_unlimited = |limit: Option<String>| limit.unwrap_or("-1".to_owned());
        let quota = or_unlimited(self.cpu_quota_micros.map(|quota| quota.to_string()));
        let memory = or_unlimited(self.memory_bytes.map(|bytes| bytes.to_string()));
        vec![
            (Controller::Cpu, "cpu.shares", self.cpu_shares.to_string()),
            (
                Controller::Cpu,
                "cpu.cfs_period_us",
                self.cpu_period_micros.to_string(),
            ),
            (Controller::Cpu, "cpu.cfs_quota_us", quota),
            (Controller::Memory, "memory.limit_in_bytes", memory),
            (Controller::Pids, "pids.max", maximum(self.pids)),
        ]
    }

    /// Files and contents for version 2.
    pub(super) fn unified_files(&self) -> Vec<(Controller, &'static str, String)> {
        let quota = maximum(self.cpu_quota_micros);
        vec![
            (
                Controller::Cpu,
                "cpu.weight",
                cpu_weight(self.cpu_shares).to_string(),
            ),
            (
                Controller::Cpu,
                "cpu.max",
                format!("{quota} {}", self.cpu_period_micros),
            ),
            (Controller::Memory, "memory.max", maximum(self.memory_bytes)),
            (Controller::Pids, "pids.max", maximum(self.pids)),
        ]
    }
}

/// The files that limit huge pages of a size, in bytes: what is in use, and what is
/// reserved to be used.
pub(super) fn huge_page_files(size: u64, is_unified: bool) -> [String; 2] {
    let size = kernel_name(size);
    let limit = match is_unified {
        true => "max",
        false => "limit_in_bytes",
    };
    ["", "rsvd."].map(|kind| format!("hugetlb.{size}.{kind}{limit}"))
}

fn maximum(limit: Option<impl ToString>) -> String {
    limit.map_or("max".to_owned(), |limit| limit.to_string())
}

/// The memory that the kernel leaves to a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeptMemory {
    /// Whatever happens: what Guaranteed pods request.
    pub(super) min_bytes: u64,
    /// As long as there is other: what Burstable pods request.
    pub(super) low_bytes: u64,
}

impl KeptMemory {
    /// What is left to a pod that requests so much.
    pub(super) fn of_pod(qos: QosClass, request_bytes: i64) -> KeptMemory {
        let bytes = u64::try_from(request_bytes).unwrap_or(0);
        let mut kept = KeptMemory::default();
        match qos {
            QosClass::Guaranteed => kept.min_bytes = bytes,
            QosClass::Burstable => kept.low_bytes = bytes,
            QosClass::BestEffort => {}
        }
        kept
    }
}

impl std::ops::AddAssign for KeptMemory {
    fn add_assign(&mut self, other: KeptMemory) {
        self.min_bytes = self.min_bytes.saturating_add(other.min_bytes);
        self.low_bytes = self.low_bytes.saturating_add(other.low_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const SETTINGS: LimitSettings = LimitSettings {
        cpu_quota: true,
        cpu_period_micros: 100_000,
        pids: None,
        reserves_memory: false,
    };

    fn pod(quota: Option<u64>, memory: Option<i64>) -> PodCgroupResources {
        PodCgroupResources {
            cpu_shares: 102,
            cpu_request_millis: 100,
            cpu_quota_micros: quota,
            memory_limit_bytes: memory,
            memory_request_bytes: 0,
            huge_pages: BTreeMap::new(),
        }
    }

    fn contents(files: Vec<(Controller, &'static str, String)>) -> Vec<String> {
        files
            .into_iter()
            .map(|(_, file, content)| format!("{file}={content}"))
            .collect()
    }

    #[test]
    fn both_versions_say_the_same() {
        let limits = Limits::of_pod(
            &pod(Some(50_000), Some(1 << 20)),
            LimitSettings {
                pids: Some(100),
                ..SETTINGS
            },
        );
        assert_eq!(
            contents(limits.legacy_files()),
            [
                "cpu.shares=102",
                "cpu.cfs_period_us=100000",
                "cpu.cfs_quota_us=50000",
                "memory.limit_in_bytes=1048576",
                "pids.max=100"
            ]
        );
        assert_eq!(
            contents(limits.unified_files()),
            [
                "cpu.weight=4",
                "cpu.max=50000 100000",
                "memory.max=1048576",
                "pids.max=100"
            ]
        );
    }

    #[test]
    fn what_is_not_limited_is_written_as_such() {
        let limits = Limits::of_pod(&pod(None, None), SETTINGS);
        let legacy = contents(limits.legacy_files());
        assert!(
            legacy.contains(&"cpu.cfs_quota_us=-1".to_owned()),
            "{legacy:?}"
        );
        assert!(
            legacy.contains(&"memory.limit_in_bytes=-1".to_owned()),
            "{legacy:?}"
        );
        let unified = contents(limits.unified_files());
        assert_eq!(
            unified[1..],
            ["cpu.max=max 100000", "memory.max=max", "pids.max=max"]
        );
    }

    #[test]
    fn shares_survive_the_way_through_a_weight() {
        for weight in [1, 2, 39, 100, 9_999, 10_000] {
            assert_eq!(cpu_weight(shares_of_weight(weight)), weight);
        }
        assert_eq!(shares_of_weight(0), 2);
        assert_eq!(shares_of_weight(u64::MAX), 262_144);
    }

    #[test]
    fn the_quota_follows_the_period_and_the_setting() {
        let quota = |settings| Limits::of_pod(&pod(Some(50_000), None), settings).cpu_quota_micros;
        assert_eq!(
            quota(LimitSettings {
                cpu_period_micros: 10_000,
                ..SETTINGS
            }),
            Some(5_000)
        );
        assert_eq!(
            quota(LimitSettings {
                cpu_period_micros: 1_000,
                ..SETTINGS
            }),
            Some(1_000)
        );
        assert_eq!(
            quota(LimitSettings {
                cpu_quota: false,
                ..SETTINGS
            }),
            None
        );
    }
}
