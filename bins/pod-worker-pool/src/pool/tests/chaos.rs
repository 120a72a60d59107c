//! Random pods on a runtime that fails, under a pool that is killed at any moment.
//! Whatever happened, once it stops everything is as desired, and nothing ever ran
//! twice at once.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_lifecycle::{KillRequest, Subject, Update, UpdateKind};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use simulated_runtime::Faults;

use crate::garbage::Order;
use crate::testing::{IMAGE, TestNode, eventually, pod_running};

const SEEDS: u64 = 150;
const ACTIONS: usize = 25;

/// What sync-loop would want and repeat to each run of the pool.
#[derive(Default)]
struct Wanted {
    pods: BTreeMap<String, Value>,
    next: u32,
}

impl Wanted {
    fn add(&mut self, random: &mut SmallRng) -> Value {
        self.next += 1;
        // Few names, so that static pods of one name meet.
        let name = format!("p{}", random.random_range(0..4));
        let uid = format!("u{}", self.next);
        let command: &[&str] = match random.random_range(0..5) {
            0 => &["exit", "1", "700"],
            1 => &["slow-term", "900"],
            2 => &["ignore-term"],
            _ => &["run"],
        };
        let mut pod = pod_running(&name, &uid, command);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(2);
        if random.random_bool(0.3) {
            pod["spec"]["initContainers"] =
                json!([{"name": "i", "image": IMAGE, "command": ["exit", "0", "100"]}]);
        }
        self.pods.insert(uid, pod.clone());
        pod
    }
}

/// What housekeeping does: repeats what is wanted, kills what is not.
async fn housekeeping(node: &TestNode, wanted: &Wanted) {
    let run = node.current_run();
    for pod in wanted.pods.values() {
        let _ = node.update(UpdateKind::Sync, pod).await;
    }
    let Ok(relist) = run.relister.all().await else {
        return;
    };
    let desired = wanted.pods.keys().cloned().collect();
    let known = run
        .pool
        .sync_known(desired, pod::PodSource::ALL.into(), Some(relist.clone()))
        .await;
    let known = known.unwrap();
    for (uid, pod) in &relist.pods {
        let has_worker = known
            .iter()
            .any(|worker| worker.pod.as_ref().is_some_and(|pod| pod.uid == *uid));
        if pod.is_alive() && !has_worker && !wanted.pods.contains_key(uid) {
            let update = Update {
                kind: UpdateKind::Kill,
                subject: Subject::RuntimeOnly(pod.identity.clone()),
                kill: Some(KillRequest::default()),
            };
            let _ = run
                .pool
                .update(update, crate::pool::UpdateExtras::default())
                .await;
        }
    }
    run.garbage.order(Order::Everything {
        desired: wanted.pods.keys().cloned().collect(),
        sources_ready: true,
    });
}

async fn act(node: &mut TestNode, wanted: &mut Wanted, random: &mut SmallRng) {
    match random.random_range(0..10) {
        0..=3 => {
            let pod = wanted.add(random);
            if node.is_alive() {
                node.create(&pod).await;
            }
        }
        4 | 5 => {
            let index = random.random_range(0..wanted.pods.len().max(1));
            let Some(uid) = wanted.pods.keys().nth(index).cloned() else {
                return;
            };
            let pod = wanted.pods.remove(&uid).unwrap();
            if node.is_alive() {
                let _ = node
                    .send(
                        UpdateKind::Kill,
                        &pod,
                        Some(KillRequest::default()),
                        Vec::new(),
                    )
                    .await;
            }
        }
        6 | 7 => node.kill(),
        8 => {
            let containers = node.runtime.containers();
            let running: Vec<_> = containers.iter().filter(|it| it.running).collect();
            if !running.is_empty() {
                let index = random.random_range(0..running.len());
                node.runtime.crash_container(&running[index].id, 9);
            }
        }
        _ if node.is_alive() => housekeeping(node, wanted).await,
        _ => {}
    }
}

/// Whether exactly the wanted pods run, each once.
fn has_converged(node: &TestNode, wanted: &Wanted) -> bool {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (uid, pod) in &wanted.pods {
        // Of several wanted static pods of one name one runs and the others wait.
        let name = pod["metadata"]["name"].as_str().unwrap();
        let mut sandboxes = node.runtime.sandboxes().into_iter();
        let holds = sandboxes.any(|sandbox| sandbox.pod_uid == *uid && sandbox.ready);
        if holds && names.insert(name, uid).is_some() {
            return false;
        }
    }
    let all_names = wanted.pods.values();
    let every_name_runs = all_names
        .map(|pod| pod["metadata"]["name"].as_str().unwrap())
        .all(|name| names.contains_key(name));
    let nothing_else = node
        .runtime
        .sandboxes()
        .iter()
        .all(|sandbox| wanted.pods.contains_key(&sandbox.pod_uid));
    let all_running = names.values().all(|uid| {
        let crashing = wanted.pods[*uid]["spec"]["containers"][0]["command"][0] == "exit";
        crashing
            || node
                .running(uid)
                .is_some_and(|container| container.name == "c")
    });
    every_name_runs && nothing_else && all_running
}

async fn run(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut node = TestNode::with_seed(seed);
    let mut wanted = Wanted::default();
    node.runtime.set_faults(Faults::SOME);
    for _ in 0..ACTIONS {
        act(&mut node, &mut wanted, &mut random).await;
        let pause = Duration::from_millis(random.random_range(0..400));
        tokio::time::sleep(pause).await;
        if !node.is_alive() && random.random_bool(0.8) {
            node.start();
            for pod in wanted.pods.values() {
                let _ = node.update(UpdateKind::Create, pod).await;
            }
        }
    }
    node.runtime.set_faults(Faults::NONE);
    if !node.is_alive() {
        node.start();
    }
    for _ in 0..600 {
        if has_converged(&node, &wanted) {
            break;
        }
        housekeeping(&node, &wanted).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert!(
        has_converged(&node, &wanted),
        "seed {seed}: wanted {:?}, sandboxes {:?}, containers {:?}",
        wanted
            .pods
            .iter()
            .map(|(uid, pod)| (uid, &pod["metadata"]["name"]))
            .collect::<Vec<_>>(),
        node.runtime
            .sandboxes()
            .iter()
            .map(|it| (it.pod_uid.clone(), it.ready))
            .collect::<Vec<_>>(),
        node.runtime
            .containers()
            .iter()
            .map(|it| (it.pod_uid.clone(), it.name.clone(), it.running))
            .collect::<Vec<_>>(),
    );
    assert_eq!(
        node.runtime.violations(),
        Vec::<String>::new(),
        "seed {seed}"
    );
    eventually("nothing is left on the node", || {
        let state = node.host.state();
        state
            .directories
            .iter()
            .all(|uid| wanted.pods.contains_key(uid))
            && state
                .cgroups
                .iter()
                .all(|uid| wanted.pods.contains_key(uid))
    })
    .await;
}

#[test]
fn whatever_happens_the_node_ends_as_desired_and_nothing_runs_twice() {
    for seed in 0..SEEDS {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(seed));
    }
}
