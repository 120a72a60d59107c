//! Many pods at once, and one pod right after many were removed.
//!
//! The floor of a burst are direct calls, so many pods at a time as is best on this
//! machine: which number that is, is tried out first.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clock::UnixNanos;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::direct;
use crate::processes::{self, Computed, Usage};
use crate::statistics::{Row, Samples, say};
use crate::world::World;

/// Rounds of Bulkhead, each between two of direct calls. Two rounds of the same calls
/// differ by a tenth and more, as the machine is faster or slower for a minute: so each
/// round is compared with its neighbours.
const BURST_ROUNDS: usize = 7;

/// Rounds of pods that are removed, and starts after each.
const REMOVAL_ROUNDS: usize = 3;

/// Direct removals at a time: nothing is measured meanwhile.
const REMOVALS_AT_A_TIME: usize = 4;

/// When the pods of one burst ran, from its begin.
struct Burst {
    first: Duration,
    last: Duration,
    median: Duration,
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
            first: samples.percentile(0),
            last: samples.percentile(100),
            median: samples.percentile(50),
            computed,
        }
    }

    fn seconds(&self) -> String {
        let [first, median, last] =
            [self.first, self.median, self.last].map(|time| time.as_secs_f64());
        let Computed { machine, runtime } = self.computed;
        format!(
            "last {last:.2} s, median {median:.2} s, first {first:.2} s; computed {machine:.1} s, containerd {runtime:.1} s of them"
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

    let direct_calls = format!("burst of {pods}, direct calls, {best} at a time");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=BURST_ROUNDS {
        let direct = by_direct_calls(world, &format!("round-{round}"), pods, best)?;
        rows.push(told(&direct_calls, &direct.seconds()));
        theirs.push(direct);
        if round == BURST_ROUNDS {
            break;
        }
        let names = names(&format!("burst-{round}"), pods);
        let before = processes::look(&world.bulkhead)?;
        let bulkhead = by_bulkhead(world, &names)?;
        let shares = shares(&before, &processes::look(&world.bulkhead)?);
        let figures = format!("{} ({shares})", bulkhead.seconds());
        rows.push(told(&format!("burst of {pods}, Bulkhead"), &figures));
        ours.push(bulkhead);
        remove_all(world, &names)?;
        // What they leave in the runtime is removed in the background.
        world.until_runtime_is_empty()?;
    }
    let what = |which| format!("burst of {pods}, against {best} at a time: {which} one runs");
    let neighbours = |time| Ratios::of(&ours, &theirs, time);
    rows.push(neighbours(|burst| burst.last).row(&what("last"), "<= 1.05"));
    rows.push(neighbours(|burst| burst.median).row(&what("median"), "<= 1.15"));
    Ok(rows)
}

/// A time of each round of Bulkhead as a multiple of its mean in the two rounds of direct
/// calls beside it, from the least.
struct Ratios(Vec<f64>);

impl Ratios {
    fn of(ours: &[Burst], theirs: &[Burst], time: fn(&Burst) -> Duration) -> Ratios {
        let ratios = ours.iter().zip(theirs.windows(2)).map(|(ours, beside)| {
            let beside: Duration = beside.iter().map(time).sum();
            2.0 * time(ours).as_secs_f64() / beside.as_secs_f64()
        });
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        Ratios(ratios)
    }

    fn row(&self, what: &str, budget: &str) -> Row {
        let at = |index: usize| self.0.get(index).copied().unwrap_or(f64::NAN);
        let (least, most) = (at(0), at(self.0.len().saturating_sub(1)));
        let median = at(self.0.len() / 2);
        let ratio = format!("{median:.2} ({least:.2} to {most:.2})");
        told_as(what, &ratio, budget)
    }
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

fn one_pod(world: &World, name: &str) -> Result<Duration> {
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
    processes::until_machine_is_quiet()?;
    let begin = World::now();
    let before = Computed::look(world)?;
    for name in names {
        world.put_manifest(name, &World::smallest(name))?;
    }
    let run = world.until_run(names.len(), begin)?;
    let computed = Computed::look(world)?.since(&before);
    Ok(Burst::since(begin, world.starts(&run)?, computed))
}

/// A row that is told at once too: a burst takes minutes, and may be cut off.
fn told(what: &str, figures: &str) -> Row {
    told_as(what, figures, "")
}

fn told_as(what: &str, figures: &str, budget: &str) -> Row {
    say(&format!("{what}: {figures}"));
    Row::text(what, figures, budget)
}

/// What each process computed between two looks, in seconds.
fn shares(before: &[Usage], after: &[Usage]) -> String {
    let shares = before.iter().zip(after).map(|(before, after)| {
        let seconds = after.processor_seconds - before.processor_seconds;
        format!("{} {seconds:.2}", after.name)
    });
    shares.collect::<Vec<_>>().join(", ")
}

/// From the begin of so many pods by direct calls, `at_a_time`, until the last one runs.
pub(crate) fn last_by_direct_calls(
    world: &World,
    what: &str,
    pods: usize,
    at_a_time: usize,
) -> Result<Duration> {
    Ok(by_direct_calls(world, what, pods, at_a_time)?.last)
}

fn by_direct_calls(world: &World, what: &str, pods: usize, at_a_time: usize) -> Result<Burst> {
    let names = names(&format!("direct-{what}"), pods);
    processes::until_machine_is_quiet()?;
    let begin = World::now();
    let before = Computed::look(world)?;
    let starts = stream::iter(&names).map(|name| direct::start(world, World::smallest(name)));
    let starts = starts.buffer_unordered(at_a_time).try_collect::<Vec<_>>();
    let made = world.containerd.block_on(starts)?;
    let run = world.until_run(names.len(), begin)?;
    let computed = Computed::look(world)?.since(&before);
    let burst = Burst::since(begin, world.starts(&run)?, computed);
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
