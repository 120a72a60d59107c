//! Our own processes: which there are, as the supervisor tells, and what each has used,
//! as the kernel tells in `/proc/PID/stat`.

use bulkhead_api::v1;
use clock::UnixNanos;
use nix::unistd::{SysconfVar, sysconf};

use super::reading::ProcessReading;

/// Ticks a second where the system does not say.
const TICKS: u64 = 100;

/// What those that run have used. One that has just ended is left out.
pub(super) fn read(status: &v1::SupervisorStatus, now: UnixNanos) -> Vec<ProcessReading> {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let ticks = ticks.and_then(|ticks| u64::try_from(ticks).ok());
    let ticks = ticks.filter(|ticks| *ticks > 0).unwrap_or(TICKS);
    let running = status.processes.iter().filter(|process| process.pid != 0);
    let read = running.filter_map(|process| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).ok()?;
        let (used, began) = of_stat(&stat)?;
        let memory_bytes = match process.pss_bytes {
            0 => process.rss_bytes,
            bytes => bytes,
        };
        Some(ProcessReading {
            name: process.name.clone(),
            pid: process.pid,
            began,
            cpu_nanos: used.saturating_mul(1_000_000_000 / ticks),
            at_unix_nanos: now.0,
            memory_bytes,
        })
    });
    read.collect()
}

/// Ticks that a process has used, and when it began. Its name may have blanks and
/// brackets in it, so fields count from the last bracket (`man 5 proc_pid_stat`).
fn of_stat(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let (user, system, began) = (field(14)?, field(15)?, field(22)?);
    Some((user.saturating_add(system), began))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_behind_a_name_of_any_letters() {
        let fields = "S 1 7 7 0 -1 4194560 1 0 0 0 31 11 0 0 20 0 5 0 987654 1 2 3";
        for name in ["pleg", "a b", ") 1 2 3", "(("] {
            assert_eq!(
                of_stat(&format!("7 ({name}) {fields}\n")),
                Some((42, 987_654))
            );
        }
        for text in [
            "",
            "7 (pleg)",
            "7 (pleg) S 1 2",
            "7 (pleg) S x x x x x x x x x x x x",
        ] {
            assert_eq!(of_stat(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_that_runs_is_read_and_one_that_is_gone_is_not() {
        let process = |pid: u32| v1::ProcessStatus {
            name: "pleg".to_owned(),
            pid,
            rss_bytes: 5,
            ..v1::ProcessStatus::default()
        };
        let status = v1::SupervisorStatus {
            processes: vec![process(0), process(std::process::id()), process(u32::MAX)],
            ..v1::SupervisorStatus::default()
        };
        let read = read(&status, UnixNanos(9));
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].memory_bytes, read[0].at_unix_nanos), (5, 9));
        assert!(read[0].began > 0);
    }
}
