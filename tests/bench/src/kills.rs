//! Restart latency over many kills of each process, as often as the rule of restart waits
//! lets them come back at once: each is killed again [`SOON`] after it was ready, so no wait
//! is part of what is measured. The processes of a node are killed in turn, one at a time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bulkhead_api::v1;
use bulkhead_api::v1::ProcessState;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use supervisor::policy::SOON;
use test_support::wait::pause_for;
use topology::Process;

use crate::restart::answered;
use crate::statistics::{Row, Samples};
use crate::world::{World, poll};

/// What one process came to.
#[derive(Debug, Default)]
struct Measured {
    /// From the kill to the next answer on its socket.
    away: Samples,
    longest: Duration,
}

/// A process that will be killed.
#[derive(Debug)]
struct Victim {
    process: Process,
    pid: u32,
    due: Instant,
    kills: usize,
}

/// Kills each process so often, on several nodes at a time, and tells how long each was away.
pub(crate) fn measure(kills: usize, nodes: usize) -> Result<Vec<Row>> {
    let nodes = nodes.max(1);
    let worlds: Vec<World> = (0..nodes).map(|_| World::create()).collect::<Result<_>>()?;
    let of_each = kills.div_ceil(nodes);
    let begin = Instant::now();
    let measured: Vec<BTreeMap<Process, Measured>> = std::thread::scope(|scope| {
        let measure = |world| scope.spawn(move || of_node(world, of_each));
        let threads: Vec<_> = worlds.iter().map(measure).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(measured) => measured,
            Err(_panic) => bail!("a thread that kills processes panicked"),
        });
        joined.collect::<Result<_>>()
    })?;
    let spent = begin.elapsed().as_secs();
    let mut all: BTreeMap<Process, Measured> = BTreeMap::new();
    for (process, one) in measured.into_iter().flatten() {
        let together = all.entry(process).or_default();
        together.away.append(one.away);
        together.longest = together.longest.max(one.longest);
    }
    let rows = all.into_iter().map(|(process, measured)| {
        let longest = measured.longest.as_secs_f64() * 1000.0;
        let count = measured.away.len();
        let what = format!("{process}, {count} kills -> answers (longest {longest:.0} ms)");
        Row::alone(&what, &measured.away, "p99 < 100 ms")
    });
    let mut rows: Vec<Row> = rows.collect();
    let what = format!("kills of each process on each of the nodes ({nodes})");
    rows.push(Row::text(
        &what,
        &format!("{of_each} each in {spent} s"),
        "-",
    ));
    Ok(rows)
}

fn of_node(world: &World, kills: usize) -> Result<BTreeMap<Process, Measured>> {
    let mut measured: BTreeMap<Process, Measured> = BTreeMap::new();
    let mut victims = victims(world)?;
    while let Some(victim) = victims
        .iter_mut()
        .filter(|victim| victim.kills < kills)
        .min_by_key(|victim| victim.due)
    {
        pause_for(victim.due.saturating_duration_since(Instant::now()));
        let begin = Instant::now();
        kill(Pid::from_raw(victim.pid.cast_signed()), Signal::SIGKILL)?;
        answered(&world.bulkhead.paths().run, victim.process)?;
        let away = begin.elapsed();
        let entry = measured.entry(victim.process).or_default();
        entry.away.push(away);
        entry.longest = entry.longest.max(away);
        victim.pid = next_pid(world, victim.process, victim.pid)?;
        victim.due = Instant::now() + SOON;
        victim.kills += 1;
    }
    Ok(measured)
}

/// The pid of the run after `old`, once it is ready.
fn next_pid(world: &World, process: Process, old: u32) -> Result<u32> {
    poll(&format!("{process} to be ready"), || {
        let rows = world.bulkhead.processes()?;
        let row = rows.iter().find(|row| row.name == process.name());
        let is_next =
            |row: &&v1::ProcessStatus| row.state() == ProcessState::Ready && row.pid != old;
        Ok(row.filter(is_next).map(|row| row.pid))
    })
}

/// All that the supervisor restarts, to be killed one after the other within [`SOON`].
fn victims(world: &World) -> Result<Vec<Victim>> {
    let pids = world.bulkhead.pids()?.into_iter();
    let restarted: Vec<_> = pids.filter(|(it, _)| *it != Process::Supervisor).collect();
    let count = u32::try_from(restarted.len())?;
    let first = Instant::now() + SOON;
    let victims = restarted.into_iter().zip(0_u32..);
    let victims = victims.map(|((process, pid), index)| Victim {
        process,
        pid,
        due: first + SOON * index / count,
        kills: 0,
    });
    Ok(victims.collect())
}
