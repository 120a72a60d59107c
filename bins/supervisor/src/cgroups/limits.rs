//! What is written to which file of a cgroup, and what its counters say. Pure.

use topology::ProcessRow;

use super::hierarchy::{Controller, Version};

/// CPU shares of version 1 that a weight of 100 is.
const SHARES_OF_DEFAULT_WEIGHT: u64 = 1024;

/// The default of both weights.
const DEFAULT_WEIGHT: u64 = 100;

/// Least and most CPU shares of version 1.
const SHARES: (u64, u64) = (2, 262_144);

/// Least and most weight of disks with version 1.
const DISK_WEIGHT_OF_VERSION_1: (u64, u64) = (10, 1_000);

/// Least and most weight with version 2.
const WEIGHT: (u64, u64) = (1, 10_000);

/// A file of a cgroup: its possible names, of which a kernel has one or, with a weight for
/// each of two schedulers, both; and its content.
pub(super) type Setting = (&'static [&'static str], String);

/// Limits of one cgroup; what is absent is not limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) memory_bytes: Option<u64>,
    pub(super) tasks: Option<u64>,
    pub(super) cpu_weight: u64,
    pub(super) io_weight: u64,
}

impl Limits {
    /// Those of a process.
    pub(super) fn of(row: &ProcessRow) -> Limits {
        Limits {
            memory_bytes: Some(row.memory_max_bytes),
            tasks: Some(row.tasks_max.into()),
            cpu_weight: row.cpu_weight.into(),
            io_weight: row.io_weight.into(),
        }
    }

    /// Of all of them together: as much weight as each would have by itself.
    pub(super) fn of_all(rows: &[ProcessRow]) -> Limits {
        Limits {
            memory_bytes: None,
            tasks: None,
            cpu_weight: rows.iter().map(|row| u64::from(row.cpu_weight)).sum(),
            io_weight: rows.iter().map(|row| u64::from(row.io_weight)).sum(),
        }
    }

    /// The file for one controller, unless nothing is limited.
    pub(super) fn setting(&self, controller: Controller, version: Version) -> Option<Setting> {
        let scaled = |weight: u64, default: u64, (least, most): (u64, u64)| {
            (weight * default / DEFAULT_WEIGHT).clamp(least, most)
        };
        let weight = |weight| scaled(weight, DEFAULT_WEIGHT, WEIGHT);
        Some(match (controller, version) {
            (Controller::Memory, Version::One) => {
                (&["memory.limit_in_bytes"], self.memory_bytes?.to_string())
            }
            (Controller::Memory, Version::Two) => (&["memory.max"], self.memory_bytes?.to_string()),
            (Controller::Tasks, _) => (&[TASKS_FILE], self.tasks?.to_string()),
            (Controller::Processor, Version::One) => {
                let shares = scaled(self.cpu_weight, SHARES_OF_DEFAULT_WEIGHT, SHARES);
                (&["cpu.shares"], shares.to_string())
            }
            (Controller::Processor, Version::Two) => {
                (&["cpu.weight"], weight(self.cpu_weight).to_string())
            }
            (Controller::Disk, Version::One) => {
                let weight = scaled(self.io_weight, DEFAULT_WEIGHT, DISK_WEIGHT_OF_VERSION_1);
                (&["blkio.weight", "blkio.bfq.weight"], weight.to_string())
            }
            (Controller::Disk, Version::Two) => (
                &["io.weight", "io.bfq.weight"],
                format!("default {}", weight(self.io_weight)),
            ),
        })
    }
}

/// The file with the most tasks, in both versions.
pub(super) const TASKS_FILE: &str = "pids.max";

/// How often the kernel found a cgroup out of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryEvents {
    /// Processes of it that were killed for want of memory, wherever that was short.
    pub(super) kills: u64,
    /// How often its own limit was reached.
    pub(super) at_limit: u64,
}

/// Why a process was killed for want of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutOfMemory {
    /// It reached its own limit.
    OwnLimit,
    /// All processes together reached theirs, or the node had none left.
    Others,
}

