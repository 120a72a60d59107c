//! What node-api serves in the end, when faults have ended: that all is well, exactly the
//! pods that are desired, and a command in `main` of each that runs.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use crate::desired::{Desired, VERSION_LABEL};
use crate::node::SimulatedNode;
use crate::scenario::Scenario;
use crate::visitor::Served;

/// Within what all of it is served: the longest wait of a process before its restart, and
/// calls to it that were made before.
const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// How often that is looked for, and an answer.
const LOOK: Duration = Duration::from_millis(500);
const STEP_OF_WAITING: Duration = Duration::from_millis(1);

/// Waits until node-api serves what it has to.
pub(crate) async fn all_is_served(
    scenario: &Scenario,
    node: &mut SimulatedNode,
) -> Result<(), String> {
    let until = node.elapsed() + SERVED_WITHIN;
    loop {
        let to_run = scenario.to_run(&node.observer.evicted());
        let serving = to_run.values().filter(|pod| !pod.servers().is_empty());
        let names = serving.map(|pod| format!("default/{}-node", pod.name()));
        let looking = tokio::spawn(node.visitor.look(names.collect()));
        let looking = AbortOnDropHandle::new(looking);
        while !looking.is_finished() {
            node.pass(STEP_OF_WAITING).await?;
        }
        let seen = looking.await.map_err(|error| error.to_string())?;
        let missing = match seen {
            Ok(served) => missing(&served, scenario.desired.values()),
            Err(outcome) => vec![format!("{outcome:?}")],
        };
        if missing.is_empty() {
            return Ok(());
        }
        if node.elapsed() > until {
            return Err(format!("node-api does not serve:\n{}", missing.join("\n")));
        }
        node.pass(LOOK).await?;
    }
}

/// What is not served as it has to be. Pure.
fn missing<'a>(served: &Served, desired: impl Iterator<Item = &'a Desired>) -> Vec<String> {
    let mut missing = Vec::new();
    if served.health != "ok" {
        missing.push(format!("health is {:?}", served.health));
    }
    let listed: Value = serde_json::from_slice(&served.pods).unwrap_or_default();
    let items = listed["items"].as_array().into_iter().flatten();
    let labels = items.map(|pod| pod["metadata"]["labels"][VERSION_LABEL].as_str());
    let labels: BTreeSet<String> = labels.flatten().map(str::to_owned).collect();
    let desired: BTreeSet<String> = desired.map(Desired::version_label).collect();
    if labels != desired {
        missing.push(format!("pods are {labels:?}, not {desired:?}"));
    }
    let commands = served.containers.iter();
    missing.extend(commands.filter_map(|command| command.clone().err()));
    missing
}
