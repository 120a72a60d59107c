//! Many pods at once, and one pod right after many were removed.
//!
//! The floor of a burst are direct calls, so many pods at a time as is best on this
//! machine: which number that is, is tried out first.

use anyhow::{Context as _, Result};
use clock::UnixNanos;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::direct;
use crate::processes::{self, Computed, Usage};
use crate::statistics::{Row, Samples, say};
use crate::world::World;

/// Rounds of Bulkhead and of direct calls, by turns. Two rounds of the same calls differ by
/// a tenth.
const BURST_ROUNDS: usize = 5;

/// Rounds of pods that are removed, and starts after each.
const REMOVAL_ROUNDS: usize = 3;

/// Direct removals at a time: nothing is measured meanwhile.
const REMOVALS_AT_A_TIME: usize = 4;

/// When the pods of one burst ran, from its begin.
struct Burst {
    last: std::time::Duration,
    median: std::time::Duration,
    /// From its begin to the last start.
    computed: Computed,
}

impl Burst {
    fn since(begin: UnixNanos, starts: Vec<UnixNanos>, computed: Computed) -> Burst {
        let mut samples = Samples::default();
        for start in starts {
            samples.push(start.since(begin));
        }
        Burst {
            last: samples.percentile(100),
            median: samples.percentile(50),
            computed,
        }
    }

    fn seconds(&self) -> String {
        let (last, median) = (self.last.as_secs_f64(), self.median.as_secs_f64());
        let Computed { machine, runtime } = self.computed;
        format!(
            "last {last:.2} s, median {median:.2} s; computed {machine:.1} s, containerd {runtime:.1} s of them"
        )
    }
}

/// A burst of so many pods, against direct calls.
pub(crate) fn burst(world: &World, pods: usize, at_a_time: &[usize]) -> Result<Vec<Row>> {
    // Files and caches are warm for all that follows.
    by_direct_calls(world, "warm", pods.min(10), 2)?;
    let mut rows = Vec::new();
    let mut tried = Vec::new();
    for at_a_time in at_a_time.iter().copied().chain([pods]) {
        let burst = by_direct_calls(world, &format!("try-{at_a_time}"), pods, at_a_time)?;
        let what = format!("burst of {pods}, direct calls, {at_a_time} at a time");
        rows.push(told(&what, &burst.seconds()));
        tried.push((burst.last, at_a_time));
    }
    let (_, best) = tried.into_iter().min().context("nothing was tried")?;

    let (mut last, mut median) = (Samples::default(), Samples::default());
    let (mut floor_last, mut floor_median) = (Samples::default(), Samples::default());
    for round in 0..BURST_ROUNDS {
        let names = names(&format!("burst-{round}"), pods);
        let before = processes::look(world)?;
        let bulkhead = by_bulkhead(world, &names)?;
        let shares = shares(&before, &processes::look(world)?);
        let figures = format!("{} ({shares})", bulkhead.seconds());
        rows.push(told(&format!("burst of {pods}, Bulkhead"), &figures));
        last.push(bulkhead.last);
        median.push(bulkhead.median);
        remove_all(world, &names)?;
        // What they leave in the runtime is removed in the background.
        world.until_runtime_is_empty()?;
        let direct = by_direct_calls(world, &format!("round-{round}"), pods, best)?;
        let what = format!("burst of {pods}, direct calls, {best} at a time");
        rows.push(told(&what, &direct.seconds()));
        floor_last.push(direct.last);
        floor_median.push(direct.median);
    }
    let what = format!("burst of {pods}, against {best} at a time");
    rows.push(Row::against(
        &format!("{what}: last one runs"),
        &last,
        &floor_last,
        "<= 1.05",
    ));
    rows.push(Row::against(
        &format!("{what}: median one runs"),
        &median,
        &floor_median,
        "<= 1.15",
    ));
    Ok(rows)
}

