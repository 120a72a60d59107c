//! The part of a scenario in which the node is short of memory, disk or process ids.

use std::time::Duration;

use simulated_runtime::Faults;

use crate::desired::Desired;
use crate::evictions::{Shortage, Span, TAKEN_AGAIN_AFTER, TRANSITION};
use crate::node::SimulatedNode;
use crate::scenario::{Scenario, running};
use crate::uids::uids_by_version;

/// Things that happen before processes are left alone.
const STEPS_BEFORE: u32 = 8;

/// Things that happen after the first pod was evicted.
const STEPS_AFTER: u32 = 5;

/// Longest time until a pod is evicted when nothing is killed and the node may be short of
/// nothing for long: that of a process that waits for its start, two looks of it at the
/// node, and an attempt that fails.
const FIRST_EVICTION: Duration = Duration::from_secs(60);

/// Longest time until what the node suffers from is known where pods are admitted.
const TOLD_AFTER: Duration = Duration::from_secs(15);

/// What a resize needs to reach pod-worker-pool, also where processes on its way wait for
/// their start.
const RESIZE_IS_HEARD_AFTER: Duration = Duration::from_secs(30);

/// What a pod needs at most to be refused, or to have its sandbox.
const JUDGED_AFTER: Duration = Duration::from_secs(5);

/// Lets the node be short of something for a while, in which things go on happening.
/// Where a pod may be evicted, one is. Two pods come that the node does not take, and
/// does take.
pub(crate) async fn be_short_of(
    scenario: &mut Scenario,
    node: &mut SimulatedNode,
    shortage: Shortage,
) -> Result<(), String> {
    // A size that reaches the pool once its pod was evicted would start that anew.
    if scenario.has_resized {
        node.supervision.pardon();
        node.pass(RESIZE_IS_HEARD_AFTER).await?;
    }
    scenario.note(node, &format!("the node is short of {shortage:?}"));
    shortage.begin(&node.host);
    scenario.shortage = Some(Span {
        of: shortage,
        began: node.clock.now(),
        ended: None,
    });
    steps(scenario, node, STEPS_BEFORE).await?;
    scenario.note(node, "processes are left alone");
    node.runtime.set_faults(Faults::NONE);
    node.supervision.pardon();
    until_one_is_evicted(scenario, node, FIRST_EVICTION + 2 * shortage.is_borne_for()).await?;
    node.pass(TOLD_AFTER).await?;
    scenario.put_one(node, "late", |pod| !shortage.admits(pod));
    scenario.put_one(node, "vital", Desired::is_critical);
    node.pass(JUDGED_AFTER).await?;
    steps(scenario, node, STEPS_AFTER).await?;
    scenario.note(node, "the node is short of nothing");
    Shortage::end(&node.host);
    if let Some(span) = &mut scenario.shortage {
        span.ended = Some(node.clock.now());
    }
    Ok(())
}

/// Pods that come after the shortage run: one that is new, and one in the place of
/// one that was refused.
pub(crate) async fn be_short_no_more(
    scenario: &mut Scenario,
    node: &mut SimulatedNode,
) -> Result<(), String> {
    if is_to_run(scenario, node, "late") {
        return Err("a pod was not refused though the node had no room for it".to_owned());
    }
    node.pass(TRANSITION + TAKEN_AGAIN_AFTER).await?;
    scenario.put_one(node, "late", |_| true);
    scenario.put_one(node, "later", |pod| !pod.is_critical());
    scenario.converge(node).await?;
    for name in ["late", "later", "vital"] {
        if !is_to_run(scenario, node, name) {
            return Err(format!(
                "{name} was evicted though the node has room for it"
            ));
        }
    }
    Ok(())
}

async fn steps(
    scenario: &mut Scenario,
    node: &mut SimulatedNode,
    count: u32,
) -> Result<(), String> {
    for _ in 0..count {
        scenario.step(node).await?;
        let pause = scenario.pause();
        node.pass(pause).await?;
    }
    Ok(())
}

/// Whether a pod is desired and was not evicted.
fn is_to_run(scenario: &Scenario, node: &SimulatedNode, name: &str) -> bool {
    scenario.to_run(&node.observer.evicted()).contains_key(name)
}

async fn until_one_is_evicted(
    scenario: &mut Scenario,
    node: &mut SimulatedNode,
    within: Duration,
) -> Result<(), String> {
    let until = node.elapsed() + within;
    while some_may_be_evicted(scenario, node) {
        let evicted = node.observer.evicted();
        if evicted.values().any(|it| !it.was_refused) {
            return Ok(());
        }
        if node.elapsed() > until {
            return Err("no pod was evicted".to_owned());
        }
        node.pass(Duration::from_millis(500)).await?;
    }
    Ok(())
}

/// Whether something runs of a pod that is desired and not critical.
fn some_may_be_evicted(scenario: &Scenario, node: &SimulatedNode) -> bool {
    let uids = uids_by_version(&node.runtime.history());
    let runs = running(&node.runtime);
    let mut pods = scenario.desired.values().filter(|pod| !pod.is_critical());
    pods.any(|pod| {
        let uid = uids.get(&pod.version_label());
        runs.iter().any(|(running, _, _)| Some(running) == uid)
    })
}
