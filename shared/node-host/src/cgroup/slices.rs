//! Pods' cgroups as slices of systemd: which properties a slice has for its limits, and the
//! seam to systemd, which makes it. Blocking.
//!
//! The limits are written to the cgroup's files besides, as a kubelet does: systemd knows
//! no huge pages, and rounds quotas. It is told them because it writes what it knows again,
//! for one at each `systemctl daemon-reload`.

use std::path::Path;

use pod::resources::cpu_weight;
use system_bus::{Property, ServiceManager, Stop, Value};
use tokio::runtime::Handle;

use super::limits::{KeptMemory, Limits};
use super::pod_cgroups::Removal;
use crate::error::NodeError;

/// systemd's quota is a percentage of a processor: microseconds of each second, in steps of
/// this.
const QUOTA_STEP_MICROS: u64 = 10_000;

/// No limit, in the numbers of systemd.
const INFINITY: u64 = u64::MAX;

/// The seam to systemd. All calls block and are idempotent.
pub(super) trait Slices: std::fmt::Debug + Send + Sync {
    /// Has a slice there with these properties.
    fn ensure(&self, name: &str, properties: &[Property]) -> Result<(), NodeError>;

    /// Gives a slice that is there other properties.
    fn change(&self, name: &str, properties: &[Property]) -> Result<(), NodeError>;

    /// Stops a slice, which removes its cgroup.
    fn stop(&self, name: &str) -> Result<Removal, NodeError>;
}

/// The slices of this machine's systemd.
#[derive(Debug)]
pub(super) struct SystemdSlices(ServiceManager);

impl SystemdSlices {
    pub(super) fn at(socket: &Path) -> SystemdSlices {
        SystemdSlices(ServiceManager::at(socket))
    }
}

/// On a thread for blocking work of the process's runtime, which drives the connection.
fn wait_for<Value>(
    asked: impl Future<Output = Result<Value, system_bus::Error>>,
) -> Result<Value, NodeError> {
    let answer = Handle::current().block_on(asked);
    answer.map_err(|error| NodeError::Slice(Box::new(error)))
}

impl Slices for SystemdSlices {
    fn ensure(&self, name: &str, properties: &[Property]) -> Result<(), NodeError> {
        wait_for(self.0.ensure_slice(name, properties))
    }

    fn change(&self, name: &str, properties: &[Property]) -> Result<(), NodeError> {
        wait_for(self.0.change(name, properties))
    }

    fn stop(&self, name: &str) -> Result<Removal, NodeError> {
        Ok(match wait_for(self.0.stop(name))? {
            Stop::Done => Removal::Done,
            Stop::UnderWay => Removal::Busy,
        })
    }
}

/// The slice of the cgroup with this path: the last part.
pub(super) fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What a slice has for its limits (systemd.resource-control(5)). Each is named, so that a
/// limit that was lifted is lifted. systemd counts all that it can, as it does for a
/// kubelet: then the cgroup is there for each of its controllers.
pub(super) fn properties(limits: &Limits, is_unified: bool) -> Vec<Property> {
    let limit = |limit: Option<u64>| Value::Number(limit.unwrap_or(INFINITY));
    let memory = limits.memory_bytes.and_then(|it| u64::try_from(it).ok());
    let quota = limits.cpu_quota_micros.map(|quota| {
        let of_second = u128::from(quota) * 1_000_000 / u128::from(limits.cpu_period_micros);
        let of_second = u64::try_from(of_second).unwrap_or(INFINITY - QUOTA_STEP_MICROS);
        of_second.div_ceil(QUOTA_STEP_MICROS) * QUOTA_STEP_MICROS
    });
    let (cpu, memory, io) = match is_unified {
        true => (
            ("CPUWeight", Value::Number(cpu_weight(limits.cpu_shares))),
            ("MemoryMax", limit(memory)),
            "IOAccounting",
        ),
        false => (
            ("CPUShares", Value::Number(limits.cpu_shares)),
            ("MemoryLimit", limit(memory)),
            "BlockIOAccounting",
        ),
    };
    vec![
        ("CPUAccounting", Value::Flag(true)),
        ("MemoryAccounting", Value::Flag(true)),
        ("TasksAccounting", Value::Flag(true)),
        (io, Value::Flag(true)),
        cpu,
        (
            "CPUQuotaPeriodUSec",
            Value::Number(limits.cpu_period_micros),
        ),
        ("CPUQuotaPerSecUSec", limit(quota)),
        memory,
        ("TasksMax", limit(limits.pids)),
    ]
}

/// What a slice has for the memory that the kernel leaves to it, on version 2.
pub(super) fn kept_memory(kept: KeptMemory) -> [Property; 2] {
    [
        ("MemoryMin", Value::Number(kept.min_bytes)),
        ("MemoryLow", Value::Number(kept.low_bytes)),
    ]
}

/// What a slice has whose memory is never in swap, on version 2.
pub(super) const NO_SWAP: [Property; 1] = [("MemorySwapMax", Value::Number(0))];

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(quota: Option<u64>, period: u64) -> Limits {
        Limits {
            cpu_shares: 512,
            cpu_quota_micros: quota,
            cpu_period_micros: period,
            memory_bytes: Some(1 << 20),
            pids: Some(64),
        }
    }

    fn numbers(limits: &Limits, is_unified: bool) -> Vec<(&'static str, u64)> {
        let all = properties(limits, is_unified).into_iter();
        all.filter_map(|(name, value)| match value {
            Value::Number(number) => Some((name, number)),
            Value::Flag(_) => None,
        })
        .collect()
    }

    #[test]
    fn limits_have_the_names_of_the_cgroups_version() {
        assert_eq!(
            numbers(&limits(Some(50_000), 100_000), false),
            [
                ("CPUShares", 512),
                ("CPUQuotaPeriodUSec", 100_000),
                ("CPUQuotaPerSecUSec", 500_000),
                ("MemoryLimit", 1 << 20),
                ("TasksMax", 64),
            ]
        );
        assert_eq!(
            numbers(&limits(Some(50_000), 100_000), true),
            [
                ("CPUWeight", cpu_weight(512)),
                ("CPUQuotaPeriodUSec", 100_000),
                ("CPUQuotaPerSecUSec", 500_000),
                ("MemoryMax", 1 << 20),
                ("TasksMax", 64),
            ]
        );
    }

    #[test]
    fn what_is_not_limited_is_infinity() {
        let none = Limits {
            memory_bytes: None,
            pids: None,
            ..limits(None, 100_000)
        };
        let unlimited = numbers(&none, true);
        assert_eq!(
            unlimited[2..],
            [
                ("CPUQuotaPerSecUSec", u64::MAX),
                ("MemoryMax", u64::MAX),
                ("TasksMax", u64::MAX)
            ]
        );
    }

    #[test]
    fn a_quota_is_rounded_up_to_a_percentage_of_a_processor() {
        for (quota, period, expected) in [
            (1_000, 100_000, 10_000),
            (1_001, 100_000, 20_000),
            (150_000, 100_000, 1_500_000),
            (33_333, 100_000, 340_000),
            (5_000, 10_000, 500_000),
        ] {
            let found = numbers(&limits(Some(quota), period), false)[2];
            assert_eq!(
                found,
                ("CPUQuotaPerSecUSec", expected),
                "{quota} of {period}"
            );
        }
    }

    #[test]
    fn a_slice_is_the_last_part_of_its_cgroups_path() {
        let path = "kubepods.slice/kubepods-burstable.slice";
        assert_eq!(name_of(path), "kubepods-burstable.slice");
        assert_eq!(name_of("kubepods.slice"), "kubepods.slice");
    }
}
