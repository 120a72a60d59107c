//! A thread that looks at the runtime alone, again and again while a test does harm, and
//! knows nothing of what Bulkhead says: whether containers that are to run go on, and
//! whether one of them ever runs twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use cri::{CriClient, RuntimeReads as _, v1};
use test_support::wait::wait_until;

use crate::ground::Ground;

/// No test lasts as long.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// More would only repeat themselves.
const VIOLATIONS_MAX: usize = 20;

/// The pod and the name of a container, by their labels.
const POD_UID: &str = "io.kubernetes.pod.uid";
const POD_NAME: &str = "io.kubernetes.pod.name";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Looks on until it is asked what it saw.
#[derive(Debug)]
pub struct RuntimeWatcher {
    enough: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

/// What was seen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Seen {
    /// How often the runtime answered.
    pub looks: usize,
    /// What must not be.
    pub violations: BTreeSet<String>,
}

/// What is compared of a look.
#[derive(Debug, Default)]
struct Look {
    /// The ids of running containers by pod and name.
    running: BTreeMap<(String, String, String), Vec<String>>,
    /// The ids of sandboxes that are ready.
    sandboxes: BTreeSet<String>,
}

impl RuntimeWatcher {
    /// Begins to look: the containers of these pods that run now are to run until the end,
    /// and so are their sandboxes.
    ///
    /// # Errors
    /// When the runtime does not answer, or one of the pods has no running container.
    pub fn begin(ground: &Ground, steady: &[String]) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = {
            let _inside = runtime.enter();
            CriClient::new(&ground.containerd.endpoint())?
        };
        let first = runtime.block_on(look(&client))?;
        let names: BTreeSet<String> = steady.iter().map(|name| ground.full_name(name)).collect();
        let mut to_stay = Look::default();
        for (key, ids) in &first.running {
            if names.contains(&key.1) {
                to_stay.running.insert(key.clone(), ids.clone());
            }
        }
        let found: BTreeSet<&String> = to_stay.running.keys().map(|key| &key.1).collect();
        for name in &names {
            ensure!(found.contains(name), "no container of {name} runs");
        }
        let sandboxes = runtime.block_on(sandboxes_of(&client, &names))?;
        to_stay.sandboxes = sandboxes;
        let enough = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&enough);
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            // It always comes to an end: the test's, or that of its patience.
            let _ = wait_until("the end of the test", FOR_EVER, || {
                // While the runtime is down there is nothing to see.
                if let Ok(now) = runtime.block_on(look(&client)) {
                    seen.looks += 1;
                    if seen.violations.len() < VIOLATIONS_MAX {
                        seen.violations.extend(violations(&to_stay, &now));
                    }
                }
                of_thread.load(Ordering::SeqCst)
            });
            seen
        });
        Ok(Self {
            enough,
            thread: Some(thread),
        })
    }

    /// Ends it; nothing may have been seen that must not be. How often it looked.
    ///
    /// # Errors
    /// With what was seen.
    pub fn saw_nothing_wrong(mut self) -> Result<usize> {
        self.enough.store(true, Ordering::SeqCst);
        let thread = self.thread.take().ok_or_else(|| anyhow!("asked before"))?;
        let seen = thread.join().map_err(|_| anyhow!("the watcher panicked"))?;
        ensure!(
            seen.violations.is_empty(),
            "in {} looks at the runtime: {:#?}",
            seen.looks,
            seen.violations
        );
        ensure!(seen.looks > 0, "the runtime never answered");
        Ok(seen.looks)
    }
}

impl Drop for RuntimeWatcher {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn look(client: &CriClient) -> Result<Look> {
    let containers = client.list_containers(v1::ContainerFilter::default());
    let mut look = Look::default();
    for container in containers.await? {
        if container.state() == v1::ContainerState::ContainerRunning {
            let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
            let key = (label(POD_UID), label(POD_NAME), label(CONTAINER_NAME));
            look.running.entry(key).or_default().push(container.id);
        }
    }
    let sandboxes = client.list_pod_sandboxes(v1::PodSandboxFilter::default());
    for sandbox in sandboxes.await? {
        if sandbox.state() == v1::PodSandboxState::SandboxReady {
            look.sandboxes.insert(sandbox.id);
        }
    }
    Ok(look)
}

/// The ready sandboxes of these pods.
async fn sandboxes_of(client: &CriClient, names: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let all = client.list_pod_sandboxes(v1::PodSandboxFilter::default());
    let of_pods = all.await?.into_iter().filter(|sandbox| {
        let name = sandbox.labels.get(POD_NAME);
        let is_ready = sandbox.state() == v1::PodSandboxState::SandboxReady;
        is_ready && name.is_some_and(|name| names.contains(name))
    });
    Ok(of_pods.map(|sandbox| sandbox.id).collect())
}

/// What must not be, of what is there `now`.
fn violations(to_stay: &Look, now: &Look) -> Vec<String> {
    let mut found = Vec::new();
    for ((_, pod, container), ids) in &now.running {
        if ids.len() > 1 {
            found.push(format!("{container} of {pod} runs more than once: {ids:?}"));
        }
    }
    for (key, ids) in &to_stay.running {
        let (_, pod, container) = key;
        let running = now.running.get(key);
        if running != Some(ids) {
            found.push(format!("{container} of {pod} was {ids:?}, is {running:?}"));
        }
    }
    for id in to_stay.sandboxes.difference(&now.sandboxes) {
        found.push(format!("the sandbox {id} is not ready any more"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(running: &[(&str, &[&str])], sandboxes: &[&str]) -> Look {
        let container = |(pod, ids): &(&str, &[&str])| {
            let key = (format!("uid-{pod}"), (*pod).to_owned(), "app".to_owned());
            (key, ids.iter().map(|id| (*id).to_owned()).collect())
        };
        Look {
            running: running.iter().map(container).collect(),
            sandboxes: sandboxes.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    #[test]
    fn a_container_that_is_gone_another_or_there_twice_is_a_violation() {
        let to_stay = look(&[("a", &["1"])], &["s"]);
        let cases = [
            (look(&[("a", &["1"])], &["s"]), 0),
            (look(&[("a", &["1"]), ("b", &["2"])], &["s", "t"]), 0),
            (look(&[], &["s"]), 1),
            (look(&[("a", &["2"])], &["s"]), 1),
            (look(&[("a", &["1"]), ("b", &["2", "3"])], &["s"]), 1),
            (look(&[("a", &["1", "2"])], &["s"]), 2),
            (look(&[("a", &["1"])], &["t"]), 1),
        ];
        for (now, expected) in cases {
            let found = violations(&to_stay, &now);
            assert_eq!(found.len(), expected, "{now:?}: {found:?}");
        }
    }
}