impl MemoryEvents {
    /// Out of `memory.events.local` (version 2), or of `memory.oom_control` and
    /// `memory.failcnt`.
    pub(super) fn parse(version: Version, events: &str, fails: &str) -> MemoryEvents {
        let field = |name: &str| {
            let mut values = events.lines().filter_map(|line| line.split_once(' '));
            let value = values.find(|(key, _)| *key == name).map(|(_, value)| value);
            value.and_then(|value| value.trim().parse().ok())
        };
        MemoryEvents {
            kills: field("oom_kill").unwrap_or(0),
            at_limit: match version {
                Version::One => fails.trim().parse().ok(),
                Version::Two => field("oom"),
            }
            .unwrap_or(0),
        }
    }

    /// What happened since then.
    pub(super) fn since(self, then: MemoryEvents) -> Option<OutOfMemory> {
        (self.kills > then.kills).then_some(if self.at_limit > then.at_limit {
            OutOfMemory::OwnLimit
        } else {
            OutOfMemory::Others
        })
    }
}

#[cfg(test)]
mod tests {
    use topology::{PROCESSES, Process};

    use super::*;

    #[test]
    fn a_row_becomes_the_files_of_either_version() {
        let limits = Limits {
            memory_bytes: Some(32 << 20),
            tasks: Some(64),
            cpu_weight: 200,
            io_weight: 50,
        };
        for (version, expected) in [
            (Version::One, ["33554432", "64", "2048", "50"]),
            (Version::Two, ["33554432", "64", "200", "default 50"]),
        ] {
            let contents = Controller::ALL.map(|it| limits.setting(it, version).unwrap().1);
            assert_eq!(contents, expected);
        }
    }

    #[test]
    fn all_together_weigh_what_each_weighs_and_have_no_other_limit() {
        let all = Limits::of_all(PROCESSES);
        assert_eq!(all.setting(Controller::Memory, Version::Two), None);
        assert_eq!(all.setting(Controller::Tasks, Version::One), None);
        let one = Limits::of(topology::row(Process::Pleg));
        assert!(all.cpu_weight > one.cpu_weight && all.io_weight > one.io_weight);
    }

    #[test]
    fn every_weight_is_one_that_the_kernel_takes() {
        for weight in [0, 1, 100, 10_000, u64::from(u32::MAX)] {
            let limits = Limits {
                memory_bytes: None,
                tasks: None,
                cpu_weight: weight,
                io_weight: weight,
            };
            let number = |controller, version| -> u64 {
                let (_, content) = limits.setting(controller, version).unwrap();
                content.trim_start_matches("default ").parse().unwrap()
            };
            assert!((2..=262_144).contains(&number(Controller::Processor, Version::One)));
            assert!((1..=10_000).contains(&number(Controller::Processor, Version::Two)));
            assert!((10..=1_000).contains(&number(Controller::Disk, Version::One)));
            assert!((1..=10_000).contains(&number(Controller::Disk, Version::Two)));
        }
    }

    #[test]
    fn a_kill_at_the_own_limit_is_told_from_one_of_the_node() {
        let events = |version, kills: u64, at_limit: u64| match version {
            Version::One => {
                let control = format!("oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n");
                MemoryEvents::parse(version, &control, &format!("{at_limit}\n"))
            }
            Version::Two => {
                let text = format!("low 0\nhigh 0\nmax 9\noom {at_limit}\noom_kill {kills}\n");
                MemoryEvents::parse(version, &text, "")
            }
        };
        for version in [Version::One, Version::Two] {
            let before = events(version, 1, 5);
            for (kills, at_limit, expected) in [
                (1, 5, None),
                // The limit was reached, and something could be given back.
                (1, 6, None),
                (2, 5, Some(OutOfMemory::Others)),
                (2, 6, Some(OutOfMemory::OwnLimit)),
            ] {
                let now = events(version, kills, at_limit);
                assert_eq!(now.since(before), expected, "{version:?}");
            }
        }
        let nothing = MemoryEvents::parse(Version::Two, "", "");
        assert_eq!(nothing, MemoryEvents::default());
    }
}
