//! What an idle node costs: processor time and memory of all processes.

use std::time::{Duration, Instant};

use anyhow::Result;
use test_support::wait::pause_for;

use crate::processes;
use crate::statistics::Row;
use crate::world::World;

/// Time for everything that the start of the pods left to do, the proof that the
/// runtime's events are complete included.
const SETTLE: Duration = Duration::from_secs(30);

/// Time until memory that is free has been given back, which processes do once a minute.
const GIVEN_BACK: Duration = Duration::from_secs(75);

pub(crate) fn measure(pods: usize, seconds: u64) -> Result<Vec<Row>> {
    let world = World::create()?;
    for pod in 0..pods {
        world.put(&format!("idle-{pod}"), &[])?;
    }
    for pod in 0..pods {
        world.noted(&format!("idle-{pod}"), "started", 0)?;
    }
    pause_for(SETTLE);
    let before = processes::look(&world.bulkhead)?;
    let begin = Instant::now();
    pause_for(Duration::from_secs(seconds));
    let elapsed = begin.elapsed().as_secs_f64();
    let mut rows = Vec::new();
    let (mut cores, mut memory) = (0.0, 0);
    for (earlier, later) in before.iter().zip(&processes::look(&world.bulkhead)?) {
        anyhow::ensure!(
            earlier.pid == later.pid,
            "{} was started anew while it was watched",
            later.name
        );
        let own_cores = (later.processor_seconds - earlier.processor_seconds) / elapsed;
        cores += own_cores;
        memory += later.memory_kib;
        let text = format!(
            "{:.2} millicores, {}",
            own_cores * 1000.0,
            processes::mebibytes(later.memory_kib)
        );
        rows.push(Row::text(
            &format!("idle, {pods} pods: {}", later.name),
            &text,
            "",
        ));
    }
    let (processor, memory_budget) = budgets(pods);
    let cpu = format!("{:.1} millicores", cores * 1000.0);
    let mut all = vec![
        Row::text(&format!("idle, {pods} pods: processor"), &cpu, processor),
        Row::text(
            &format!("idle, {pods} pods: PSS sum"),
            &processes::mebibytes(memory),
            memory_budget,
        ),
    ];
    all.append(&mut rows);
    Ok(all)
}

/// Of processor time and of memory; numbers of pods other than these have none.
fn budgets(pods: usize) -> (&'static str, &'static str) {
    match pods {
        100 => ("<= 5 millicores", "<= 40 MiB"),
        250 => ("<= 8 millicores", "<= 50 MiB"),
        _ => ("", ""),
    }
}

/// What `pods` pods leave in memory that have come and gone, `at_once` at a time.
pub(crate) fn measure_memory_after(pods: usize, at_once: usize) -> Result<Vec<Row>> {
    let world = World::create()?;
    pause_for(SETTLE);
    let fresh = processes::look(&world.bulkhead)?;
    let names: Vec<String> = (0..pods).map(|pod| format!("gone-{pod}")).collect();
    for batch in names.chunks(at_once.max(1)) {
        for name in batch {
            world.put(name, &[])?;
        }
        for name in batch {
            world.noted(name, "started", 0)?;
        }
        for name in batch {
            world.remove(name)?;
        }
        for name in batch {
            world.until_gone(name)?;
        }
    }
    // What they leave in the runtime is known, and takes memory, until it is removed.
    world.until_runtime_is_empty()?;
    pause_for(GIVEN_BACK);
    let after = processes::look(&world.bulkhead)?;
    let (mut rows, mut sums) = (Vec::new(), (0, 0));
    for (fresh, after) in fresh.iter().zip(&after) {
        anyhow::ensure!(
            fresh.pid == after.pid,
            "{} was started anew while it was watched",
            after.name
        );
        sums = (sums.0 + fresh.memory_kib, sums.1 + after.memory_kib);
        rows.push(Row::text(
            &format!("memory after {pods} pods: {}", after.name),
            &from_to(fresh.memory_kib, after.memory_kib),
            "",
        ));
    }
    let what = format!("memory after {pods} pods: PSS sum");
    rows.insert(0, Row::text(&what, &from_to(sums.0, sums.1), "<= 1.20 x"));
    Ok(rows)
}

fn from_to(fresh: u32, after: u32) -> String {
    format!(
        "{} -> {}, {:.2} x",
        processes::mebibytes(fresh),
        processes::mebibytes(after),
        f64::from(after) / f64::from(fresh.max(1))
    )
}
