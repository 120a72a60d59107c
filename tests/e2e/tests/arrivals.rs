//! Pods that come while processes of the node are killed, one every five seconds: each
//! starts in time, since the waits of several processes do not add up.
//!
//! `cargo xtask soak --arrivals` runs four minutes of it; the test command runs a part.

use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clock::WallClock;
use e2e::Ground;
use e2e::cast::web;
use e2e::fault::Fault;
use e2e::random::Random;
use serde_json::json;
use test_support::wait::pause_for;
use test_support::wait_until;
use topology::Process;

/// For how many seconds pods come.
const ARRIVALS: &str = "BULKHEAD_ARRIVALS_SECONDS";

const BETWEEN_KILLS: Duration = Duration::from_secs(5);
const BETWEEN_PODS: Duration = Duration::from_secs(6);

/// Every pod starts within this of its manifest.
const BUDGET: Duration = Duration::from_secs(15);

#[test]
fn pods_that_come_while_processes_are_killed_start_in_time() -> Result<()> {
    let mut random = Random::new();
    let seed = random.seed();
    let seconds = env::var(ARRIVALS).ok().map(|seconds| seconds.parse());
    let span = Duration::from_secs(seconds.transpose()?.unwrap_or(30));
    let told = come(&mut random, span).with_context(|| format!("with seed {seed}"))?;
    println!("{told}");
    Ok(())
}

/// Returns what was seen.
fn come(random: &mut Random, span: Duration) -> Result<String> {
    let ground = Ground::start(json!({}))?;
    let begin = Instant::now();
    let (mut kills, mut came) = (0, Vec::new());
    while begin.elapsed() < span {
        if begin.elapsed() >= BETWEEN_PODS * u32::try_from(came.len())? {
            let name = format!("arrival-{}", came.len());
            let at = u128::try_from(WallClock::system().now().0)?;
            ground.apply(&name, web(&ground, &name))?;
            came.push((name, at));
        }
        if begin.elapsed() >= BETWEEN_KILLS * (kills + 1) {
            kill_one(&ground, random)?;
            kills += 1;
        }
        pause_for(Duration::from_millis(50));
    }
    let mut waits = Vec::new();
    for (name, at) in &came {
        let started = ground.note(name, "started", 1)?;
        let wait = u64::try_from(started.saturating_sub(*at))?;
        waits.push(Duration::from_nanos(wait));
    }
    waits.sort();
    let last = waits.last().context("no pod came")?;
    let told = format!(
        "{kills} kills and {} pods in {span:.0?}; half of them started within {:.1?}, the last within {last:.1?}",
        waits.len(),
        waits[waits.len() / 2]
    );
    ensure!(*last <= BUDGET, "{told}\n{}", ground.bulkhead.log_ends());
    Ok(told)
}

/// Kills one that the supervisor starts again. One that is not there yet was killed before.
fn kill_one(ground: &Ground, random: &mut Random) -> Result<()> {
    let parts = Process::ON_EVERY_NODE
        .into_iter()
        .filter(|process| *process != Process::Supervisor);
    let process = random.choose(&parts.collect::<Vec<_>>());
    let what = format!("{process} to be there");
    let killed = wait_until(&what, BUDGET, || {
        let pid = ground
            .bulkhead
            .pids()
            .ok()
            .and_then(|pids| pids.get(&process).copied());
        pid.is_some_and(|pid| Fault::Kill.happen_to(process, pid).is_ok())
    });
    Ok(killed?)
}
