//! The end of some scenarios: the node shuts down, and processes die meanwhile.
//!
//! Its pods end group by group, none starts, and logind waits until all have ended or have
//! had their time. Where the shutdown is cancelled, new pods start; where the node boots
//! again, all of them do.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::UnixNanos;
use pod::node_shutdown::{REJECTED, TERMINATED};
use pod::{Pod, PodExt as _};
use rand::Rng as _;
use simulated_runtime::{Entry, Happening};
use topology::Process;

use crate::check::not_running;
use crate::desired::{Desired, VERSION_LABEL};
use crate::node::{SHUTDOWN, SimulatedNode};
use crate::scenario::{Scenario, running};
use crate::statuses;
use crate::uids::uids_by_version;

/// What the lock may be held beyond the time of all groups, or beyond the next start of a
/// pod-worker-pool that died.
const LOCKED_BEYOND: Duration = Duration::from_secs(8);

/// The longest wait of a process before it is started again, and more.
const RESTARTED_WITHIN: Duration = Duration::from_secs(15);

/// What passes before it, so that no supervisor is stopped any more.
const QUIET_BEFORE: Duration = Duration::from_secs(10);

/// What passes until the processes have heard of the shutdown, and a start that was under
/// way is over.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// How often it is looked whether the lock is still held.
const SLICE: Duration = Duration::from_millis(20);

/// Until when a process, which may wait for its start, takes the lock again.
const LOCKED_AGAIN_WITHIN: Duration = Duration::from_secs(60);

/// What a pod needs at most to run, or to be refused.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// What all pods need to run after a boot: the waits of processes count on, and so does the
/// back-off of containers that had crashed where the shutdown did not stop their pod.
const STARTED_WITHIN: Duration = Duration::from_secs(120);

/// How a program ends that the node takes down with it.
const SIGKILL_CODE: i32 = 137;

/// The time that all groups have together.
fn total() -> Duration {
    SHUTDOWN.iter().map(|group| group.grace).sum()
}

/// Whether the scenario of a seed ends so: one of five, with and without events of the
/// runtime alike, where the node is short of nothing.
pub(crate) fn is_in_seed(seed: u64) -> bool {
    matches!(seed % 10, 7 | 8)
}

/// What has happened of a shutdown.
struct Shutdown {
    began: UnixNanos,
    /// When nobody delayed it any more.
    released: UnixNanos,
    history: Vec<Entry>,
    /// By UID: whether the pod is critical.
    critical: BTreeMap<String, bool>,
}

/// Shuts a node down whose pods run as desired.
pub(crate) async fn shut_down(
    scenario: &mut Scenario,
    node: &mut SimulatedNode,
) -> Result<(), String> {
    // A supervisor that is being stopped lets the lock go.
    node.pass(QUIET_BEFORE).await?;
    until_delayed(node).await?;
    let uids = uids_by_version(&node.runtime.history());
    let pods = scenario.desired.values();
    let critical = pods.filter_map(|pod| {
        let uid = uids.get(&pod.version_label())?;
        Some((uid.clone(), pod.is_critical()))
    });
    let critical = critical.collect();
    let ran: Vec<String> = running(&node.runtime).into_iter().map(|it| it.0).collect();
    scenario.note(node, "the node shuts down");
    let began = node.clock.now();
    node.logind.shut_down(true);
    until_released(scenario, node, began).await?;
    let shutdown = Shutdown {
        began,
        released: node.clock.now(),
        history: node.runtime.history().to_vec(),
        critical,
    };
    scenario.note(node, "the node may go down");
    let mut broken = shutdown.broken();
    if shutdown.time_is_left() {
        let left = running(&node.runtime).into_iter();
        broken.extend(left.map(|(uid, name, _)| format!("{name} of {uid} runs still")));
    }
    node.pass(SETTLED_WITHIN).await?;
    broken.extend(wrong_statuses(&ran, node.served_pods().await?));
    match scenario.chance(0.5) {
        true => cancel(scenario, node).await?,
        false => boot(scenario, node).await?,
    }
    match broken.is_empty() {
        true => Ok(()),
        false => Err(broken.join("\n")),
    }
}

/// Waits until a process has the lock.
async fn until_delayed(node: &mut SimulatedNode) -> Result<(), String> {
    let until = node.elapsed() + LOCKED_AGAIN_WITHIN;
    while !node.logind.is_delayed() {
        if node.elapsed() > until {
            return Err("nobody delays a shutdown of the node".to_owned());
        }
        node.pass(SLICE).await?;
    }
    Ok(())
}

/// Waits until nobody delays the shutdown. Now and then a process dies, and a pod comes.
async fn until_released(
    scenario: &mut Scenario,
    node: &mut SimulatedNode,
    began: UnixNanos,
) -> Result<(), String> {
    let late = scenario.random.random_range(Duration::ZERO..total() / 4);
    let mut has_come = false;
    while node.logind.is_delayed() {
        let passed = node.clock.now().since(began);
        let deaths = node.supervision.deaths_of(Process::PodWorkerPool);
        let restarted = deaths.last().map(|died| died.plus(RESTARTED_WITHIN));
        let due = began.plus(total()).max(restarted.unwrap_or(began));
        if node.clock.now() > due.plus(LOCKED_BEYOND) {
            return Err("the shutdown is delayed though all have had their time".to_owned());
        }
        if passed > HEARD_WITHIN + late && !has_come {
            scenario.put_one(node, "late", |_| true);
            has_come = true;
        }
        if scenario.chance(0.004) {
            let process = match scenario.chance(0.5) {
                true => Process::PodWorkerPool,
                false => scenario.process(),
            };
            scenario.note(node, &format!("kill {process}"));
            node.supervision.kill([process]).await;
        }
        node.pass(SLICE).await?;
    }
    Ok(())
}

