//! A scenario from its beginning to its end.

use std::collections::BTreeSet;
use std::time::Duration;

use simulated_runtime::Faults;

use crate::evictions::Shortage;
use crate::node::SimulatedNode;
use crate::scenario::Scenario;
use crate::served::all_is_served;
use crate::shortage::{be_short_no_more, be_short_of};
use crate::shutdown;

/// Things that happen in a scenario.
pub(crate) const STEPS: u32 = 40;

/// A scenario that was played.
#[derive(Debug, PartialEq, Eq)]
pub struct Played {
    /// What was done to the node, and then what happened in its runtime, a line each. The
    /// same seed gives the same each time where tokio can be told its seed.
    pub story: String,
    /// What went wrong.
    pub problem: Option<String>,
    /// What was done to the node, a line each.
    pub log: Vec<String>,
}

/// Plays the scenario of a seed to its end.
///
/// # Panics
/// When there can be no tokio runtime or no directory.
#[must_use]
pub fn run(seed: u64) -> Played {
    run_steps(seed, &(0..STEPS).collect())
}

/// The same, where of the things that happen only those of these numbers do.
///
/// # Panics
/// When there can be no tokio runtime or no directory.
#[must_use]
pub fn run_steps(seed: u64, steps: &BTreeSet<u32>) -> Played {
    in_its_runtime(seed, async {
        let mut scenario = Scenario::new(seed);
        let mut node = SimulatedNode::new(seed);
        let outcome = play(&mut scenario, &mut node, (seed, steps)).await;
        Played {
            story: story(&scenario, &node),
            problem: outcome.err(),
            log: scenario.log,
        }
    })
}

/// Plays something on this thread, under a paused clock and with chances from `seed`.
#[expect(
    clippy::unwrap_used,
    reason = "a test cannot go on without its runtime"
)]
pub(crate) fn in_its_runtime<T>(seed: u64, played: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // Who is asked first where a select has no order. Without the flag of the command `cargo
    // xtask sim` tokio cannot be told.
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    #[cfg(not(tokio_unstable))]
    let _ = seed;
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(played)
}

/// All that happened, a line each.
fn story(scenario: &Scenario, node: &SimulatedNode) -> String {
    let history = node.runtime.history();
    let entries = history.iter().map(|entry| {
        let (at, uid, container) = (entry.at, &entry.pod_uid, &entry.container);
        format!("{at:?} {uid} {container} {:?}", entry.happening)
    });
    let lines: Vec<String> = scenario.log.iter().cloned().chain(entries).collect();
    lines.join("\n")
}

async fn play(
    scenario: &mut Scenario,
    node: &mut SimulatedNode,
    (seed, steps): (u64, &BTreeSet<u32>),
) -> Result<(), String> {
    let shortage = Shortage::of_seed(seed);
    node.runtime.add_image("localhost/busybox:test", true);
    node.runtime.add_image("localhost/pulled:test", false);
    node.pass(Duration::ZERO).await?;
    for number in 0..STEPS {
        scenario.begin_step(seed, number);
        if steps.contains(&number) {
            scenario.step(node).await?;
        }
        let pause = scenario.pause();
        node.pass(pause).await?;
    }
    if let Some(shortage) = shortage {
        be_short_of(scenario, node, shortage).await?;
    }
    scenario.note(node, "faults end");
    node.runtime.set_faults(Faults::NONE);
    node.supervision.pardon();
    if scenario.settings.is_none() {
        scenario.put_settings(node);
    }
    scenario.converge(node).await?;
    scenario.note(node, "as desired");
    all_is_served(scenario, node).await?;
    if shortage.is_some() {
        be_short_no_more(scenario, node).await?;
    }
    let broken = scenario.broken_promises(node);
    if !broken.is_empty() {
        return Err(broken.join("\n"));
    }
    match shutdown::is_in_seed(seed) {
        true => shutdown::shut_down(scenario, node).await,
        false => Ok(()),
    }
}
