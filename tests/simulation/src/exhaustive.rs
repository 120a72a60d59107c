//! The exhaustive mode: one or two pods come, one changes and all go, and with each call that
//! the node makes to its runtime meanwhile, each thing that it does to cgroups, directories
//! and volumes, and each file that a process saves or reads, each kind of mishap happens once.

use std::time::Duration;

use simulated_runtime::Mishap;
use topology::Process;

use crate::node::SimulatedNode;
use crate::scenario::Scenario;

/// Time that is given to each thing that happens to the pods.
const PART: Duration = Duration::from_secs(4);

/// Time in which the pods end: more than any grace, after which a call may be answered
/// whose caller is to be killed.
const LAST_PART: Duration = Duration::from_secs(12);

/// A call whose caller is to be killed is looked for so often.
const SLICE: Duration = Duration::from_millis(5);

/// What a scenario of the exhaustive mode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What the pods are like.
    pub seed: u64,
    /// How many pods there are.
    pub pods: u32,
    /// How many effects come before the one that meets the mishap.
    pub before: u64,
    /// What happens to that one.
    pub mishap: Mishap,
}

/// Plays a case. Whether the effect was wanted, or what went wrong.
///
/// # Errors
/// With the promises that were broken, and what was done to the node.
///
/// # Panics
/// When there can be no tokio runtime or no directory.
pub fn play_case(case: Case) -> Result<bool, String> {
    crate::play::in_its_runtime(case.seed, async {
        let mut scenario = Scenario::new(case.seed);
        let mut node = SimulatedNode::new(case.seed);
        let played = play(case, &mut scenario, &mut node).await;
        let failed = |problem| format!("{case:?}: {problem}\n{}", scenario.log.join("\n"));
        played.map_err(failed)
    })
}

async fn play(
    case: Case,
    scenario: &mut Scenario,
    node: &mut SimulatedNode,
) -> Result<bool, String> {
    node.runtime.add_image("localhost/busybox:test", true);
    node.runtime.add_image("localhost/pulled:test", false);
    node.pass(Duration::ZERO).await?;
    scenario.put_settings(node);
    node.runtime.set_mishap(Some((case.before, case.mishap)));
    for pod in 0..case.pods {
        scenario.put_one(node, &format!("p{pod}"), |_| true);
    }
    pass(scenario, node, PART).await?;
    // Another version of the first one.
    scenario.put_one(node, "p0", |_| true);
    pass(scenario, node, PART).await?;
    for pod in 0..case.pods {
        scenario.remove_one(node, &format!("p{pod}"));
    }
    pass(scenario, node, LAST_PART).await?;
    scenario.note(node, "the mishap is over");
    node.runtime.set_mishap(None);
    scenario.converge(node).await?;
    let broken = scenario.broken_promises(node);
    match broken.is_empty() {
        true => Ok(node.runtime.has_met_mishap()),
        false => Err(broken.join("\n")),
    }
}

/// Lets time pass, and kills who made the call that wants it.
async fn pass(
    scenario: &mut Scenario,
    node: &mut SimulatedNode,
    time: Duration,
) -> Result<(), String> {
    let until = node.elapsed() + time;
    while node.elapsed() < until {
        node.pass(SLICE).await?;
        let runtime = node.runtime.clone();
        let wanted = tokio::time::timeout(Duration::ZERO, runtime.wants_caller_killed()).await;
        if wanted.is_ok() {
            scenario.note(node, "kill pod-worker-pool in its call");
            node.supervision.kill([Process::PodWorkerPool]).await;
        }
        if let Some(process) = node.victim.take() {
            scenario.note(node, &format!("kill {process} in its work on the disk"));
            node.supervision.kill([process]).await;
        }
    }
    Ok(())
}
