//! A scenario from its beginning to its end.

use std::time::Duration;

use simulated_runtime::Faults;

use crate::evictions::Shortage;
use crate::node::SimulatedNode;
use crate::scenario::Scenario;
use crate::shortage::{be_short_no_more, be_short_of};

/// Things that happen in a scenario.
const STEPS: u32 = 40;

/// Runs the scenario of a seed to its end.
///
/// # Errors
/// What went wrong, with the steps that led there.
pub fn run(seed: u64) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut scenario = Scenario::new(seed);
        let mut node = SimulatedNode::new(seed);
        play(&mut scenario, &mut node, Shortage::of_seed(seed))
            .await
            .map_err(|error| format!("seed {seed}: {error}\n{}", scenario.log.join("\n")))
    })
}

async fn play(
    scenario: &mut Scenario,
    node: &mut SimulatedNode,
    shortage: Option<Shortage>,
) -> Result<(), String> {
    node.runtime.add_image("localhost/busybox:test", true);
    node.runtime.add_image("localhost/pulled:test", false);
    node.pass(Duration::ZERO).await?;
    for _ in 0..STEPS {
        scenario.step(node).await?;
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
    if shortage.is_some() {
        be_short_no_more(scenario, node).await?;
    }
    let broken = scenario.broken_promises(node);
    if broken.is_empty() {
        Ok(())
    } else {
        Err(broken.join("\n"))
    }
}