/// One pod right after so many were removed, against one on a quiet node.
pub(crate) fn after_removals(world: &World, pods: usize, repetitions: usize) -> Result<Vec<Row>> {
    let mut quiet = Samples::default();
    for index in 0..=repetitions {
        let latency = one_pod(world, &format!("quiet-{index}"))?;
        if index > 0 {
            quiet.push(latency);
        }
    }
    let (mut after, mut during) = (Samples::default(), Samples::default());
    for round in 0..REMOVAL_ROUNDS {
        let names = names(&format!("gone-{round}"), pods);
        by_bulkhead(world, &names)?;
        remove_all(world, &names)?;
        // What they leave in the runtime is removed while these start.
        for index in 0..REMOVAL_ROUNDS {
            after.push(one_pod(world, &format!("after-{round}-{index}"))?);
        }

        let names = self::names(&format!("ending-{round}"), pods);
        by_bulkhead(world, &names)?;
        for name in &names {
            world.remove(name)?;
        }
        during.push(one_pod(world, &format!("during-{round}"))?);
        for name in &names {
            world.until_gone(name)?;
        }
    }
    let what = |which| format!("manifest written -> process runs, {which}");
    Ok(vec![
        Row::against(
            &what(&format!("{pods} pods just removed (against a quiet node)")),
            &after,
            &quiet,
            "<= 1.50",
        ),
        Row::against(
            &what(&format!("{pods} pods being ended (against a quiet node)")),
            &during,
            &quiet,
            "none",
        ),
    ])
}

fn one_pod(world: &World, name: &str) -> Result<std::time::Duration> {
    let begin = World::now();
    world.put(name, &[])?;
    let latency = world.noted(name, "started", 0)?.since(begin);
    world.remove(name)?;
    Ok(latency)
}

fn names(prefix: &str, pods: usize) -> Vec<String> {
    (0..pods).map(|pod| format!("{prefix}-{pod}")).collect()
}

fn by_bulkhead(world: &World, names: &[String]) -> Result<Burst> {
    let begin = World::now();
    let before = Computed::look(world)?;
    for name in names {
        world.put(name, &[])?;
    }
    let starts = world.all_started(names, begin)?;
    let computed = Computed::look(world)?.since(&before);
    Ok(Burst::since(begin, starts, computed))
}

/// A row that is told at once too: a burst takes minutes, and may be cut off.
fn told(what: &str, figures: &str) -> Row {
    say(&format!("{what}: {figures}"));
    Row::text(what, figures, "")
}

/// What each process computed between two looks, in seconds.
fn shares(before: &[Usage], after: &[Usage]) -> String {
    let shares = before.iter().zip(after).map(|(before, after)| {
        let seconds = after.processor_seconds - before.processor_seconds;
        format!("{} {seconds:.2}", after.name)
    });
    shares.collect::<Vec<_>>().join(", ")
}

fn by_direct_calls(world: &World, what: &str, pods: usize, at_a_time: usize) -> Result<Burst> {
    let names = names(&format!("direct-{what}"), pods);
    let begin = World::now();
    let before = Computed::look(world)?;
    let starts = stream::iter(&names).map(|name| direct::start(world, name, &[]));
    let starts = starts.buffer_unordered(at_a_time).try_collect::<Vec<_>>();
    let made = world.containerd.block_on(starts)?;
    let starts = world.all_started(&names, begin)?;
    let computed = Computed::look(world)?.since(&before);
    let burst = Burst::since(begin, starts, computed);
    let removals = stream::iter(made.iter().map(Ok));
    let removals =
        removals.try_for_each_concurrent(REMOVALS_AT_A_TIME, |pod| direct::remove(world, pod));
    world.containerd.block_on(removals)?;
    Ok(burst)
}

fn remove_all(world: &World, names: &[String]) -> Result<()> {
    for name in names {
        world.remove(name)?;
    }
    for name in names {
        world.until_gone(name)?;
    }
    Ok(())
}
