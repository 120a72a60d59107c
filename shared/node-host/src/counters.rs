//! What the machine has used since it was booted, as `/proc` says (proc(5)). Blocking.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};
use node_layout::MachineCounters;

use crate::error::{IoContext as _, NodeError};
use crate::gauges::bytes_of;
use crate::shared::SystemPaths;

/// Parts of the line `cpu` in which a processor works: user, nice, system, irq, softirq and
/// steal. Of the others some are idle, and some are in these already.
const WORKING: [usize; 6] = [0, 1, 2, 5, 6, 7];

const NANOS: u64 = 1_000_000_000;

/// Of all processors and processes.
pub(super) fn of_machine(system: &SystemPaths) -> Result<MachineCounters, NodeError> {
    let read = |name: &str| {
        let path = system.proc_dir.join(name);
        fs::read_to_string(&path).context("read", &path)
    };
    let (stat, meminfo, vmstat) = (read("stat")?, read("meminfo")?, read("vmstat")?);
    // What it is everywhere.
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    let ticks = u64::try_from(ticks).unwrap_or(100);
    let found = counters(&stat, &meminfo, &vmstat, ticks);
    found.ok_or_else(|| NodeError::refused(&system.proc_dir, "its files do not say what is used"))
}

fn counters(stat: &str, meminfo: &str, vmstat: &str, ticks: u64) -> Option<MachineCounters> {
    let line = |text: &str, name: &str| -> Option<String> {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find_map(|(found, rest)| (found == name).then(|| rest.trim().to_owned()))
    };
    let number = |text: &str, name: &str| line(text, name)?.parse::<u64>().ok();
    let cpu = line(stat, "cpu")?;
    let parts: Vec<u64> = cpu
        .split_whitespace()
        .map_while(|part| part.parse().ok())
        .collect();
    let working = WORKING.map(|part| parts.get(part).copied().unwrap_or(0));
    let working = working.into_iter().fold(0_u64, u64::saturating_add);
    let nanos = u128::from(working) * u128::from(NANOS) / u128::from(ticks.max(1));
    let memory = |name| bytes_of(meminfo, name);
    Some(MachineCounters {
        cpu_nanos: u64::try_from(nanos).ok()?,
        booted_at: number(stat, "btime")?,
        memory_used_bytes: memory("MemTotal")?.saturating_sub(memory("MemFree")?),
        memory_anonymous_bytes: memory("AnonPages")?,
        page_faults: number(vmstat, "pgfault")?,
        major_page_faults: number(vmstat, "pgmajfault")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  10 20 30 4000 500 6 7 8 9 9\ncpu0 1 2 3 4 5 6 7 8 9 9\n\
                        intr 1 2 3\nbtime 1700000000\n";
    const MEMINFO: &str = "MemTotal:  1000 kB\nMemFree:  300 kB\nAnonPages: 200 kB\n";
    const VMSTAT: &str = "nr_free_pages 5\npgfault 70\npgmajfault 3\n";

    #[test]
    fn a_processor_that_waits_or_is_a_guests_is_not_counted_twice() {
        let found = counters(STAT, MEMINFO, VMSTAT, 100).unwrap();
        let expected = MachineCounters {
            cpu_nanos: 81 * NANOS / 100,
            booted_at: 1_700_000_000,
            memory_used_bytes: 700 << 10,
            memory_anonymous_bytes: 200 << 10,
            page_faults: 70,
            major_page_faults: 3,
        };
        assert_eq!(found, expected);
        assert_eq!(counters("", MEMINFO, VMSTAT, 100), None);
        assert_eq!(counters(STAT, "", VMSTAT, 100), None);
    }

    #[test]
    fn this_machine_has_worked() {
        let found = of_machine(&SystemPaths::default()).unwrap();
        assert!(found.cpu_nanos > NANOS, "{found:?}");
        assert!(found.booted_at > 1_600_000_000, "{found:?}");
        assert!(found.page_faults > 0, "{found:?}");
    }
}
