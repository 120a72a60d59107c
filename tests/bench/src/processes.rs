//! What the kernel says that each process has taken: processor time and memory.

use std::time::Duration;

use anyhow::{Context as _, Result};
use test_support::BulkheadInstance;

use crate::world::{World, poll_every};

/// Unit of the times in /proc/PID/stat: USER_HZ, which Linux fixes at 100.
const TICKS_PER_SECOND: f64 = 100.0;

/// How long the machine has to have had nothing to do.
const QUIET: Duration = Duration::from_millis(500);

/// A machine that computes less than this part of the time of one processor has nothing to
/// do.
const QUIET_MACHINE: f64 = 0.15;

/// One process of Bulkhead at one moment.
pub(crate) struct Usage {
    pub(crate) name: String,
    pub(crate) pid: u32,
    /// Since its start, in user and kernel mode.
    pub(crate) processor_seconds: f64,
    /// Its proportional set size: what it shares counts in parts.
    pub(crate) memory_kib: u32,
}

/// All processes, always in the same order.
pub(crate) fn look(bulkhead: &BulkheadInstance) -> Result<Vec<Usage>> {
    let pids = bulkhead.pids()?;
    pids.into_iter()
        .map(|(process, pid)| {
            Ok(Usage {
                name: process.name().to_owned(),
                pid,
                processor_seconds: processor_seconds(pid)?,
                memory_kib: proportional_set_kib(pid)?,
            })
        })
        .collect()
}

pub(crate) fn mebibytes(kib: u32) -> String {
    format!("{:.1} MiB", f64::from(kib) / 1024.0)
}

fn processor_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name is in parentheses and may hold spaces; utime and stime are fields 14
    // and 15, counted from 1.
    let rest = stat.rsplit(") ").next().context("stat")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |index: usize| -> Result<f64> {
        fields.get(index).context("stat")?.parse().context("stat")
    };
    Ok((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// Seconds of computing.
#[derive(Clone, Copy)]
pub(crate) struct Computed {
    /// Of all processors of the machine.
    pub(crate) machine: f64,
    /// Of containerd itself, without shims and runc.
    pub(crate) runtime: f64,
}

impl Computed {
    /// Since their starts.
    pub(crate) fn look(world: &World) -> Result<Computed> {
        let containerd = world.containerd.pid().context("containerd is away")?;
        Ok(Computed {
            machine: machine_seconds()?,
            runtime: processor_seconds(containerd)?,
        })
    }

    /// Since another look.
    pub(crate) fn since(self, before: &Computed) -> Computed {
        Computed {
            machine: self.machine - before.machine,
            runtime: self.runtime - before.runtime,
        }
    }
}

/// Waits until the machine has nothing to do: the kernel takes down the namespaces and
/// cgroups of removed pods in the background, for a while.
pub(crate) fn until_machine_is_quiet() -> Result<()> {
    let mut before = None;
    poll_every(QUIET, "a quiet machine", || {
        let now = machine_seconds()?;
        let busy = before
            .replace(now)
            .map(|before| (now - before) / QUIET.as_secs_f64());
        Ok(busy.filter(|busy| *busy < QUIET_MACHINE).map(drop))
    })
}

fn machine_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let all = stat.lines().next().context("stat")?;
    // user, nice, system, idle, iowait, irq, softirq, steal, ... (proc_stat(5)).
    let fields = all.split_whitespace().skip(1).map(str::parse::<f64>);
    let fields = fields.collect::<Result<Vec<f64>, _>>()?;
    let busy = [0, 1, 2, 5, 6]
        .iter()
        .filter_map(|field| fields.get(*field));
    Ok(busy.sum::<f64>() / TICKS_PER_SECOND)
}

/// The proportional set size of a process: what it shares counts in parts.
pub(crate) fn proportional_set_kib(pid: u32) -> Result<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text
        .lines()
        .find(|line| line.starts_with("Pss:"))
        .context("no Pss")?;
    line.split_whitespace()
        .nth(1)
        .context("no Pss")?
        .parse()
        .context("Pss")
}