/// After a shutdown that was cancelled, the next one is delayed again, what ended has
/// ended, and a pod that comes is started.
async fn cancel(scenario: &mut Scenario, node: &mut SimulatedNode) -> Result<(), String> {
    scenario.note(node, "the shutdown is cancelled");
    node.logind.shut_down(false);
    until_delayed(node).await?;
    let before = node.runtime.history().len();
    scenario.put_one(node, "later", |_| true);
    let until = node.elapsed() + SETTLED_WITHIN;
    let mut later = scenario.desired.clone();
    later.retain(|name, _| name == "later");
    loop {
        let missing = not_running(&node.runtime, &node.targets, &later);
        if missing.is_empty() {
            break;
        }
        if node.elapsed() > until {
            return Err(format!("after a shutdown: {}", missing.join("\n")));
        }
        node.pass(SLICE).await?;
    }
    let history = node.runtime.history();
    let uids = uids_by_version(&history);
    let own = later.values().map(Desired::version_label);
    let own: Vec<&String> = own.filter_map(|label| uids.get(&label)).collect();
    let started = history[before..].iter();
    let mut others =
        started.filter(|it| it.happening == Happening::Started && !own.contains(&&it.pod_uid));
    match others.next() {
        None => Ok(()),
        Some(entry) => Err(format!("{entry:?} had ended with the node")),
    }
}

/// With the next boot all pods start that had not ended by themselves, whatever their restart
/// policy is.
async fn boot(scenario: &mut Scenario, node: &mut SimulatedNode) -> Result<(), String> {
    scenario.note(node, "the node boots");
    node.runtime.close_connection();
    node.supervision.kill_all().await;
    for (_, _, id) in running(&node.runtime) {
        node.runtime.crash_container(&id, SIGKILL_CODE);
    }
    node.boots();
    node.logind.shut_down(false);
    let until = node.elapsed() + STARTED_WITHIN;
    loop {
        let mut missing = not_running(&node.runtime, &node.targets, &scenario.desired);
        if missing.is_empty() {
            let served = node.served_pods().await?;
            let (runtime, targets) = (&node.runtime, &node.targets);
            missing = statuses::wrong_statuses(runtime, targets, &scenario.desired, &served);
        }
        if missing.is_empty() {
            return Ok(());
        }
        if node.elapsed() > until {
            return Err(format!("after a boot: {}", missing.join("\n")));
        }
        node.pass(SLICE).await?;
    }
}

impl Shutdown {
    /// Whether it was over before all groups had had their time.
    fn time_is_left(&self) -> bool {
        self.released.since(self.began) < total()
    }

    fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let since = self.history.iter().filter(|it| it.at >= self.began);
        let since: Vec<&Entry> = since.filter(|it| !it.container.is_empty()).collect();
        let is_critical = |entry: &Entry| self.critical.get(&entry.pod_uid) == Some(&true);
        let heard = self.began.plus(HEARD_WITHIN);
        let mut terminated = Vec::new();
        for entry in &since {
            match entry.happening {
                Happening::Started if entry.at > heard => {
                    broken.push(format!("{entry:?} while the node shut down"));
                }
                Happening::Terminated => terminated.push(&entry.id),
                Happening::Exited { killed: true, .. } if !terminated.contains(&&entry.id) => {
                    broken.push(format!("{entry:?} without having been asked to end"));
                }
                _ => {}
            }
        }
        let of_others = since.iter().filter(|it| !is_critical(it));
        let exits = of_others.filter(|it| matches!(it.happening, Happening::Exited { .. }));
        let last = exits.map(|it| it.at).max();
        let due = self.began.plus(SHUTDOWN[0].grace);
        let mut early = since.iter().filter(|it| {
            let is_early = last.is_some_and(|last| it.at < last.min(due));
            is_critical(it) && it.happening == Happening::Terminated && is_early
        });
        if let Some(entry) = early.next() {
            broken.push(format!("{entry:?} before the others had ended"));
        }
        broken
    }
}

/// What the statuses say that is not so: of pods that ran when the node shut down, and of
/// one that came then.
fn wrong_statuses(ran: &[String], served: Vec<Pod>) -> Vec<String> {
    let mut wrong = Vec::new();
    for pod in served {
        let status = pod.status.clone().unwrap_or_default();
        let (phase, reason) = (status.phase.as_deref(), status.reason.as_deref());
        let is_late = pod.name().starts_with("late-");
        let expected = match (is_late, ran.iter().any(|uid| *uid == pod.uid())) {
            (true, _) => REJECTED,
            (false, true) => TERMINATED,
            // It had ended before.
            (false, false) => continue,
        };
        if phase != Some("Failed") || reason != Some(expected) {
            let labels = pod.metadata.labels.unwrap_or_default();
            let label = labels.get(VERSION_LABEL).cloned();
            wrong.push(format!(
                "{label:?} is {phase:?} {reason:?}, not {expected:?}"
            ));
        }
    }
    wrong
}
