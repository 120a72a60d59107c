//! What an idle node costs: processor time and memory of all processes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use test_support::wait::pause_for;

use crate::statistics::Row;
use crate::world::World;

/// Time for everything that the start of the pods left to do.
const SETTLE: Duration = Duration::from_secs(20);

/// Unit of the times in /proc/PID/stat: USER_HZ, which Linux fixes at 100.
const TICKS_PER_SECOND: f64 = 100.0;

pub(crate) fn measure(pods: usize, seconds: u64) -> Result<Vec<Row>> {
    let world = World::create()?;
    for pod in 0..pods {
        world.put(&format!("idle-{pod}"), &[])?;
    }
    for pod in 0..pods {
        world.noted(&format!("idle-{pod}"), "started", 0)?;
    }
    pause_for(SETTLE);
    let before = processor_ticks(&world)?;
    let begin = Instant::now();
    pause_for(Duration::from_secs(seconds));
    let elapsed = begin.elapsed().as_secs_f64();
    let mut rows = Vec::new();
    let (mut cores, mut memory) = (0.0, 0);
    for ((name, pid, earlier), (_, _, later)) in before.iter().zip(&processor_ticks(&world)?) {
        let own_cores = (later - earlier) / TICKS_PER_SECOND / elapsed;
        let own_memory = proportional_set_kib(*pid)?;
        cores += own_cores;
        memory += own_memory;
        let text = format!(
            "{:.2} millicores, {:.1} MiB PSS",
            own_cores * 1000.0,
            f64::from(own_memory) / 1024.0
        );
        rows.push(Row::text(&format!("idle, {pods} pods: {name}"), &text, ""));
    }
    let cpu = format!("{:.1} millicores", cores * 1000.0);
    rows.insert(
        0,
        Row::text(
            &format!("idle, {pods} pods: processor"),
            &cpu,
            "< 10 millicores",
        ),
    );
    let mib = format!("{:.1} MiB", f64::from(memory) / 1024.0);
    rows.insert(
        1,
        Row::text(&format!("idle, {pods} pods: PSS sum"), &mib, "< 50 MiB"),
    );
    Ok(rows)
}

fn processor_ticks(world: &World) -> Result<Vec<(String, u32, f64)>> {
    let pids = world.bulkhead.pids()?;
    pids.into_iter()
        .map(|(process, pid)| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
            // The name is in parentheses and may hold spaces; utime and stime
            // are fields 14 and 15, counted from 1.
            let rest = stat.rsplit(") ").next().context("stat")?;
            let fields: Vec<&str> = rest.split(' ').collect();
            let ticks = |index: usize| -> Result<f64> {
                fields.get(index).context("stat")?.parse().context("stat")
            };
            Ok((process.name().to_owned(), pid, ticks(11)? + ticks(12)?))
        })
        .collect()
}

fn proportional_set_kib(pid: u32) -> Result<u32> {
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
